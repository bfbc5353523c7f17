"""Exact distributions at the output times: histograms for pictures and tests, extinction and absorption.

In: a `Problem`, parameter values. Out: a Dataset with the probability of each value of each output, the probability
that the chain is absorbed, and if asked the joint distribution over states.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from ctmoments.data import dataset_attrs, output_coords, variable
from ctmoments.model.problem import Problem
from ctmoments.moments.exact import MAX_STATES, Job, chain_of, over_points, prepare
from ctmoments.moments.exact_sweep import Vector, state_rates

FAINTEST = 1e-30  # values and states that are nowhere likelier are left out


@dataclass(frozen=True)
class PointDistribution:
    """Distributions at one parameter value, by component and time."""

    histograms: list[list[tuple[np.ndarray, np.ndarray]]]  # values ascending, probabilities
    absorbed: np.ndarray  # (times,)
    joint: list[tuple[np.ndarray, np.ndarray]]  # states (n, species), probabilities
    lost: float
    states: int


def exact_distribution(
    problem: Problem,
    theta: Any,
    *,
    tolerance: float = 1e-8,
    joint: bool = False,
    device: str = "cpu",
    max_states: int = MAX_STATES,
    threads: int | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Solve the master equation for the distribution of each output at each parameter value.

    The Dataset holds `probability(point, output, value)`, `absorbed(point, output)`: the probability that no reaction
    can fire any more at the output's time, `lost_mass` and `states`; with `joint` also `joint(point, instant, state)`
    and `amount(state, species)`. The probability that a component is extinct is that of its value 0.

    >>> from ctmoments.model.model import Model
    >>> from ctmoments.model.space import Space
    >>> model = Model({"X": 2}, ["g"], ["X -> 0 : g*X"])
    >>> found = exact_distribution(Problem(model, Space(g=(0.1, 1)), "X", [1, 2]), 0.5)
    >>> found["probability"].values[0].round(4).tolist(), found["absorbed"].values[0].round(4).tolist()
    ([[0.1548, 0.4773, 0.3679], [0.3996, 0.4651, 0.1353]], [0.1548, 0.3996])
    """
    job = prepare(problem, theta, tolerance, device, max_states)
    begin = time.perf_counter()

    def solve(point: int, report: Callable[[float], None]) -> PointDistribution:
        return _solve(job, point, joint, report)

    solved = over_points(job, solve, threads, progress, "exact distribution")
    value, probability = _stack_histograms([s.histograms for s in solved])
    absorbed = np.array([np.tile(s.absorbed, len(job.weights)) for s in solved])
    variables = {
        "theta": variable("theta", job.theta.values),
        "probability": variable("probability", probability),
        "absorbed": variable("absorbed", absorbed),
        "lost_mass": variable("lost_mass", [s.lost for s in solved]),
        "states": variable("states", [s.states for s in solved]),
    }
    coords: dict[str, Any] = {name: job.theta[name].values for name in ("point", "parameter")} | {"value": value}
    if joint:
        amount, probabilities = _stack_joint([s.joint for s in solved])
        variables |= {"joint": variable("joint", probabilities), "amount": variable("amount", amount)}
        coords |= {"instant": job.times, "species": list(problem.model.species)}
    attrs = dataset_attrs(problem, "exact", {"seconds": time.perf_counter() - begin, "tolerance": tolerance})
    return xr.Dataset(variables, coords | output_coords(problem, "output"), attrs)


def _solve(job: Job, point: int, joint: bool, report: Callable[[float], None]) -> PointDistribution:
    horizon = max(job.times[-1], 1e-300)
    passage = job.passage(point, job.budget, lambda used: report(used / horizon))
    chain = chain_of(job.problem, job.columns[point], job.starts[point])
    histograms: list[list] = [[] for _ in job.weights]
    absorbed, joints = [], []
    for there in passage.distributions:
        states, probability = _held(there)
        for histogram, weights, scale in zip(histograms, job.weights, job.scales, strict=True):
            whole, index = np.unique(weights @ states, return_inverse=True)
            histogram.append((scale * whole, np.bincount(index.ravel(), probability)))
        still = state_rates(chain, there.window)[there.values[there.window.positions] > FAINTEST] == 0
        absorbed.append(probability[still].sum())
        if joint:
            joints.append((states.T, probability))
    return PointDistribution(histograms, np.array(absorbed), joints, passage.lost, passage.states)


def _held(there: Vector) -> tuple[np.ndarray, np.ndarray]:
    """Return the states with probability, and the probability."""
    probability = there.values[there.window.positions]
    kept = probability > FAINTEST
    return there.window.states[:, kept], probability[kept]


def _stack_histograms(found: list[list[list[tuple[np.ndarray, np.ndarray]]]]) -> tuple[np.ndarray, np.ndarray]:
    """Put all histograms on one axis of values: (value,), (point, output, value)."""
    rows = [[pair for component in point for pair in component] for point in found]
    value = np.unique(np.concatenate([values for row in rows for values, _ in row]))
    probability = np.zeros((len(rows), len(rows[0]), len(value)))
    for p, row in enumerate(rows):
        for k, (values, chances) in enumerate(row):
            probability[p, k, np.searchsorted(value, values)] = chances
    return value, probability


def _stack_joint(found: list[list[tuple[np.ndarray, np.ndarray]]]) -> tuple[np.ndarray, np.ndarray]:
    """Put all joint distributions on one list of states: (state, species), (point, instant, state)."""
    pieces = [states for point in found for states, _ in point]
    amount, index = np.unique(np.concatenate(pieces), axis=0, return_inverse=True)
    places = iter(np.split(index.ravel(), np.cumsum([len(piece) for piece in pieces])[:-1]))
    probability = np.zeros((len(found), len(found[0]), len(amount)))
    for p, point in enumerate(found):
        for t, (_, chances) in enumerate(point):
            probability[p, t, next(places)] = chances
    return amount, probability
