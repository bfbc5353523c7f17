"""A dense master equation for tests: every state of a small box, expm, no cleverness. Never optimised."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.linalg import expm

from ctmoments.model.expressions import evaluate


def dense_moments(problem, theta, limits):
    """Mean (output,) and covariance (output, output) at one parameter value; `limits` caps each species."""
    model = problem.model
    states = list(itertools.product(*(range(limit + 1) for limit in limits)))
    number = {state: k for k, state in enumerate(states)}
    values = dict(zip(model.parameters, problem.parameter_columns(np.array([theta]))[0], strict=True))
    generator = np.zeros((len(states), len(states)))  # [from, to]
    for state, k in number.items():
        here = values | dict(zip(model.species, map(float, state), strict=True))
        for rate, change in zip(model.rates, model.stoichiometry.T, strict=True):
            target = number.get(tuple(int(n) for n in np.add(state, change)))
            if target is not None:
                generator[k, target] += evaluate(rate, here)
                generator[k, k] -= evaluate(rate, here)
    p = np.zeros(len(states))
    p[number[tuple(problem.initial_states(np.array([theta]))[0])]] = 1.0
    watch = np.array([[c.scale * np.dot(c.weights, state) for state in states] for c in problem.components])
    times = np.array(problem.times)
    at = [p @ expm(generator * t) for t in times]
    mean = np.array([[w @ q for q in at] for w in watch])
    second = np.empty((len(watch), len(times), len(watch), len(times)))
    for i, s in enumerate(times):
        for j, t in enumerate(times[i:], i):
            later = expm(generator * (t - s)) @ watch.T  # E[y(t) | state at s]
            for a, b in itertools.product(range(len(watch)), repeat=2):
                second[b, j, a, i] = second[a, i, b, j] = at[i] @ (watch[a] * later[:, b])
    mean = mean.ravel()
    return mean, second.reshape(len(mean), -1) - np.outer(mean, mean)
