"""Streamed moments are the moments of the paths: against whole-number arithmetic on `simulate_paths`."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from helpers import problem_of

import ctmoments as ctm
from ctmoments.errors import SimulationError, Status

REPLICATES = (1, 2, 15, 16, 17, 513)
LIBRARY = ctm.load_problem("sir")
PROBLEMS = {
    "sir": (replace(LIBRARY, observe=["I", "S + R"], times=(1, 4, 9)), [[0.5, 0.002], [0.9, 0.00325], [0.1, 0.00125]]),
    "decimal weights": (replace(LIBRARY, observe=["0.3*S - 1.25*I", "R/3"], times=(2, 6)), [[0.5, 0.002]]),
    "constant outputs": (replace(LIBRARY, observe=["S + I + R", "I"], times=(0, 3)), [[0.5, 0.002]]),
    "large amounts": (problem_of({"X": 10**9, "Y": 3}, ["X -> Y : k*X/1e8", "Y -> X : k*Y", "0 -> X @ k"],
                                 ["X", "X - 7*Y"], [0.5, 2.0, 5.0], k=(0, 9)), [[1.0], [8.0]]),
    "largest amounts": (problem_of({"X": 2**52 - 1, "Y": 0}, ["X -> 2 Y @ k/2^50", "0 -> X @ k"],
                                   ["X", "Y"], [1.0, 4.0], k=(0, 9)), [[3.0]]),
    "wide jumps": (problem_of({"X": 0, "Y": 0}, ["0 -> 900000 X @ k", "X -> Y : k*X/1e6"],
                              ["X", "Y"], [1.0, 3.0], k=(0, 9)), [[1.5], [0.2]]),
    "huge jumps": (problem_of({"X": 0}, ["0 -> 1000000 X @ 300*k"], ["X"], [1.0, 3.0], k=(0, 9)), [[5.0], [0.0001]]),
    "beyond 2^53": (problem_of({"X": 0}, ["0 -> 1000000 X @ 300*k"], ["1000000*X"], [1.0], k=(0, 9)), [[5.0]]),
}  # fmt: skip


def _exact(values: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance (divisor M - 1) of one point's outputs (replicates, outputs) in fractions."""
    whole = np.rint(values / scale).astype(object)
    count, length = whole.shape
    total = [sum(int(v) for v in whole[:, i]) for i in range(length)]
    mean = np.array([float(Fraction(t, count)) for t in total]) * scale
    cov = np.full((length, length), np.nan)
    for i in range(length if count > 1 else 0):
        for j in range(i + 1):
            products = sum(int(a) * int(b) for a, b in zip(whole[:, i], whole[:, j], strict=True))
            cov[i, j] = cov[j, i] = float(Fraction(count * products - total[i] * total[j], count * (count - 1)))
    return mean, cov * np.multiply.outer(scale, scale)


