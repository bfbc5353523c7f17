"""Exact moments against closed forms, a dense master equation, and the SIR's table of 1,000."""

import os
from itertools import product
from math import comb
from pathlib import Path

import numpy as np
import pytest
from moments.chains import closure, dense_generator, dense_moments, problem_of

from ctmoments.errors import InputError, ModelError, SizeError
from ctmoments.model.library import load_problem
from ctmoments.model.model import Model
from ctmoments.model.problem import Problem
from ctmoments.model.space import Integer, Space
from ctmoments.moments.exact import exact_moments
from ctmoments.moments.exact_distribution import exact_distribution

TIMES = np.array([0.3, 1.0, 2.5])


def assert_moments(data, mean, cov, rtol=1e-8):
    got_mean, got_cov = data["mean"].values[0], data["cov"].values[0]
    assert np.linalg.norm(got_mean - mean) <= rtol * np.linalg.norm(mean)
    assert np.linalg.norm(got_cov - cov) <= rtol * np.linalg.norm(cov)
    assert np.all(np.abs(got_mean - mean) <= data["mean_bound"].values[0] + 1e-13 * np.abs(mean).max())
    assert np.linalg.norm(got_cov - cov) <= data["cov_bound"].values[0] + 1e-13 * np.linalg.norm(cov)


def later(times):
    return np.abs(np.subtract.outer(times, times)), np.minimum.outer(times, times)


class TestClosedForms:
    def test_immigration_and_death(self):
        problem, theta = problem_of({"X": 7}, {"k": 12.0, "g": 0.8}, ["-> X : k", "X -> : g*X"], "X", TIMES)
        data = exact_moments(problem, theta)
        left = np.exp(-0.8 * TIMES)
        mean = 15 * (1 - left) + 7 * left
        lag, first = later(TIMES)
        survive = np.exp(-0.8 * first)
        cov = np.exp(-0.8 * lag) * (15 * (1 - survive) + 7 * survive * (1 - survive))
        assert_moments(data, mean, cov)
        assert data.attrs["error_bound_kind"] == "estimated"

    def test_linear_birth_and_death(self):
        b, d, start = 1.1, 0.7, 5
        problem, theta = problem_of({"X": start}, {"b": b, "d": d}, ["X -> 2 X : b*X", "X -> : d*X"], "X", TIMES)
        data = exact_moments(problem, theta)
        growth = np.exp((b - d) * TIMES)
        variance = start * (b + d) / (b - d) * growth * (growth - 1)
        lag, _ = later(TIMES)
        cov = np.exp((b - d) * lag) * np.minimum.outer(variance, variance)
        assert_moments(data, start * growth, cov)
        extinct = exact_distribution(problem, theta)["probability"].sel(value=0).values[0]
        np.testing.assert_allclose(extinct, (d * (growth - 1) / (b * growth - d)) ** start, rtol=1e-8)

    def test_telegraph(self):
        on, off, make, decay = 0.5, 0.3, 20.0, 1.0
        problem, theta = problem_of(
            {"off": 1, "on": 0, "M": 0}, {"kon": on, "koff": off, "k": make, "g": decay},
            ["off -> on : kon*off", "on -> off : koff*on", "on -> on + M : k*on", "M -> : g*M"],
            ["M", "on"], TIMES,
        )  # fmt: skip
        mean, cov = linear_moments(
            np.array([1.0, 0.0, 0.0]),
            np.array([[-1, 1, 0], [1, -1, 0], [0, 0, 1], [0, 0, -1]]),
            np.array([[on, 0, 0], [0, off, 0], [0, make, 0], [0, 0, decay]]),
            TIMES,
        )
        pick = np.array([2, 1])[:, None] * len(TIMES) + np.arange(len(TIMES))
        pick = pick.ravel()
        assert_moments(exact_moments(problem, theta), mean[pick], cov[np.ix_(pick, pick)])

    def test_closed_monomolecular_network(self):
        rates = {"a": 0.9, "b": 0.4, "c": 0.7}
        problem, theta = problem_of(
            {"A": 30, "B": 4, "C": 0},
            rates,
            ["A -> B : a*A", "B -> C : b*B", "C -> A : c*C"],
            ["A", "B - 0.5*C"],
            TIMES,
        )  # fmt: skip
        mean, cov = linear_moments(
            np.array([30.0, 4.0, 0.0]),
            np.array([[-1, 1, 0], [0, -1, 1], [1, 0, -1]]),
            np.diag([0.9, 0.4, 0.7]),
            TIMES,
        )
        mix = np.kron(np.array([[1, 0, 0], [0, 1, -0.5]]), np.eye(len(TIMES)))
        data = exact_moments(problem, theta)
        assert_moments(data, mix @ mean, mix @ cov @ mix.T)
        assert data.attrs["error_bound_kind"] == "rigorous"

    def test_pure_death_is_binomial(self):
        problem, theta = problem_of({"X": 40}, {"g": 0.6}, ["X -> : g*X"], "X", TIMES)
        found = exact_distribution(problem, theta)
        p = np.exp(-0.6 * TIMES)[:, None]
        k = np.arange(41)
        binomial = np.array([comb(40, i) for i in k]) * p**k * (1 - p) ** (40 - k)
        np.testing.assert_allclose(found["probability"].values[0], binomial, atol=1e-10)
        np.testing.assert_allclose(found["absorbed"].values[0], (1 - p[:, 0]) ** 40, atol=1e-10)


