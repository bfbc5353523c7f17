"""Linear noise: exact for linear networks, as an independent integration has it, right for large systems."""

import itertools

import dense_master
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from ctmoments.errors import ModelError, SizeError, ThetaError
from ctmoments.model.library import list_problems, load_problem
from ctmoments.model.model import Model
from ctmoments.model.problem import Problem
from ctmoments.model.space import Space
from ctmoments.moments.drift import drift_paths
from ctmoments.moments.equations_linear import linear_moments
from ctmoments.moments.noise import approximate_moments


def middle(problem, points=1):
    unit = np.random.default_rng(3).uniform(0.2, 0.8, (points, len(problem.space.parameters)))
    return problem.space.from_unit(unit)


def corner_points(problem):
    p = len(problem.space.parameters)
    return problem.space.from_unit(np.array([[(k >> i) & 1 for i in range(p)] for k in range(2**p)], float))


@pytest.mark.parametrize("name", ["birth-death", "telegraph"])
def test_exact_for_linear_networks(name):
    problem = load_problem(name)
    theta = corner_points(problem)
    exact, lna = linear_moments(problem, theta), approximate_moments(problem, theta, tolerance=1e-11)
    for variable in ("mean", "cov"):
        scale = np.abs(exact[variable]).max()
        np.testing.assert_allclose(lna[variable], exact[variable], rtol=1e-8, atol=1e-8 * scale)


def reference_lna(rates, changes, start, weights, times):
    """Linear noise as one big vector for solve_ivp, the Jacobian by central differences, the flow from time 0."""
    n = len(start)

    def jacobian(x):
        h = 1e-5 * np.maximum(1, np.abs(x))
        return changes @ np.stack(
            [(rates(x + d) - rates(x - d)) / (2 * h[j]) for j, d in enumerate(np.diag(h))], axis=1
        )

    def slope(_, y):
        x, c, f = y[:n], y[n : n + n * n].reshape(n, n), y[n + n * n :].reshape(n, n)
        j = jacobian(x)
        d = changes @ np.diag(rates(x)) @ changes.T
        return np.concatenate([changes @ rates(x), (j @ c + c @ j.T + d).ravel(), (j @ f).ravel()])

    first = np.concatenate([start, np.zeros(n * n), np.eye(n).ravel()])
    y = solve_ivp(slope, (0, times[-1]), first, "LSODA", times, rtol=1e-9, atol=1e-9).y.T
    x, c, f = y[:, :n], y[:, n : n + n * n].reshape(-1, n, n), y[:, n + n * n :].reshape(-1, n, n)
    cov = np.empty((len(times), len(times)))
    for s in range(len(times)):
        for t in range(s, len(times)):
            cov[s, t] = cov[t, s] = weights @ f[t] @ np.linalg.solve(f[s], c[s]) @ weights
    return x @ weights, cov


def test_the_sir_against_an_independent_integration():
    problem = load_problem("sir")
    for alpha, beta in ((0.5, 0.002), (0.15, 0.0031)):
        lna = approximate_moments(problem, [alpha, beta])
        mean, cov = reference_lna(
            lambda x, a=alpha, b=beta: np.array([b * x[0] * x[1], a * x[1]]),
            np.array([[-1, 0], [1, -1]]), np.array([763.0, 3.0]), np.array([0.0, 1.0]), np.array(problem.times),
        )  # fmt: skip
        np.testing.assert_allclose(lna["mean"][0], mean, rtol=1e-4)
        np.testing.assert_allclose(lna["cov"][0], cov, rtol=1e-4, atol=1e-4 * cov.max())


def test_general_rates_with_min_and_powers_against_an_independent_integration():
    model = Model(
        {"X": "x0", "Y": 4}, ["k", "x0"],
        ["0 -> X : k*30^3/(30^3 + Y^3)", "X -> Y : min(X, 20)^1.5/4", "Y -> 0 : sqrt(Y)*Y/(1 + Y)"],
    )  # fmt: skip
    problem = Problem(model, Space(k=(5, 20), x0=(10, 50)), observe="X + 2*Y", times=[0.5, 1, 4, 9])
    k = 13.0
    lna = approximate_moments(problem, [k, 40])
    mean, cov = reference_lna(
        lambda x: np.array(
            [k * 30**3 / (30**3 + x[1] ** 3), min(x[0], 20) ** 1.5 / 4, np.sqrt(x[1]) * x[1] / (1 + x[1])]
        ),
        np.array([[1, -1, 0], [0, 1, -1]]), np.array([40.0, 4.0]), np.array([1.0, 2.0]), np.array(problem.times),
    )  # fmt: skip
    np.testing.assert_allclose(lna["mean"][0], mean, rtol=1e-4)
    np.testing.assert_allclose(lna["cov"][0], cov, rtol=1e-3, atol=1e-3 * cov.max())


