"""What tests share: comparisons with a stated false-alarm rate, hashes of results, small problems in one line."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.special import ndtri
from scipy.stats import t as student_t

import ctmoments as ctm
from ctmoments.errors import Status

ALPHA = 1e-6  # family-wise false-alarm rate of one call


def detectable(alpha: float, comparisons: int, power: float = 0.99) -> float:
    """The error, in standard errors, that a two-sided test over `comparisons` numbers finds with this power."""
    return float(-ndtri(alpha / (2 * comparisons)) + ndtri(power))


def assert_z(z: np.ndarray, alpha: float = ALPHA, degrees: float = np.inf) -> None:
    """No |z| beyond the bound for a family-wise false-alarm rate `alpha`; `degrees` of freedom of the errors."""
    z = np.asarray(z, float).ravel()
    assert z.size and np.isfinite(z).all(), "every comparison must be a number"
    bound = float(-student_t.ppf(alpha / (2 * z.size), degrees))
    worst = int(np.abs(z).argmax())
    assert abs(z[worst]) < bound, f"|z| = {abs(z[worst]):.2f} at {worst} of {z.size}, bound {bound:.2f}"


def assert_mean_close(samples: np.ndarray, exact: np.ndarray, alpha: float = ALPHA) -> None:
    """The mean over axis 0 agrees with `exact`; where nothing varies it must be equal."""
    samples = np.asarray(samples, float).reshape(len(samples), -1)
    exact = np.broadcast_to(exact, samples.shape[1:]).ravel()
    se = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    _assert_close(samples.mean(axis=0), exact, se, alpha, len(samples) - 1)


def assert_moments_close(data, mean: np.ndarray, cov: np.ndarray, alpha: float = ALPHA) -> None:
    """Mean and covariance of a moments dataset agree with exact ones: (point, output), (point, output, output)."""
    lower = np.tril_indices(data.sizes["output"])
    triangle = (slice(None), *lower)
    _assert_close(data["mean"].values, mean, data["mean_se"].values, alpha / 2, np.inf)
    _assert_close(data["cov"].values[triangle], cov[triangle], data["cov_se"].values[triangle], alpha / 2, np.inf)


def _assert_close(estimate, exact, se, alpha: float, degrees: float) -> None:
    estimate, exact, se = (np.asarray(a, float).ravel() for a in (estimate, exact, se))
    # a variance below 1e-14 of its size is rounding in the exact reference
    fixed = se == 0
    np.testing.assert_allclose(estimate[fixed], exact[fixed], rtol=1e-9, atol=1e-7)
    if not fixed.all():
        assert_z((estimate[~fixed] - exact[~fixed]) / se[~fixed], alpha, degrees)


def fingerprint(*arrays: np.ndarray) -> str:
    """A hash of the bits of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        array = np.ascontiguousarray(array)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def problem_of(
    species: dict,
    reactions: Sequence[str],
    observe: str | Sequence[str],
    times: Sequence[float],
    **space,
) -> ctm.Problem:
    """A problem in one line; without parameters a dummy one, since a space holds at least one."""
    space = space or {"unused": (0.0, 1.0)}
    return ctm.Problem(ctm.Model(species, list(space), list(reactions)), ctm.Space(**space), observe, times)


def statuses(paths) -> list[Status]:
    """The status of each path of the first point."""
    return [Status(int(value)) for value in paths["status"].values[0]]


def child_environment(**more: str) -> dict[str, str]:
    """The environment of a child process that imports this very source."""
    return os.environ | {"PYTHONPATH": str(Path(ctm.__file__).parents[1])} | more