def _leaf_errors(values: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """Standard errors of the covariance by the module's formula, from covariances of aligned eights."""
    count = len(values)
    gauss = np.outer(np.diag(cov), np.diag(cov)) + cov**2
    if count < 16:
        return np.sqrt(gauss / (count - 1)) if count > 1 else np.full_like(cov, np.nan)
    centred = values - values.mean(axis=0)
    eights = centred[: count // 8 * 8].reshape(-1, 8, values.shape[1])
    variance = np.array([np.cov(eight.T, ddof=1) for eight in eights]).reshape(len(eights), *cov.shape).var(0, ddof=1)
    result = 8 * variance / count - gauss * (8 / 7 / count - 1 / (count - 1))
    return np.sqrt(np.where(result > 0, result, variance * 7 / (count - 1)))


def _scale(problem) -> np.ndarray:
    return np.repeat([component.scale for component in problem.components], len(problem.times))


@pytest.mark.parametrize("replicates", REPLICATES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_moments_are_those_of_the_paths(name, replicates):
    problem, theta = PROBLEMS[name]
    paths = ctm.simulate_paths(problem, theta, replicates, seed=7)
    data = ctm.simulate_moments(problem, theta, replicates, seed=7)
    assert data.attrs["events"] == paths.attrs["events"] > 0
    assert (data["replicates"] == replicates).all()
    for point in range(len(theta)):
        mean, cov = _exact(paths.values[point], _scale(problem))
        np.testing.assert_allclose(data["mean"].values[point], mean, rtol=1e-15)
        np.testing.assert_allclose(data["cov"].values[point], cov, rtol=1e-14)
        np.testing.assert_allclose(data["mean_se"].values[point], np.sqrt(np.diag(cov) / replicates), rtol=1e-14)
        errors, wanted = data["cov_se"].values[point], _leaf_errors(paths.values[point], cov)
        # the reference works in floats on values up to 4e15
        np.testing.assert_allclose(errors, wanted, rtol=1e-7, atol=1e-6 * np.nanmax(np.abs(cov), initial=1e-9))


def test_one_replicate_is_the_path_and_the_rest_is_not_known():
    problem, theta = PROBLEMS["sir"]
    data = ctm.simulate_moments(problem, theta, 1, seed=7)
    for name in ("cov", "mean_se", "cov_se"):
        assert np.isnan(data[name]).all()
    assert np.isfinite(data["mean"]).all()


def _failing() -> ctm.Problem:
    return problem_of({"X": 3}, ["X -> 0 : k", "0 -> X : 1"], "X", [0.5, 2.0], k=(0, 9))


def test_failed_paths_make_their_point_unknown():
    data = ctm.simulate_moments(_failing(), [[0.0], [1.5]], 200, seed=1)
    counts = data["status_count"].sel(status="out_of_range").values
    assert counts[0] == 0 and 20 < counts[1] < 190
    assert data["status_count"].sum("status").values.tolist() == [200, 200]
    assert data.attrs["failed_paths"] == counts[1]
    for name in ("mean", "cov", "mean_se", "cov_se"):
        assert np.isfinite(data[name][0]).all() and np.isnan(data[name][1]).all()


@pytest.mark.parametrize("replicates", REPLICATES)
def test_dropped_paths_leave_the_moments_of_the_rest(replicates):
    problem, theta = _failing(), [[1.5], [4.0]]
    paths = ctm.simulate_paths(problem, theta, replicates, seed=3)
    data = ctm.simulate_moments(problem, theta, replicates, seed=3, on_failure="drop")
    good = paths["status"].values <= Status.ABSORBED
    assert np.isnan(paths.values[~good]).all() and np.isfinite(paths.values[good]).all()
    np.testing.assert_array_equal(data["replicates"], good.sum(axis=1))
    for point in range(2):
        if not good[point].any():
            assert np.isnan(data["mean"][point]).all()
            continue
        mean, cov = _exact(paths.values[point][good[point]], np.ones(2))
        np.testing.assert_allclose(data["mean"].values[point], mean, rtol=1e-15)
        np.testing.assert_allclose(data["cov"].values[point], cov, rtol=1e-14)


def test_failures_can_raise():
    with pytest.raises(SimulationError, match=r"paths failed, first at point 8 \(k = 1.5\): an amount fell below zero"):
        theta = ctm.as_theta(_failing(), [[0.0], [1.5]]).assign_coords(point=[4, 8])
        ctm.simulate_moments(_failing(), theta, 200, seed=1, on_failure="raise")


def test_offsets_do_not_cost_digits():
    """E[x²] - E[x]² in floats would lose all of a variance of 1 at 10^9: here both chains have the same deaths."""

    def deaths(start):
        problem = problem_of({"X": start, "Y": 40}, ["X + Y -> 0 : k*Y"], "X", [0.3, 1.0], k=(0, 2))
        return ctm.simulate_moments(problem, [0.7], 3000, seed=5)

    near, far = deaths(40), deaths(10**9)
    np.testing.assert_array_equal(near["cov"], far["cov"])
    np.testing.assert_array_equal(near["cov_se"], far["cov_se"])


@pytest.mark.parametrize("rate", [2.0, 5.0])
@pytest.mark.parametrize("replicates", [513, 1025])
def test_sums_that_cross_2_to_the_63(rate, replicates):
    """One point, so that no other decides the dtype: products of sums pass 2^63 at 2, merged sums of squares at 5."""
    problem = problem_of({"X": 0}, ["0 -> 1000 X @ k"], "X", [1.0], k=(0, 9))
    values = ctm.simulate_paths(problem, [rate], replicates, seed=7).values[0]
    data = ctm.simulate_moments(problem, [rate], replicates, seed=7, block_paths=256)
    mean, cov = _exact(values, np.ones(1))
    np.testing.assert_allclose(data["mean"].values[0], mean, rtol=1e-15)
    np.testing.assert_allclose(data["cov"].values[0], cov, rtol=1e-14)
    np.testing.assert_allclose(data["cov_se"].values[0], _leaf_errors(values, cov), rtol=1e-9)


def test_a_hundred_outputs():
    problem = problem_of({"X": 0}, ["0 -> X @ k", "X -> 0 : X"], "X", np.linspace(0.1, 10, 100), k=(0, 20))
    data = ctm.simulate_moments(problem, [10.0], 3001, seed=5)
    paths = ctm.simulate_paths(problem, [10.0], 3001, seed=5).values[0]
    np.testing.assert_allclose(data["cov"].values[0], np.cov(paths.T), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(data["cov_se"].values[0], _leaf_errors(paths, np.cov(paths.T)), rtol=1e-9)
    assert np.linalg.eigvalsh(data["cov"].values[0])[0] > -1e-9