def test_the_error_falls_as_the_system_grows():
    """Dimerisation against a dense master equation: both relative errors fall like 1/size."""
    errors = []
    for size in (10, 40):
        model = Model({"X": size}, ["k"], [f"2 X -> 0 : k*X*(X - 1)/{size}", f"0 -> X : k*{size}/4"])
        problem = Problem(model, Space(k=(0.1, 1)), observe="X", times=[0.5, 1, 2])
        mean, cov = dense_master.dense_moments(problem, [0.6], [3 * size if size < 20 else 80])
        lna = approximate_moments(problem, [0.6])
        errors.append(
            [np.abs(lna["mean"][0] / mean - 1).max(), np.linalg.norm(lna["cov"][0] - cov) / np.linalg.norm(cov)]
        )
    coarse, fine = np.array(errors)
    assert (fine < coarse / 2.5).all()
    assert fine[0] < 0.02
    assert fine[1] < 0.05


def test_the_sir_against_exact_moments(shared_data):
    """Three first infections are few: early chance spreads the epidemic's start, which linear noise does not see."""
    exact = np.load(shared_data / "sir_exact_1000.npz")
    lna = approximate_moments(load_problem("sir"), exact["theta"])
    assert not lna["unphysical"].any()
    mean_error = np.linalg.norm(lna["mean"] - exact["mean"], axis=1) / np.linalg.norm(exact["mean"], axis=1)
    cov_error = np.linalg.norm(lna["cov"] - exact["cov"], axis=(1, 2)) / np.linalg.norm(exact["cov"], axis=(1, 2))
    assert np.median(mean_error) < 0.12  # measured 0.112
    assert np.median(cov_error) < 0.60  # measured 0.591
    first = np.abs(lna["mean"][:, 0] / exact["mean"][:, 0] - 1)
    assert first.max() < 0.03  # at t = 1 it holds within 3 %


@pytest.mark.parametrize("name", [name for name in list_problems() if name != "vilar-oscillator"])
def test_every_library_problem(name):
    problem = load_problem(name)
    data = approximate_moments(problem, corner_points(problem)[:16], tolerance=1e-4)
    assert np.isfinite(data["mean"]).all()
    assert np.isfinite(data["cov"]).all()
    assert not data["unphysical"].any()
    np.testing.assert_array_equal(data["cov"], data["cov"].transpose("point", "output_", "output"))


@pytest.mark.slow
def test_the_stiff_oscillator():
    problem = load_problem("vilar-oscillator")
    theta = middle(problem)
    fine, coarse = (approximate_moments(problem, theta, tolerance=t) for t in (1e-6, 1e-4))
    np.testing.assert_allclose(coarse["mean"], fine["mean"], rtol=1e-2, atol=1)
    assert np.isfinite(fine["cov"]).all()


def test_the_dataset_says_what_it_is():
    problem = load_problem("sir")
    data = approximate_moments(problem, middle(problem, 3))
    assert data.attrs["source"] == "lna"
    assert np.isnan(data["mean_se"]).all()
    assert np.isnan(data["cov_se"]).all()
    assert not data["replicates"].any()
    assert data["unphysical"].dtype == bool


def test_initial_amounts_may_be_parameters():
    problem = load_problem("sir-initial")
    theta = middle(problem, 4)
    data = approximate_moments(problem, theta)
    alone = approximate_moments(problem, theta[2:3])
    np.testing.assert_allclose(data["mean"][2], alone["mean"][0], rtol=1e-5)


@pytest.mark.parametrize(
    ("rate", "named"),
    [
        ("if(X > 3, k, 0)*X", r"'X > 3' \(a comparison\)"),
        ("k*floor(X/2)", r"'floor\(X/2\)' \(floor\)"),
        ("k*X*(X >= 2 and k > 0)", r"'X >= 2 and k > 0' \(logic\)"),
        ("if(X, k, 2*k)", r"'X' \(if\)"),
    ],
)
def test_jumps_are_refused_by_name(rate, named):
    problem = Problem(Model({"X": 9}, ["k"], [f"X -> 0 : {rate}"]), Space(k=(1, 2)), observe="X", times=[1])
    with pytest.raises(ModelError, match=rf"reaction .*linear noise.*{named} depends on a species"):
        approximate_moments(problem, [1.5])


def test_conditions_on_parameters_alone_are_fine():
    problem = Problem(Model({"X": 9}, ["k"], ["X -> 0 : if(k > 1.2, k, 1)*X"]), Space(k=(1, 2)), observe="X", times=[1])
    data = approximate_moments(problem, [1.1, 1.5])
    np.testing.assert_allclose(data["mean"][:, 0], 9 * np.exp([-1.0, -1.5]), rtol=1e-5)


