"""Steps have the order they claim, and both methods, every pace and every grouping of points agree."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from ctmoments.model.expressions import Name, parse_expression
from ctmoments.model.library import load_problem
from ctmoments.moments import ode, steps
from ctmoments.moments.network import observed_network
from ctmoments.moments.noise import linear_noise_system
from ctmoments.moments.ode import integrate
from ctmoments.moments.steps import bind_explicit, bind_implicit
from ctmoments.moments.system import System, nonzero_derivatives


def pendulum():
    """A nonlinear core with the flow of its own Jacobian."""
    equations = (Name("v"), parse_expression("-k*x - x^3/10 - v*x/5"))
    return System(("x", "v"), ("k",), equations, 2, nonzero_derivatives(equations, ("x", "v")))


@pytest.mark.parametrize(("bind", "order"), [(bind_explicit, 8), (bind_implicit, 5)])
def test_order_of_a_step(bind, order):
    system, parameters = pendulum(), np.array([[1.3]])
    start = np.array([[1.0], [0.5], [1.0], [0.0], [0.0], [1.0]])
    attempt = bind(system, 1)

    def after(steps):
        state = start
        for _ in range(steps):
            state = attempt(state, parameters, np.array([2.0 / steps]), 1e-8).state
        return state

    truth = integrate(system, start[:2], parameters, np.array([2.0]), 1e-12)
    truth = np.concatenate([truth.core[0], truth.flow[0].reshape(4, 1)])
    coarse, fine = (np.abs(after(steps) - truth).max() for steps in (8, 16))
    assert order - 0.6 < np.log2(coarse / fine) < order + 1.2


def test_flow_is_the_derivative_of_the_solution_in_its_start():
    system, eps = pendulum(), 1e-6
    starts = np.array([[1.0, 1.0 + eps, 1.0], [0.5, 0.5, 0.5 + eps]])
    course = integrate(system, starts, np.full((1, 3), 1.3), np.array([1.5, 4.0]), 1e-11)
    moved = (course.core[:, :, 1:] - course.core[:, :, :1]) / eps
    np.testing.assert_allclose(course.flow[0, :, :, 0], moved[0], atol=1e-5)
    np.testing.assert_allclose(course.flow[1, :, :, 0] @ course.flow[0, :, :, 0], moved[1], atol=1e-5)


def test_both_methods_agree_on_the_sir(monkeypatch):
    system = linear_noise_system(observed_network(load_problem("sir")))
    start = np.zeros((5, 2))
    start[:2] = [[763.0], [3.0]]
    parameters, times = np.array([[0.2, 0.8], [0.003, 0.0015]]), np.arange(0.0, 14.0)
    explicit = integrate(system, start, parameters, times, 1e-9)
    monkeypatch.setattr(ode, "MAX_EXPLICIT_STEPS", 1)
    implicit = integrate(system, start, parameters, times, 1e-9)
    for a, b in ((explicit.core, implicit.core), (explicit.flow, implicit.flow)):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
    assert (implicit.core != explicit.core).any()


def test_a_stiff_system_is_handed_over(monkeypatch):
    """Robertson's reactions, rates 4e-2 to 3e7: an explicit method would need 1e6 steps."""
    texts = ("-0.04*a + s*b*c", "0.04*a - s*b*c - 3e7*b^2", "3e7*b^2")
    equations = tuple(map(parse_expression, texts))
    system = System(("a", "b", "c"), ("s",), equations, 3, nonzero_derivatives(equations, ("a", "b", "c")))
    handed = []
    implicit = ode.bind_implicit
    monkeypatch.setattr(ode, "bind_implicit", lambda system, n: handed.append(n) or implicit(system, n))
    start, scales, times = np.array([[1.0], [0.0], [0.0]]), [1e4, 1e3, 0.0], np.array([0.4, 40.0, 400.0])
    course = integrate(system, np.tile(start, 3), np.array([scales]), times, 1e-9)
    assert max(handed) >= 2
    for k, s in enumerate(scales):
        reference = solve_ivp(
            lambda t, y, s=s: [
                -0.04 * y[0] + s * y[1] * y[2],
                0.04 * y[0] - s * y[1] * y[2] - 3e7 * y[1] ** 2,
                3e7 * y[1] ** 2,
            ],
            (0, 400), [1.0, 0.0, 0.0], "Radau", times, rtol=1e-10, atol=1e-14,
        )  # fmt: skip
        np.testing.assert_allclose(course.core[:, :, k], reference.y.T, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(course.flow.sum(axis=1), 1.0, atol=1e-7)  # a + b + c is conserved


def test_blow_up_is_nan_from_there_on_and_leaves_the_others_alone():
    system = System(("x",), ("k",), (parse_expression("k*x^2"),))
    course = integrate(system, np.array([[1.0, 1.0]]), np.array([[1.0, -1.0]]), np.array([0.5, 2.0]), 1e-9)
    np.testing.assert_allclose(course.core[:, 0], [[2.0, 1 / 1.5], [np.nan, 1 / 3]], rtol=1e-8)


def test_points_do_not_depend_on_their_company(monkeypatch):
    system = pendulum()
    starts = np.random.default_rng(1).uniform(-1, 1, (2, 150))
    parameters, times = np.linspace(0.1, 40, 150)[None], np.array([1.0, 1.0, 3.0])
    together = integrate(system, starts, parameters, times, 1e-8)
    monkeypatch.setattr(ode, "CHUNK_NUMBERS", 1)
    apart = integrate(system, starts, parameters, times, 1e-8)
    np.testing.assert_allclose(apart.core, together.core, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(together.core[0], together.core[1])


def test_each_point_may_have_its_own_times():
    system = System(("x",), ("k",), (parse_expression("-k*x"),))
    times = np.array([[0.0, 1.0], [2.0, 1.0], [2.0, 5.0]])
    course = integrate(system, np.ones((1, 2)), np.array([[1.0, 2.0]]), times, 1e-10)
    np.testing.assert_allclose(course.core[:, 0], np.exp(-times * [1.0, 2.0]), rtol=1e-8)


def test_progress_ends_at_all_outputs(monkeypatch):
    seen = []
    monkeypatch.setattr(ode, "CHUNK_NUMBERS", 1)
    integrate(pendulum(), np.ones((2, 100)), np.ones((1, 100)), np.array([1.0, 2.0, 3.0]), 1e-6, seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 300


def test_a_singular_matrix_spoils_only_its_own_point():
    """1/(h gamma) on an eigenvalue of the Jacobian: that step is rejected, the next one is not singular."""
    system = System(("x",), ("k",), (parse_expression("k*x"),))
    h = 0.5
    k = 1 / (h * steps.GAMMA)
    trial = bind_implicit(system, 2)(np.ones((1, 2)), np.array([[k, -1.0]]), np.full(2, h), 1e-6)
    assert np.isnan(trial.error[0])
    assert np.isfinite(trial.error[1])