def linear_moments(start, changes, rates, times):
    """Mean and two-time covariance of a network with rates `rates @ x`, from its closed moment equations."""
    from scipy.integrate import solve_ivp
    from scipy.linalg import expm

    n = len(start)
    drift = changes.T @ rates

    def slope(t, y):
        mean, cov = y[:n], y[n:].reshape(n, n)
        noise = changes.T @ np.diag(rates @ mean) @ changes
        return np.concatenate((drift @ mean, (drift @ cov + cov @ drift.T + noise).ravel()))

    y = solve_ivp(
        slope, (0, times[-1]), np.concatenate((start, np.zeros(n * n))), "DOP853", times, rtol=1e-13, atol=1e-13
    ).y
    means, covs = y[:n], y[n:].reshape(n, n, -1)
    cov = np.zeros((n, len(times), n, len(times)))
    for a, b in product(range(len(times)), repeat=2):
        if a <= b:
            cov[:, a, :, b] = covs[..., a] @ expm(drift * (times[b] - times[a])).T
            cov[:, b, :, a] = cov[:, a, :, b].T
    return means.ravel(), cov.reshape(means.size, means.size)


class TestDenseMasterEquation:
    """Nonlinear networks, every pair of times from the joint distribution."""

    def test_small_epidemic(self):
        problem, theta = problem_of(
            {"S": 14, "I": 2, "R": 0}, {"a": 0.7, "b": 0.15}, ["S + I -> 2 I : b*S*I", "I -> R : a*I"],
            ["I", "S + I", "R"], [0, *TIMES],
        )  # fmt: skip
        states = [(s, i, 16 - s - i) for s in range(15) for i in range(17 - s)]
        generator = dense_generator(states, [(-1, 1, 0), (0, -1, 1)], lambda x: (0.15 * x[0] * x[1], 0.7 * x[1]))
        x = np.array(states).T
        values = np.array([x[1], x[0] + x[1], x[2]], float)
        mean, cov = dense_moments(states, generator, states.index((14, 2, 0)), values, [0, *TIMES])
        data = exact_moments(problem, theta)
        assert_moments(data, mean, cov)
        assert data.attrs["error_bound_kind"] == "rigorous"
        assert np.all(data["cov"].values[0][0] == 0)

    def test_dimers_and_steps_of_two(self):
        problem, theta = problem_of(
            {"X": 21, "D": 0}, {"k": 0.05, "u": 0.4}, ["2 X -> D @ k", "D -> 2 X : u*D", "2 X -> : 0.01*X*(X-1)"],
            ["X", "D"], TIMES,
        )  # fmt: skip
        states = [(x, d) for d in range(11) for x in range(1, 22 - 2 * d, 2)]
        generator = dense_generator(
            states,
            [(-2, 1), (2, -1), (-2, 0)],
            lambda x: (0.05 * x[0] * (x[0] - 1), 0.4 * x[1], 0.01 * x[0] * (x[0] - 1)),
        )
        mean, cov = dense_moments(states, generator, states.index((21, 0)), np.array(states, float).T, TIMES)
        assert_moments(exact_moments(problem, theta), mean, cov)

    def test_bimodal_with_two_paths_to_one_state(self):
        problem, theta = problem_of(
            {"X": 3, "Y": 3}, {"a": 6.0, "d": 1.0},
            [
                "-> X : if(X < 25, a/(1 + (Y/2)^2), 0)", "X -> : d*X",
                "-> Y : if(Y < 25, a/(1 + (X/2)^2), 0)", "Y -> : 0.25*d*Y", "Y -> : 0.75*d*Y",
            ],
            ["X", "Y"], TIMES,
        )  # fmt: skip
        states = list(product(range(26), repeat=2))
        generator = dense_generator(
            states,
            [(1, 0), (-1, 0), (0, 1), (0, -1)],
            lambda x: (
                6 / (1 + (x[1] / 2) ** 2) * (x[0] < 25), x[0], 6 / (1 + (x[0] / 2) ** 2) * (x[1] < 25), x[1]
            ),
        )  # fmt: skip
        mean, cov = dense_moments(states, generator, states.index((3, 3)), np.array(states, float).T, TIMES)
        data = exact_moments(problem, theta)
        assert_moments(data, mean, cov)
        assert data.attrs["error_bound_kind"] == "rigorous"  # bounded by enumeration, not by conservation

    def test_four_dimensions(self):
        problem, theta = problem_of(
            {"A": 3, "B": 2, "C": 0, "D": 1}, {"k": 0.5},
            ["A -> B : k*A", "B -> A : 0.3*B", "A + C -> D : 0.2*A*C", "B -> C : 0.4*B", "D -> : 0.6*D"],
            ["A", "D"], TIMES,
        )  # fmt: skip
        changes = [(-1, 1, 0, 0), (1, -1, 0, 0), (-1, 0, -1, 1), (0, -1, 1, 0), (0, 0, 0, -1)]

        def rates(x):
            return 0.5 * x[0], 0.3 * x[1], 0.2 * x[0] * x[2], 0.4 * x[1], 0.6 * x[3]

        states = closure((3, 2, 0, 1), changes, rates)
        generator = dense_generator(states, changes, rates)
        x = np.array(states, float).T
        mean, cov = dense_moments(states, generator, states.index((3, 2, 0, 1)), x[[0, 3]], TIMES)
        assert_moments(exact_moments(problem, theta), mean, cov)

    def test_joint_distribution_sums_to_the_histograms(self):
        problem, theta = problem_of(
            {"S": 14, "I": 2}, {"a": 0.7, "b": 0.15}, ["S + I -> 2 I : b*S*I", "I -> : a*I"], ["I", "S"], TIMES
        )
        found = exact_distribution(problem, theta, joint=True)
        amount = found["amount"].sel(species="I").values
        for t, time in enumerate(TIMES):
            marginal = np.bincount(amount, found["joint"].values[0, t], minlength=len(found["value"]))
            row = (found["component"] == "I").values & (found["time"] == time).values
            np.testing.assert_allclose(marginal, found["probability"].values[0, row][0], atol=1e-15)
        absorbed = found["joint"].values[0, -1][amount == 0].sum()
        assert absorbed == pytest.approx(found["absorbed"].values[0, -1], abs=1e-15)


