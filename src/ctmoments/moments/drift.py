"""Deterministic paths: where the drift leads from any state.

In: a problem, parameter values and states, one for each path. Out: amounts at later times. The first feature of a
learner, and the continuation by which a control variate asks what a path in some state is heading for.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ctmoments.errors import ThetaError
from ctmoments.model.problem import Problem
from ctmoments.model.theta import as_theta
from ctmoments.moments.network import Network, network_of, require_smooth
from ctmoments.moments.ode import integrate
from ctmoments.moments.system import System, drift


def drift_paths(
    problem: Problem, theta: Any, states: np.ndarray, durations: np.ndarray, *, tolerance: float = 1e-6
) -> np.ndarray:
    """Solutions of dx/dt = S a(x): amounts (point, time, species), NaN from where a path blows up.

    `states` (point, species) and the rows of `theta` belong together; one row of `theta` serves all states.
    `durations`, (time,) or (point, time), count from the state, are at least 0 and do not decrease.

    >>> from ctmoments.model.library import load_problem
    >>> drift_paths(load_problem("sir"), [0.5, 0.002], [[763, 3, 0], [700, 60, 6]], [0.0, 5.0]).round().tolist()
    [[[763.0, 3.0, 0.0], [416.0, 199.0, 152.0]], [[700.0, 60.0, 6.0], [103.0, 178.0, 485.0]]]
    """
    theta = as_theta(problem, theta)
    states = np.atleast_2d(np.asarray(states, np.float64))
    columns = problem.parameter_columns(theta.values)
    species = len(problem.model.species)
    if states.shape[1:] != (species,) or len(columns) not in (1, len(states)):
        raise ThetaError(
            f"`states` must be (point, {species}) with a row for each of {len(columns)} points, got {states.shape}."
        )
    durations = np.asarray(durations, np.float64)
    wrong = durations.ndim not in (1, 2) or (durations.ndim == 2 and len(durations) != len(states))
    if wrong or not (np.isfinite(durations).all() and (np.diff(durations, axis=-1, prepend=0.0) >= 0).all()):
        raise ThetaError(
            f"`durations` must be (time,) or ({len(states)}, time), finite, at least 0 and not decreasing."
        )
    columns = np.broadcast_to(columns, (len(states), columns.shape[1]))
    course = integrate(_drift_system(_whole_network(problem)), states.T, columns.T, durations.T, tolerance)
    return course.core.transpose(2, 0, 1)


def _whole_network(problem: Problem) -> Network:
    return network_of(problem.model, frozenset(problem.model.species))


@lru_cache(maxsize=32)
def _drift_system(network: Network) -> System:
    require_smooth(network, "the drift")
    return System(network.species, network.parameters, tuple(drift(network, network.rates)))
