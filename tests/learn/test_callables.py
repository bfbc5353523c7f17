"""A user's own simulator is learned like any model: from a budget, and from moments that exist."""

import numpy as np
import pytest

import ctmoments as ctm


def poisson_and_more(theta, rng):
    """Means 10 a and 10 a, variances 10 a and 10 a + b², covariance 10 a."""
    n = rng.poisson(10 * theta["a"])
    return n, n + theta["b"] * rng.normal()


@pytest.fixture(scope="module")
def problem():
    space = ctm.Space(a=(1, 2), b=(0.5, 1))
    return ctm.Problem.from_callable(poisson_and_more, space, outputs=["n", "y"])


def check(map_):
    """Within 6 % of the mean and 25 % of the covariance at three values: five times what a fit of 6,000 paths shows."""
    for a, b in ((1.2, 0.6), (1.5, 0.75), (1.8, 0.9)):
        np.testing.assert_allclose(map_.mean([a, b])[0], [10 * a, 10 * a], rtol=0.06)
        cov = np.array([[10 * a, 10 * a], [10 * a, 10 * a + b**2]])
        assert np.linalg.norm(map_.covariance([a, b])[0] - cov) < 0.25 * np.linalg.norm(cov)
        assert (np.linalg.eigvalsh(map_.covariance([a, b])[0]) > 0).all()


def test_learned_from_a_budget(problem, tmp_path):
    map_ = ctm.learn_map(problem, budget=6000, seed=1)
    check(map_)
    map_.save(tmp_path / "mine.ctm")
    again = ctm.load_map(tmp_path / "mine.ctm")  # the callable is not needed to predict
    np.testing.assert_array_equal(again.mean([1.5, 0.7]), map_.mean([1.5, 0.7]))


def test_fitted_to_moments_that_exist(problem):
    theta = ctm.sample_design(problem, points=60, seed=1)
    check(ctm.fit_map(ctm.simulate_moments(problem, theta, replicates=100, seed=1), seed=1))