def test_a_blow_up_is_marked_and_warned_about():
    problem = Problem(Model({"X": 5}, ["k"], ["X -> 2 X : k*X^2"]), Space(k=(0.01, 1)), observe="X", times=[1, 3])
    with pytest.warns(UserWarning, match="lna: 1 of 2 points .* the first at point 1"):
        data = approximate_moments(problem, [0.01, 1.0])
    assert data["unphysical"].values.tolist() == [False, True]
    assert data.attrs["unphysical_points"] == 1


@pytest.mark.parametrize(
    ("kwargs", "match"), [({"method": "lma"}, "got 'lma'. Did you mean 'lna'"), ({"tolerance": 0.0}, "1e-12")]
)
def test_bad_settings(kwargs, match):
    with pytest.raises(ModelError, match=match):
        approximate_moments(load_problem("sir"), [0.5, 0.002], **kwargs)


def test_drift_paths_continue_themselves():
    problem, theta = load_problem("seir"), middle(load_problem("seir"), 2)
    start = problem.initial_states(theta)
    whole = drift_paths(problem, theta, start, np.array([2.0, 5.0]))
    later = drift_paths(problem, theta, whole[:, 0], np.array([[0.0, 3.0], [3.0, 3.0]]))
    np.testing.assert_allclose(later[:, 1], whole[:, 1], rtol=1e-5)
    np.testing.assert_array_equal(later[0, 0], whole[0, 0])
    many = drift_paths(problem, theta[0], np.repeat(whole[:1, 0], 5, axis=0), np.array([3.0]))
    np.testing.assert_allclose(many[:, 0], np.repeat(whole[:1, 1], 5, axis=0), rtol=1e-5)


@pytest.mark.parametrize(
    ("states", "durations", "match"),
    [([[1.0, 2.0]], [1.0], r"\(point, 3\)"), ([[1.0, 2.0, 0.0]], [2.0, 1.0], "not decreasing")],
)
def test_drift_paths_refuse_what_does_not_fit(states, durations, match):
    with pytest.raises(ThetaError, match=match):
        drift_paths(load_problem("sir"), [0.5, 0.002], states, durations)


def test_a_total_that_no_reaction_changes_has_no_variance():
    problem = load_problem("sir")
    problem = Problem(problem.model, problem.space, observe=["S + I + R", "I", "S + I"], times=[0, 2, 5])
    data = approximate_moments(problem, middle(problem, 2))
    np.testing.assert_allclose(data["mean"][:, :3], 766, rtol=1e-6)
    cov = data["cov"].values
    assert not cov[:, :3].any()
    assert not cov[:, :, :3].any()
    assert (np.einsum("pii->pi", cov)[:, [4, 5, 7, 8]] > 0).all()
    assert not cov[:, 3].any()  # the initial state
    assert not data["unphysical"].any()


def test_progress_counts_outputs(capsys):
    approximate_moments(load_problem("sir"), middle(load_problem("sir")), progress=True)
    assert capsys.readouterr().err == ""  # quicker than the patience of the bar


def test_stiff_linear_networks_agree_with_the_matrix_exponential():
    """Fast exchange, slow decay: each point changes method where its own stiffness asks for it."""
    model = Model(
        {"A": 40, "B": 5, "G": 1},
        ["fast", "slow"],
        [
            "A -> B : fast*A",
            "B -> A : 2*fast*B",
            "B -> 0 : slow*B",
            "G -> G + A : 7*G",
            "0 -> G : 1",
            "G -> 0 : slow*G",
        ],
    )
    problem = Problem(model, Space(fast=(1, 1e6), slow=(0.1, 2)), observe=["A", "A + B"], times=[0.01, 1, 5, 20])
    theta = [[1.0, 0.5], [300.0, 0.2], [1e4, 1.0], [1e6, 0.7]]
    exact, lna = linear_moments(problem, theta), approximate_moments(problem, theta, tolerance=1e-7)
    np.testing.assert_allclose(lna["mean"], exact["mean"], rtol=1e-6)
    np.testing.assert_allclose(lna["cov"], exact["cov"], rtol=1e-5, atol=1e-5)


def test_a_network_too_large_is_refused_with_what_it_would_take():
    names = [f"X{i}" for i in range(101)]
    chain = [f"{a} -> {b} : k*{a}" for a, b in itertools.pairwise(names)]
    problem = Problem(Model(dict.fromkeys(names, 1), ["k"], chain), Space(k=(1, 2)), observe="X100", times=[1])
    with pytest.raises(SizeError, match="covariance of 101 species has 5151 entries; at most 100"):
        approximate_moments(problem, [1.5])
    early = Problem(problem.model, problem.space, observe="X20", times=[1])
    assert np.isfinite(approximate_moments(early, [1.5])["cov"]).all()
