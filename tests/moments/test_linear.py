"""Closed forms of linear networks, two-time covariances included, to 1e-8 and better."""

import dense_master
import numpy as np
import pytest

from ctmoments.errors import ModelError
from ctmoments.model.library import load_problem
from ctmoments.model.model import Model
from ctmoments.model.problem import Problem
from ctmoments.model.space import Linear, Space
from ctmoments.moments.equations_linear import is_linear, linear_moments

TIMES = np.array([0.0, 0.3, 1.0, 2.5, 7.0])


def problem_of(species, reactions, observe, times=TIMES, **box):
    model = Model(species, list(box), reactions)
    return Problem(model, Space(**box), observe=observe, times=times)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


def early_late(times):
    return np.minimum.outer(times, times), np.maximum.outer(times, times)


def test_immigration_is_a_poisson_process():
    data = linear_moments(problem_of({"X": 4}, ["0 -> X : k"], "X", k=(1, 9)), [[2.0], [7.5]])
    for row, k in enumerate([2.0, 7.5]):
        close(data["mean"][row], 4 + k * TIMES)
        close(data["cov"][row], k * early_late(TIMES)[0])


def test_immigration_and_death():
    problem = problem_of({"X": 5}, ["0 -> X : k", "X -> 0 : d*X"], "X", k=(1, 50), d=(0.1, 20))
    thetas = [[12.0, 0.7], [3.0, 15.0]]
    data = linear_moments(problem, thetas)
    for row, (k, d) in enumerate(thetas):
        s, t = early_late(TIMES)
        mean = k / d * (1 - np.exp(-d * TIMES)) + 5 * np.exp(-d * TIMES)
        variance = k / d * (1 - np.exp(-d * s)) + 5 * np.exp(-d * s) * (1 - np.exp(-d * s))
        close(data["mean"][row], mean)
        close(data["cov"][row], np.exp(-d * (t - s)) * variance)


def test_birth_and_death_grow_and_fade():
    problem = problem_of({"X": 10}, ["X -> 2 X : b*X", "X -> 0 : d*X"], "X", b=(0.1, 2), d=(0.1, 2))
    thetas = [[1.1, 0.6], [0.4, 0.9]]
    data = linear_moments(problem, thetas)
    for row, (b, d) in enumerate(thetas):
        s, t = early_late(TIMES)
        growth = np.exp((b - d) * s)
        close(data["mean"][row], 10 * np.exp((b - d) * TIMES))
        close(data["cov"][row], np.exp((b - d) * (t - s)) * 10 * (b + d) / (b - d) * growth * (growth - 1))


def test_a_monomolecular_network_is_multinomial():
    """A -> B -> C from A = 30, each molecule alone: Cov(n_a(s), n_b(t)) = 30 (P(a at s, b at t) - p_a(s) p_b(t))."""
    problem = problem_of(
        {"A": 30, "B": 0, "C": 0}, ["A -> B : k*A", "B -> C : q*B"], ["A", "B", "C"], k=(0, 2), q=(0, 2)
    )
    k, q = 0.8, 0.3
    data = linear_moments(problem, [k, q])

    def move(t):
        """P(at b after t | at a)."""
        to_b = k / (q - k) * (np.exp(-k * t) - np.exp(-q * t))
        a, b = np.exp(-k * t), np.exp(-q * t)
        return np.array([[a, to_b, 1 - a - to_b], [0, b, 1 - b], [0, 0, 1]])

    p = np.array([move(t)[0] for t in TIMES])
    close(data["mean"][0], 30 * p.T.ravel())
    expected = np.empty((3, 5, 3, 5))
    for i, s in enumerate(TIMES):
        for j, t in enumerate(TIMES[i:], i):
            block = 30 * (p[i][:, None] * move(t - s) - np.outer(p[i], p[j]))
            expected[:, i, :, j] = block
            expected[:, j, :, i] = block.T
    close(data["cov"][0], expected.reshape(15, 15))


def test_the_telegraph_model_at_rest():
    """mRNA from a gene that switches: the Fano factor and the autocovariance of the stationary state."""
    problem = problem_of(
        {"off": 1, "on": 0, "M": 0},
        ["off -> on : a*off", "on -> off : b*on", "on -> on + M : k*on", "M -> 0 : d*M"],
        "M", [200.0, 200.7, 203.0], a=(0.1, 1), b=(0.1, 1), k=(1, 50), d=(0.5, 2),
    )  # fmt: skip
    a, b, k, d = 0.4, 0.7, 20.0, 1.3
    data = linear_moments(problem, [a, b, k, d])
    mean = k / d * a / (a + b)
    close(data["mean"][0], np.full(3, mean))
    switch = k**2 * a * b / (a + b) ** 2  # Cov(k on(0), k on(t)) = switch exp(-(a + b) t)
    r = a + b
    lag = np.abs(np.subtract.outer(problem.times, problem.times))
    autocovariance = mean * np.exp(-d * lag) + switch * (
        np.exp(-d * lag) / (d * (d + r)) + (np.exp(-r * lag) - np.exp(-d * lag)) / (d**2 - r**2)
    )
    close(data["cov"][0], autocovariance)


def test_against_a_dense_master_equation():
    problem = problem_of(
        {"A": 3, "B": 1}, ["A -> B : k*A", "B -> A : q*B", "B -> 0 : d*B"], ["A + 0.5*B", "B"],
        [0.4, 1.0, 3.0], k=(0, 2), q=(0, 2), d=(0, 2),
    )  # fmt: skip
    theta = [0.7, 0.2, 0.5]
    data = linear_moments(problem, theta)
    mean, cov = dense_master.dense_moments(problem, theta, [4, 4])
    close(data["mean"][0], mean)
    close(data["cov"][0], cov)


def test_the_dataset_says_what_it_is():
    data = linear_moments(load_problem("telegraph"), load_problem("telegraph").space.from_unit(np.full((2, 3), 0.5)))
    assert data.attrs["source"] == "exact"
    assert data.attrs["method"] == "moment equations"
    assert not data["mean_se"].any()
    assert not data["cov_se"].any()
    assert not data["replicates"].any()


def test_only_the_species_that_matter_must_be_linear():
    box = {"k": Linear(1, 9), "d": Linear(0.1, 2)}
    reactions = ["0 -> X : k", "X -> 0 : d*X", "X -> X + Y : k*X^2"]
    watched = problem_of({"X": 0, "Y": 0}, reactions, "X", **box)
    assert is_linear(watched)
    close(linear_moments(watched, [4.0, 1.0])["mean"][0], 4 * (1 - np.exp(-TIMES)))
    other = problem_of({"X": 0, "Y": 0}, reactions, "Y", **box)
    assert not is_linear(other)
    with pytest.raises(ModelError, match=r"'X -> X \+ Y : k\*X\^2'.*is of order 2"):
        linear_moments(other, [4.0, 1.0])
    assert not is_linear(load_problem("toggle-switch"))
