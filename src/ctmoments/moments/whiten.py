"""Whitening, the paper's downstream task: paths whose correlation is taken away by known mean and covariance.

In: paths (point, replicate, output) and moments at the same points. Out: z with, if the moments are right, mean zero
and the identity as covariance. Deterministic outputs are left out: nothing there is left to whiten.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from ctmoments.errors import InputError

KINDS = ("symmetric", "cholesky")
DETERMINISTIC = 1e-14  # variance below this share of the largest: none


def whiten(paths: xr.DataArray, moments: xr.Dataset, kind: str = "symmetric") -> xr.DataArray:
    """z = Σ^(-1/2) (x - μ) with the symmetric inverse root, or L⁻¹ (x - μ) for `kind="cholesky"`.

    attrs tell the largest correlation between two outputs before and after, over all points together.

    >>> import ctmoments as ctm
    >>> problem = ctm.load_problem("sir")
    >>> paths = ctm.simulate_paths(problem, [0.5, 0.002], replicates=300, seed=1)
    >>> moments = ctm.simulate_moments(problem, [0.5, 0.002], replicates=300, seed=1)
    >>> z = whiten(paths, moments)
    >>> bool(z.attrs["correlation_after"] < 1e-9), bool(z.attrs["correlation_before"] > 0.9)
    (True, True)
    """
    if kind not in KINDS:
        raise InputError(f"`kind` must be one of {', '.join(KINDS)}, got {kind!r}.")
    if paths.dims != ("point", "replicate", "output"):
        raise InputError(f"`paths` must have the dims (point, replicate, output), got {paths.dims}.")
    mean, cov = moments["mean"].values, moments["cov"].values
    if mean.shape != (paths.sizes["point"], paths.sizes["output"]):
        raise InputError(f"`moments` must be at the points of `paths`, {paths.shape[::2]}, got {mean.shape}.")
    variance = np.diagonal(cov, axis1=1, axis2=2)
    if not np.isfinite(cov).all():
        raise InputError("`moments` must have a finite covariance at every point, got NaN. Simulate more replicates.")
    active = (variance > DETERMINISTIC * variance.max(axis=1, keepdims=True)).all(axis=0)
    if not active.any():
        raise InputError("`moments` must have an output with variance; all are deterministic.")
    cov = cov[:, active][:, :, active]
    x = paths.values[:, :, active] - mean[:, None, active]
    try:
        z = _symmetric(x, cov) if kind == "symmetric" else _triangular(x, cov)
    except np.linalg.LinAlgError:
        raise InputError("`moments` must have a positive definite covariance at every point.") from None
    attrs = {
        "kind": kind,
        "correlation_before": largest_correlation(x),
        "correlation_after": largest_correlation(z),
        "outputs_left_out": int((~active).sum()),
    }
    return paths.isel(output=np.flatnonzero(active)).copy(data=z).assign_attrs(attrs).rename("whitened")


def correlation(values: np.ndarray) -> np.ndarray:
    """Correlation of outputs (output, output) over all rows of (..., output) without NaN; NaN where one is constant."""
    rows = values.reshape(-1, values.shape[-1])
    rows = rows[np.isfinite(rows).all(axis=1)]
    if len(rows) < 2:
        return np.full((rows.shape[1], rows.shape[1]), np.nan)
    cov = np.atleast_2d(np.cov(rows, rowvar=False))
    deviation = np.sqrt(np.diagonal(cov))
    with np.errstate(divide="ignore", invalid="ignore"):
        return cov / np.multiply.outer(deviation, deviation)


def largest_correlation(values: np.ndarray) -> float:
    """The largest absolute correlation between two outputs; 0 where there is one output only."""
    matrix = correlation(values)
    apart = np.abs(matrix[~np.eye(len(matrix), dtype=bool)])
    return float(np.nanmax(apart)) if np.isfinite(apart).any() else 0.0


def _symmetric(x: np.ndarray, cov: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(cov)
    if not (values > 0).all():
        raise np.linalg.LinAlgError
    root = (vectors / np.sqrt(values)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    return x @ root


def _triangular(x: np.ndarray, cov: np.ndarray) -> np.ndarray:
    factor = np.linalg.cholesky(cov)
    return np.swapaxes(np.linalg.solve(factor, np.swapaxes(x, 1, 2)), 1, 2)
