"""Standard errors are honest: they match the spread over thousands of independent points with equal parameters.

A skewed chain (a Yule process: excess kurtosis near 2) tells the fourth-order estimate from the Gaussian formula,
whose squares are 75 % too small here. Bounds are 6 standard errors of each comparison (false alarm below 1e-8 each).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from helpers import problem_of

import ctmoments as ctm

POINTS, SEED, RATE, START = 4000, 41, 0.8, 1
TIMES = np.array([1.0, 2.0])
S, T = np.minimum.outer(TIMES, TIMES), np.maximum.outer(TIMES, TIMES)
MEAN = START * np.exp(RATE * TIMES)
COV = START * np.exp(RATE * T) * (np.exp(RATE * S) - 1)


@cache
def _data(replicates: int):
    problem = problem_of({"X": START}, ["X -> 2 X : k*X"], "X", TIMES, k=(0, 2))
    return ctm.simulate_moments(problem, np.full(POINTS, RATE), replicates, seed=SEED)


def _spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variance over points and its standard error."""
    variance = values.var(axis=0, ddof=1)
    fourth = ((values - values.mean(axis=0)) ** 4).mean(axis=0)
    return variance, np.sqrt((fourth - variance**2) / len(values))


def _ratio(se: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of se² over the true variance, and how well POINTS points determine it."""
    variance, error = _spread(values)
    claimed = (se**2).mean(axis=0)
    noise = np.hypot((se**2).std(axis=0) / np.sqrt(len(se)) / variance, claimed * error / variance**2)
    return claimed / variance, noise


@pytest.mark.parametrize("replicates", [2, 15, 16, 250])
def test_standard_errors_of_means(replicates):
    data = _data(replicates)
    ratio, noise = _ratio(data["mean_se"].values, data["mean"].values)
    assert (np.abs(ratio - 1) < 6 * noise).all() and (noise < 0.05).all()
    np.testing.assert_allclose(data["mean_se"] ** 2, np.diagonal(data["cov"], axis1=1, axis2=2) / replicates)


@pytest.mark.parametrize("replicates", [2, 15, 16, 250])
def test_means_and_covariances_are_unbiased(replicates):
    """Over 4,000 points: finds a bias of 2.5 % of the variance at 250 replicates, where divisor M gives 0.4 %."""
    data = _data(replicates)
    for values, exact in ((data["mean"].values, MEAN), (data["cov"].values, COV)):
        z = (values.mean(axis=0) - exact) / (values.std(axis=0) / np.sqrt(POINTS))
        assert np.abs(z).max() < 6
    if replicates == 2:  # where the divisor matters most it is seen: M instead of M - 1 would halve the covariance
        noise = data["cov"].values.std(axis=0) / np.sqrt(POINTS) / COV
        assert (noise < 1 / 12).all()


def test_standard_errors_of_covariances():
    """250 replicates: the ratio is determined to 5 %; a Gaussian formula gives 0.25."""
    data = _data(250)
    ratio, noise = _ratio(data["cov_se"].values, data["cov"].values)
    assert (noise < 0.06).all() and (np.abs(ratio - 1) < 6 * noise).all()


@pytest.mark.parametrize(("replicates", "low", "high"), [(15, 0.2, 1.1), (16, 0.5, 1.6)])
def test_few_replicates_say_so_and_are_of_the_right_size(replicates, low, high):
    """Below 16 replicates the Gaussian formula is too small for such skewed outputs, and attrs name it."""
    data = _data(replicates)
    ratio, _ = _ratio(data["cov_se"].values, data["cov"].values)
    assert (low < ratio).all() and (ratio < high).all()
    assert ("Gaussian" in data.attrs["cov_se_from"]) == (replicates < 16)


def test_z_scores_have_unit_spread():
    """2,000 replicates of a binomial output; at 100, 12 leaves, the noise of cov_se itself makes the spread 1.24."""
    points, replicates = 2000, 2000
    problem = problem_of({"X": 40}, ["X -> 0 : k*X"], "X", [1.0], k=(0, 2))
    data = ctm.simulate_moments(problem, np.full(points, np.log(2)), replicates, seed=SEED)
    for name, exact in (("mean", 20.0), ("cov", 10.0)):
        z = (data[name].values.ravel() - exact) / data[f"{name}_se"].values.ravel()
        assert abs(z.std() - 1) < 6 / np.sqrt(2 * points), name


def test_correlated_outputs_pair_by_pair():
    """The standard error of an off-diagonal entry needs both variances and the covariance."""
    problem = problem_of({"A": 30, "B": 0}, ["A -> B : k*A"], ["A", "A + 2*B", "B"], [0.7, 1.4], k=(0, 2))
    data = ctm.simulate_moments(problem, np.full(POINTS, 0.5), 64, seed=SEED)
    ratio, noise = _ratio(data["cov_se"].values, data["cov"].values)
    assert (noise < 0.1).all() and (np.abs(ratio - 1) < 6 * noise).all()
