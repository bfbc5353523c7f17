"""Paths kept aside: do they look Gaussian and white in the eyes of the map?

In: a map and paths that it has not seen. Out: what the card says: the variance, skewness and kurtosis of the whitened
paths, where in the box they are worst, and a sentence where two moments mislead (extinction, several modes).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from ctmoments.errors import Status
from ctmoments.learn.sources import Spent
from ctmoments.model.problem import Problem
from ctmoments.model.theta import as_theta
from ctmoments.predict.moment_map import MomentMap
from ctmoments.simulate.design import sample_design
from ctmoments.simulate.paths import simulate_paths
from ctmoments.simulate.streams import Purpose

SHARE, MOST = 50, 4000  # one path in fifty, 4,000 at most
CELLS = 3  # parts of each of the first two parameters
MISLEADING = 3.0  # excess kurtosis or skewness² in a part of the box: far from the 0 of a Gaussian


def held_out_paths(budget: int) -> int:
    """How many of the paths of a budget are kept aside."""
    return min(max(budget // SHARE, 2), MOST)


def held_out(problem: Problem, count: int, seed: int, threads: int | None) -> tuple[xr.DataArray, Spent]:
    """Single paths at fresh points, of purposes of their own."""
    theta = sample_design(problem, count, seed=seed, purpose=Purpose.VALIDATION_DESIGN)
    paths = simulate_paths(problem, theta, 1, seed, purpose=Purpose.VALIDATION_PATHS, threads=threads, progress=False)
    failed = int((paths["status"].values > Status.ABSORBED).sum())
    return paths, Spent(len(paths), int(paths.attrs["events"]), failed)


def judge(map_: MomentMap, paths: xr.DataArray) -> dict[str, Any]:
    """The card's entry on paths kept aside."""
    theta = np.stack([paths[f"theta_{name}"].values for name in map_.problem.space.parameters], axis=1)
    theta = as_theta(map_.problem, theta).values
    values = paths.values[:, 0]
    good = np.isfinite(values).all(axis=1)
    active = np.flatnonzero(~map_.deterministic)
    if not good.any() or not len(active):
        return {"paths": len(paths)}
    residual = (values - map_.mean(theta))[good][:, active]
    factor = map_.factor(theta)[good][:, active[:, None], active]
    z = np.linalg.solve(factor, residual[:, :, None])[:, :, 0]
    unit = map_.problem.space.to_unit(theta[good])[:, :2]
    cell = np.minimum((unit * CELLS).astype(int), CELLS - 1) @ CELLS ** np.arange(unit.shape[1])
    shapes = [_shape(z[cell == c]) for c in np.unique(cell) if (cell == c).sum() >= 20]
    skewness = max((s for s, _ in shapes), default=float("nan"))
    kurtosis = max((k for _, k in shapes), default=float("nan"))
    entry: dict[str, Any] = {
        "paths": len(paths),
        "whitened_variance": round(float((z**2).mean()), 4),
        "skewness_squared_worst": round(skewness, 3) if shapes else None,
        "excess_kurtosis_worst": round(kurtosis, 3) if shapes else None,
    }
    if shapes and max(skewness, kurtosis) > MISLEADING:
        entry["note"] = "two moments mislead in part of the box: paths there are far from Gaussian"
    return entry


def _shape(z: np.ndarray) -> tuple[float, float]:
    """Squared skewness and excess kurtosis of whitened outputs, averaged over outputs."""
    z = z - z.mean(axis=0)
    variance = np.maximum((z**2).mean(axis=0), 1e-300)
    skewness = (z**3).mean(axis=0) / variance**1.5
    kurtosis = (z**4).mean(axis=0) / variance**2 - 3.0
    return float((skewness**2).mean()), float(kurtosis.mean())
