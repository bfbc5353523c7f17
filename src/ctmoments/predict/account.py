"""What a map says about its own errors, in one number for the mean and one for the covariance.

In: a map. Out: standard errors relative to the size of what they belong to, at values or averaged over the box.
"""

from __future__ import annotations

import numpy as np

from ctmoments.predict.moment_map import MomentMap
from ctmoments.simulate.design import sample_design

SAMPLED = 200  # values over the box that are averaged


def own_errors(map_: MomentMap, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The map's standard errors of mean and covariance at each value, relative to their size."""
    data = map_.predict(theta, on_outside="nan")
    mean, cov = data["mean"].values, data["cov"].values
    mean_size, cov_size = np.linalg.norm(mean, axis=1), np.linalg.norm(cov, axis=(1, 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_error = np.linalg.norm(data["mean_se"].values, axis=1) / mean_size
        cov_error = np.linalg.norm(data["cov_se"].values, axis=(1, 2)) / cov_size
    return mean_error, cov_error


def expected_errors(map_: MomentMap) -> tuple[float, float]:
    """Their average over the box: (mean, covariance); NaN where the map does not tell."""
    errors = own_errors(map_, sample_design(map_.problem, SAMPLED, kind="uniform", seed=0).values)
    mean, cov = (float(np.nanmean(part)) if np.isfinite(part).any() else float("nan") for part in errors)
    return mean, cov
