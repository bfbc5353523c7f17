"""Small problems with known answers, and a dense master equation by brute force."""

import numpy as np
from scipy.linalg import expm

from ctmoments.model.model import Model
from ctmoments.model.problem import Problem
from ctmoments.model.space import Space


def problem_of(species, rates, reactions, observe, times):
    """A problem with fixed boxes around the given rates, and theta in their order."""
    space = Space(**{name: (0.5 * value, 2 * value) for name, value in rates.items()})
    return Problem(Model(species, list(rates), reactions), space, observe, times), list(rates.values())


def dense_moments(states, generator, start, values, times):
    """Mean and covariance over (component, time) from the joint distribution of every pair of times.

    `generator[x, y]` is the rate from x to y, `values` (components, states).
    """
    count, steps = len(values), len(times)
    initial = np.zeros(len(states))
    initial[start] = 1.0
    at = [initial @ expm(generator * t) for t in times]
    mean = np.array([values @ p for p in at]).T
    cov = np.zeros((count, steps, count, steps))
    for a in range(steps):
        for b in range(a, steps):
            joint = at[a][:, None] * expm(generator * (times[b] - times[a]))
            pair = values @ joint @ values.T - np.outer(mean[:, a], mean[:, b])
            cov[:, a, :, b], cov[:, b, :, a] = pair, pair.T
    outputs = count * steps
    return mean.ravel(), cov.reshape(outputs, outputs)


def dense_generator(states, changes, rates):
    """The generator over listed states (n, species); rates(state) gives one number a reaction."""
    index = {tuple(state): i for i, state in enumerate(states)}
    generator = np.zeros((len(states), len(states)))
    for i, state in enumerate(states):
        for change, rate in zip(changes, rates(state), strict=True):
            if rate:
                generator[i, index[tuple(np.add(state, change))]] += rate
                generator[i, i] -= rate
    return generator


def closure(start, changes, rates):
    """All states that can be reached, by a plain search."""
    found, todo = {start}, [start]
    while todo:
        state = todo.pop()
        for change, rate in zip(changes, rates(state), strict=True):
            there = tuple(a + b for a, b in zip(state, change, strict=True))
            if rate and there not in found:
                found.add(there)
                todo.append(there)
    return sorted(found)
