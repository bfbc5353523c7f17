"""Moments against formulas, at 40,000 replicates: means, variances, two-time covariances.

Each call of `assert_moments_close` has a family-wise false-alarm rate of 1e-6 and, with power 0.99, finds an error of
8.3 standard errors (300 comparisons): 4 % of a standard deviation in a mean, 6 % of a Gaussian's variance.
"""

from __future__ import annotations

import numpy as np
from helpers import assert_moments_close, detectable, problem_of

import ctmoments as ctm

REPLICATES = 40_000
TIMES = (0.0, 0.3, 1.0, 1.1, 2.5, 7.0)
S, T = np.minimum.outer(TIMES, TIMES), np.maximum.outer(TIMES, TIMES)


def _check(problem, theta, means, covs, seed):
    data = ctm.simulate_moments(problem, theta, REPLICATES, seed=seed)
    assert_moments_close(data, np.array(means), np.array(covs))


def test_the_stated_error_is_what_the_bound_finds():
    assert detectable(1e-6, 300) < 8.3


def test_poisson_process():
    """Counts to the left of t: Poisson, covariance the variance at the earlier time."""
    problem = problem_of({"X": 0}, ["0 -> X : k"], "X", TIMES, k=(0, 100))
    rates = np.array([0.7, 3.0, 40.0])
    _check(problem, rates, np.outer(rates, TIMES), rates[:, None, None] * S, seed=11)


def test_pure_death():
    """Binomial: each of n lives to t with probability exp(-g t)."""
    n, rates = 60, np.array([0.2, 1.0])
    problem = problem_of({"X": n}, ["X -> 0 : g*X"], "X", TIMES, g=(0, 2))
    decay = np.exp(-rates[:, None] * np.array(TIMES))
    covs = n * np.exp(-rates[:, None, None] * T) * (1 - np.exp(-rates[:, None, None] * S))
    _check(problem, rates, n * decay, covs, seed=12)


def test_yule_process():
    """Pure birth by splitting: mean n e^{kt}, covariance n e^{kT} (e^{kS} - 1)."""
    n, rates = 5, np.array([0.1, 0.4])
    problem = problem_of({"X": n}, ["X -> 2 X : k*X"], "X", TIMES, k=(0, 2))
    k = rates[:, None, None]
    covs = n * np.exp(k * T) * (np.exp(k * S) - 1)
    _check(problem, rates, n * np.exp(rates[:, None] * np.array(TIMES)), covs, seed=13)


def test_immigration_death():
    """The library's birth-death: a Poisson part from arrivals and a binomial part from the start."""
    problem = ctm.load_problem("birth-death")
    times = np.array(problem.times)
    s, t = np.minimum.outer(times, times), np.maximum.outer(times, times)
    theta = np.array([[1.0, 0.1], [12.0, 0.5], [20.0, 1.0]])
    means, covs = [], []
    for birth, death in theta:
        alive = np.exp(-death * times)
        means.append(10 * alive + birth / death * (1 - alive))
        new = birth / death * (1 - np.exp(-death * s)) * np.exp(-death * (t - s))
        covs.append(new + 10 * np.exp(-death * t) * (1 - np.exp(-death * s)))
    _check(problem, theta, means, covs, seed=14)


def test_telegraph():
    """A gene that switches: mean and covariance of its state, mean of what it makes."""
    reactions = ["G -> H : a*G", "H -> G : b*H", "H -> H + M : s*H", "M -> 0 : M"]
    space = dict(a=(0, 9), b=(0, 9), s=(0, 99))
    a, b, s = theta = (0.4, 1.3, 20.0)
    gene = problem_of({"G": 1, "H": 0, "M": 0}, reactions, "H", TIMES, **space)
    c, times = a + b, np.array(TIMES)
    on = a / c * (1 - np.exp(-c * times))
    at_s = a / c * (1 - np.exp(-c * S))
    _check(gene, theta, [on], [at_s * (1 - at_s) * np.exp(-c * (T - S))], seed=15)
    made = problem_of({"G": 1, "H": 0, "M": 0}, reactions, "M", TIMES, **space)
    data = ctm.simulate_moments(made, theta, REPLICATES, seed=16)
    mean = s * a / c * ((1 - np.exp(-times)) - (np.exp(-times) - np.exp(-c * times)) / (c - 1))
    z = (data["mean"].values[0, 1:] - mean[1:]) / data["mean_se"].values[0, 1:]
    assert np.abs(z).max() < 5.5  # false alarm 1e-7 in 5 comparisons; finds 8 standard errors


def test_conserved_pair():
    """A <-> B with N = 100: two channels, not one net rate; variance 25 at equilibrium."""
    problem = problem_of({"A": 100, "B": 0}, ["A -> B : A", "B -> A : B"], ["A", "A + B"], [0.2, 20.0])
    data = ctm.simulate_moments(problem, 0.5, REPLICATES, seed=17)
    p, q = (1 + np.exp(-0.4)) / 2, (1 + np.exp(-40.0)) / 2
    forward = 100 * p * (1 - p) * np.exp(-2 * 19.8)
    cov = np.zeros((1, 4, 4))
    cov[0, :2, :2] = [[100 * p * (1 - p), forward], [forward, 100 * q * (1 - q)]]
    assert_moments_close(data, np.array([[100 * p, 100 * q, 100, 100]]), cov)
