"""How far a map is from a reference: the paper's relative errors, and errors entry by entry.

In: a map (or predicted moments) and a moments dataset. Out: a dataset with `rrmse(point)`, `rfe(point)`, errors of each
entry, and summaries in attrs. Against a simulated reference the reference's own noise is estimated and reported.

With ε = 1e-12: RRMSE = ‖μ̂ - μ‖₂ / (‖μ‖₂ + ε), RFE = ‖Σ̂ - Σ‖_F / (‖Σ‖_F + ε).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from ctmoments.errors import InputError

EPSILON = 1e-12  # of the paper's relative errors
SUMMARIES = {
    "mean": np.mean,
    "median": np.median,
    "p95": lambda errors: np.percentile(errors, 95),
    "above_10": lambda errors: np.mean(errors > 0.1),
    "above_20": lambda errors: np.mean(errors > 0.2),
}


def score_map(map_: Any, reference: xr.Dataset) -> xr.Dataset:
    """Errors of a map, or of a moments dataset at the same points, against a reference.

    Points whose moments are NaN on either side are left out of the summaries, and counted in `points_left_out`.

    >>> import ctmoments as ctm
    >>> data = ctm.simulate_moments(ctm.load_problem("sir"), [[0.5, 0.002], [0.4, 0.003]], replicates=100, seed=1)
    >>> score = score_map(data, data)
    >>> score.attrs["rrmse_mean"], score.attrs["rfe_above_10"]
    (0.0, 0.0)
    """
    for name in ("theta", "mean", "cov", "mean_se", "cov_se"):
        if not isinstance(reference, xr.Dataset) or name not in reference:
            raise InputError(f"`reference` must be a moments dataset with {name!r}.")
    predicted = map_ if isinstance(map_, xr.Dataset) else map_.predict(reference["theta"])
    _check_same(predicted, reference)
    mean, cov = reference["mean"].values, reference["cov"].values
    mean_error, cov_error = np.abs(predicted["mean"].values - mean), np.abs(predicted["cov"].values - cov)
    size, spread = np.linalg.norm(mean, axis=1), np.linalg.norm(cov, axis=(1, 2))
    rrmse = np.linalg.norm(mean_error, axis=1) / (size + EPSILON)
    rfe = np.linalg.norm(cov_error, axis=(1, 2)) / (spread + EPSILON)
    good = np.isfinite(rrmse) & np.isfinite(rfe)
    attrs: dict[str, Any] = {"epsilon": EPSILON, "points": int(good.sum()), "points_left_out": int((~good).sum())}
    for name, errors in (("rrmse", rrmse[good]), ("rfe", rfe[good])):
        for summary, function in SUMMARIES.items():
            attrs[f"{name}_{summary}"] = float(function(errors)) if len(errors) else float("nan")
    attrs |= _reference_noise(reference, size, spread, good)
    attrs |= _coverage(predicted, reference, good)
    attrs |= {key: reference.attrs[key] for key in ("problem", "ctmoments_version") if key in reference.attrs}
    attrs |= {"source": "score", "reference": str(reference.attrs.get("source", "unknown"))}
    variables = {
        "theta": reference["theta"],
        "rrmse": ("point", rrmse, _about("relative root mean squared error of the mean")),
        "rfe": ("point", rfe, _about("relative Frobenius error of the covariance")),
        "mean_error": (("point", "output"), mean_error, _about("absolute error of the mean")),
        "mean_relative_error": (
            ("point", "output"), mean_error / (np.abs(mean) + EPSILON), _about("relative error of the mean")
        ),
        "cov_error": (("point", "output", "output_"), cov_error, _about("absolute error of the covariance")),
        "cov_relative_error": (
            ("point", "output", "output_"), cov_error / (np.abs(cov) + EPSILON), _about("relative error of an entry")
        ),
    }  # fmt: skip
    names = ("component", "time", "component_", "time_")
    coords = {name: reference.coords[name] for name in names if name in reference.coords}
    return xr.Dataset(variables, coords, attrs)


def _about(meaning: str) -> dict[str, str]:
    return {"long_name": meaning}


def _check_same(predicted: xr.Dataset, reference: xr.Dataset) -> None:
    if predicted["mean"].shape != reference["mean"].shape:
        raise InputError(
            f"map and reference must have the same points and outputs, got {predicted['mean'].shape} and "
            f"{reference['mean'].shape}."
        )
    for name in ("component", "time"):
        if name in reference.coords and not np.array_equal(predicted[name].values, reference[name].values):
            raise InputError(f"map and reference must have the same outputs; their coordinate {name!r} differs.")
    if not np.allclose(predicted["theta"].values, reference["theta"].values, rtol=1e-12, atol=0):
        raise InputError("map and reference must have the same parameter values, and `theta` differs.")


def _reference_noise(reference: xr.Dataset, size: np.ndarray, spread: np.ndarray, good: np.ndarray) -> dict[str, float]:
    """The errors that a perfect map would have against this reference, in root mean square at each point."""
    mean_noise = np.sqrt((reference["mean_se"].values ** 2).sum(axis=1)) / (size + EPSILON)
    cov_noise = np.sqrt((reference["cov_se"].values ** 2).sum(axis=(1, 2))) / (spread + EPSILON)
    return {
        "reference_rrmse_noise": float(np.mean(mean_noise[good])) if good.any() else float("nan"),
        "reference_rfe_noise": float(np.mean(cov_noise[good])) if good.any() else float("nan"),
    }


def _coverage(predicted: xr.Dataset, reference: xr.Dataset, good: np.ndarray) -> dict[str, float]:
    """Shares of entries whose 90 % interval, noise of the reference included, holds the reference."""
    attrs = {}
    for name in ("mean", "cov"):
        error = np.abs(predicted[name].values - reference[name].values)[good]
        se = np.hypot(predicted[f"{name}_se"].values, reference[f"{name}_se"].values)[good]
        known = np.isfinite(se) & (se > 0)
        if known.any():
            attrs[f"{name}_coverage_90"] = float((error <= 1.6448536269514722 * se)[known].mean())
    return attrs