def shared_sir():
    root = Path(os.environ.get("CTMOMENTS_SHARED", Path(__file__).parents[3] / "shared"))
    path = root / "data" / "sir_exact_1000.npz"
    if not path.exists():
        pytest.skip(f"needs the table {path} (set CTMOMENTS_SHARED)")
    return np.load(path)


def check_sir(picked):
    table = shared_sir()
    data = exact_moments(load_problem("sir"), table["theta"][picked])
    mean, cov = table["mean"][picked], table["cov"][picked]
    mean_error = np.linalg.norm(data["mean"] - mean, axis=1)
    cov_error = np.linalg.norm(data["cov"] - cov, axis=(1, 2))
    cov_norm = np.linalg.norm(cov, axis=(1, 2))
    assert np.all(mean_error <= 1e-6 * np.linalg.norm(mean, axis=1))
    assert np.all(cov_error <= 1e-6 * cov_norm)
    assert data.attrs["error_bound_kind"] == "rigorous"
    assert np.all(cov_error <= data["cov_bound"].values + 1e-10 * cov_norm)  # the table has 10 digits
    assert np.all(data["cov_bound"].values <= 1e-6 * cov_norm)
    assert np.all(np.abs(data["mean"] - mean) <= data["mean_bound"] + 1e-10 * np.abs(mean).max(axis=1)[:, None])


