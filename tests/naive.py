"""References that share nothing with the kernels but the expression tree: a naive Gillespie, a dense master equation.

Random numbers, waiting times, selection, clock and the values of rates are NumPy's. Never optimised, beyond advancing
all paths by one event at a time.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.linalg import expm

from ctmoments.model.expressions import evaluate, parse_expression


def _values(problem, point) -> dict[str, float]:
    model = problem.model
    return dict(zip(model.parameters, problem.parameter_columns(np.array([point]))[0], strict=True))


def _observed(problem, states: np.ndarray) -> np.ndarray:
    """(component, state): each observed text, evaluated on states (n, species)."""
    values = dict(zip(problem.model.species, states.T.astype(float), strict=True))
    return np.array([evaluate(parse_expression(text), values) for text in problem.observe])


def naive_paths(problem, point, replicates: int, seed: int) -> np.ndarray:
    """Outputs of paths at one parameter value: (replicates, outputs)."""
    rng = np.random.default_rng(seed)
    model, times, values = problem.model, np.array(problem.times), _values(problem, point)
    outputs = np.full((replicates, len(problem.observe), len(times)), np.nan)
    path = np.arange(replicates)
    states = np.repeat(problem.initial_states(np.array([point])), replicates, axis=0)
    clock = np.zeros(replicates)
    while path.size:
        here = values | dict(zip(model.species, states.T.astype(float), strict=True))
        rates = np.array([np.broadcast_to(evaluate(rate, here), path.size) for rate in model.rates])
        total = rates.sum(axis=0)
        with np.errstate(divide="ignore"):
            clock_after = clock + rng.exponential(size=path.size) / total
        observed = _observed(problem, states)
        for j, time in enumerate(times):
            due = (time <= clock_after) & np.isnan(outputs[path, 0, j])
            outputs[path[due], :, j] = observed[:, due].T
        goes_on = clock_after < times[-1]
        path, states, clock = path[goes_on], states[goes_on], clock_after[goes_on]
        threshold = rng.random(size=goes_on.size) * total
        chosen = (np.cumsum(rates, axis=0) <= threshold).sum(axis=0)[goes_on]
        states = states + model.stoichiometry.T[chosen]
    return outputs.reshape(replicates, -1)


def reachable(problem, point, caps: dict[str, int]) -> np.ndarray:
    """The states that can be reached at amounts up to `caps`: (n, species), the start first."""
    model, values = problem.model, _values(problem, point)
    highest = [caps.get(name, np.inf) for name in model.species]
    start = tuple(problem.initial_states(np.array([point]))[0].tolist())
    states, todo = {start: 0}, [start]
    while todo:
        state = todo.pop()
        here = values | dict(zip(model.species, map(float, state), strict=True))
        for rate, change in zip(model.rates, model.stoichiometry.T, strict=True):
            target = tuple((np.array(state) + change).tolist())
            inside = all(0 <= x <= cap for x, cap in zip(target, highest, strict=True))
            if target not in states and inside and evaluate(rate, here) > 0:
                states[target] = len(states)
                todo.append(target)
    return np.array(list(states))


def master_moments(problem, point, caps: dict[str, int] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mean (outputs,) and covariance (outputs, outputs), two-time ones included, of the chain held below `caps`."""
    states = reachable(problem, point, caps or {})
    number = {tuple(state): k for k, state in enumerate(states.tolist())}
    values = _values(problem, point) | dict(zip(problem.model.species, states.T.astype(float), strict=True))
    generator = np.zeros((len(states), len(states)))  # [from, to]
    for rate, change in zip(problem.model.rates, problem.model.stoichiometry.T, strict=True):
        rates = np.broadcast_to(evaluate(rate, values), len(states))
        for k, state in enumerate(states):
            target = number.get(tuple((state + change).tolist()))
            if target is not None:
                generator[k, target] += rates[k]
                generator[k, k] -= rates[k]
    watched, count = _observed(problem, states), len(problem.times)
    steps = {gap: expm(generator * gap) for gap in set(np.diff([0.0, *problem.times]).round(12))}
    gaps = np.diff([0.0, *problem.times]).round(12)
    law, laws = np.eye(len(states))[0], []
    for gap in gaps:
        law = law @ steps[gap]
        laws.append(law)
    mean = np.array([[row @ law for law in laws] for row in watched])
    second = np.empty((len(watched), count, len(watched), count))
    for j in range(count):
        later = watched.T  # E[watched at time j | state at time i], i going back from j
        for i in range(j, -1, -1):
            for a, b in product(range(len(watched)), repeat=2):
                second[a, i, b, j] = second[b, j, a, i] = laws[i] @ (watched[a] * later[:, b])
            later = steps[gaps[i]] @ later
    mean = mean.ravel()
    return mean, second.reshape(mean.size, mean.size) - np.outer(mean, mean)