class TestSir:
    def test_twelve_values_of_the_table(self):
        check_sir(np.arange(0, 1000, 84))

    @pytest.mark.slow
    def test_a_hundred_values_of_the_table(self):
        check_sir(np.arange(0, 1000, 10))


class TestGate:
    def problem(self):
        return problem_of({"X": 5}, {"g": 0.5}, ["X -> : g*X"], "X", TIMES)[0]

    def test_start_that_depends_on_theta_and_threads(self):
        model = Model({"X": "n"}, ["n", "g"], ["X -> : g*X"])
        problem = Problem(model, Space(n=Integer(1, 20), g=0.5), "X", [1.0])
        data = exact_moments(problem, [[3.0], [10.0]], threads=2)
        np.testing.assert_allclose(data["mean"].values[:, 0], np.array([3, 10]) * np.exp(-0.5), rtol=1e-9)
        assert data["replicates"].values.tolist() == [0, 0]
        assert not data["mean_se"].values.any() and not data["cov_se"].values.any()
        assert data.attrs["source"] == "exact" and data.attrs["tolerance"] == 1e-8 and data.attrs["seconds"] > 0

    def test_refusals(self):
        with pytest.raises(InputError, match="`device` must be \"cpu\", got 'cuda'"):
            exact_moments(self.problem(), 0.5, device="cuda")
        with pytest.raises(InputError, match=r"`tolerance` must lie between 1e-11 and 0\.01"):
            exact_moments(self.problem(), 0.5, tolerance=0)

    def test_too_large_is_refused_with_an_estimate(self):
        problem, theta = problem_of({"X": 0}, {"k": 100.0}, ["-> X : k"], "X", TIMES)
        with pytest.raises(SizeError, match=r"needs \d+ states at once, more than max_states = 150.*Raise"):
            exact_moments(problem, theta, max_states=150)
        with pytest.raises(SizeError, match=r"needs about \d+ states at once \(.* s a point\), more than .* = 9\."):
            exact_moments(problem, theta, max_states=9)

    def test_negative_rate_at_a_reachable_state(self):
        problem, theta = problem_of({"X": 0}, {"k": 2.0}, ["-> X : k*(5 - X)", "X -> 2 X : 0.1"], "X", TIMES)
        with pytest.raises(ModelError, match=r"not negative, got -2 for reaction .*k\*\(5 - X\).* state X = 6"):
            exact_moments(problem, theta)

    def test_rate_that_does_not_vanish_without_reactants(self):
        problem, theta = problem_of({"X": 2}, {"k": 2.0}, ["X -> : k"], "X", TIMES)
        with pytest.raises(ModelError, match=r"must vanish where its reaction lacks reactants, got 2 .* X = 0"):
            exact_moments(problem, theta)

    def test_wrong_rate_where_nothing_comes_is_no_error(self):
        problem, theta = problem_of({"X": 4}, {"k": 1.0}, ["2 X -> : k*X*sqrt((X-1)*(X-3) + 1)"], "X", TIMES)
        assert np.isfinite(exact_moments(problem, theta)["cov"].values).all()
