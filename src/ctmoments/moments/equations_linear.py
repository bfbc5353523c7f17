"""Networks with linear rates, whose moment equations close: exact moments without a master equation.

In: a problem whose rates are at most linear in the species that matter, and parameter values. Out: an exact moments
dataset. Mean and covariance obey one linear equation for (1, m, C), solved by the matrix exponential between outputs;
the block of the mean in that matrix is the flow, which gives the covariance between two times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from scipy.linalg import expm

from ctmoments.data import moments_dataset
from ctmoments.errors import ModelError, SizeError
from ctmoments.model.expressions import evaluate
from ctmoments.model.problem import Problem
from ctmoments.model.theta import as_theta
from ctmoments.moments.gaussian import flowing_links, full_matrices, output_moments
from ctmoments.moments.network import Network, observation_weights, observed_network, still_components
from ctmoments.moments.polynomials import as_polynomial, coefficients
from ctmoments.moments.system import pairs

MAX_SIZE = 700  # of (1, m, C), 36 species: its exponential takes half a second a point
CHUNK_NUMBERS = 1 << 23


def linear_moments(problem: Problem, theta: Any) -> xr.Dataset:
    """Exact mean and multi-time covariance where every rate is linear, so that the moment equations close.

    >>> from ctmoments.model.model import Model
    >>> from ctmoments.model.space import Space
    >>> birth_death = Model({"X": 0}, ["k", "d"], ["0 -> X : k", "X -> 0 : d*X"])
    >>> problem = Problem(birth_death, Space(k=(1, 20), d=(0.1, 2)), observe="X", times=[1, 1e3])
    >>> linear_moments(problem, [10, 0.5])["cov"].values[0].round(6).tolist()
    [[7.869387, 0.0], [0.0, 20.0]]
    """
    theta = as_theta(problem, theta)
    network = observed_network(problem)
    width = len(network.species)
    size = 1 + width + len(pairs(width))
    if size > MAX_SIZE:
        raise SizeError(
            f"linear_moments: {width} species need the exponential of a {size} x {size} matrix at each point, more "
            f"than {MAX_SIZE}. approximate_moments(tolerance=1e-12) gives the same moments: linear noise is exact here."
        )
    rates = _rates(problem, network, theta.values)
    states = problem.initial_states(theta)[:, network.places].astype(np.float64)
    chunk = max(1, CHUNK_NUMBERS // (size * size))
    parts = [slice(first, first + chunk) for first in range(0, len(states), chunk)]
    solved = [_solve(problem, network, rates[p], states[p]) for p in parts]
    mean, cov = (np.concatenate(arrays) for arrays in zip(*solved, strict=True))
    zeros = np.zeros_like(mean), np.zeros_like(cov)
    return moments_dataset(problem, theta, mean, cov, *zeros, source="exact", attrs={"method": "moment equations"})


def is_linear(problem: Problem) -> bool:
    """Whether `linear_moments` can solve the problem."""
    network = observed_network(problem)
    try:
        for rate in network.rates:
            if any(sum(powers) > 1 for powers, _ in as_polynomial(rate, network.species)):
                return False
    except ModelError:
        return False
    return True


def _rates(problem: Problem, network: Network, theta: np.ndarray) -> np.ndarray:
    """Each rate's constant and its slopes: (point, reaction, 1 + species)."""
    values = dict(zip(network.parameters, problem.parameter_columns(theta).T, strict=True))
    width = len(network.species)
    rates = np.zeros((len(theta), len(network.rates), 1 + width))
    for k, (rate, text) in enumerate(zip(network.rates, network.texts, strict=True)):
        for powers, coefficient in coefficients(as_polynomial(rate, network.species, f"reaction {text!r}")).items():
            if sum(powers) > 1:
                raise ModelError(
                    f"reaction {text!r}: moment equations close where rates are linear, and this one is of order "
                    f"{sum(powers)}. Use exact_moments, simulate_moments or approximate_moments."
                )
            rates[:, k, 1 + powers.index(1) if any(powers) else 0] = evaluate(coefficient, values)
    return rates


def _solve(problem: Problem, network: Network, rates: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    width = states.shape[1]
    generator = _generator(np.array(network.changes, np.float64).T, rates)
    gaps, which = np.unique(np.diff(problem.times, prepend=0.0), return_inverse=True)
    steps = [expm(generator * gap) for gap in gaps]
    state = np.concatenate([np.ones((len(states), 1)), states, np.zeros((len(states), len(pairs(width))))], axis=1)
    course = []
    for step in which:
        state = (steps[step] @ state[:, :, None])[:, :, 0]
        course.append(state.T)
    core = np.array(course)
    flow = np.array([np.moveaxis(steps[step][:, 1 : 1 + width, 1 : 1 + width], 0, -1) for step in which])
    covariance = full_matrices(core[:, 1 + width :], width)
    weights, still = observation_weights(problem, network), still_components(problem, network)
    return output_moments(core[:, 1 : 1 + width], flowing_links(covariance, flow, weights), weights, still)


def _generator(changes: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """The matrix of (1, m, C)' from changes (species, reaction) and rates (point, reaction, 1 + species)."""
    width = len(changes)
    place = {pair: 1 + width + k for k, pair in enumerate(pairs(width))}
    drift = changes @ rates  # (point, species, 1 + species)
    matrix = np.zeros((len(rates), 1 + width + len(place), 1 + width + len(place)))
    matrix[:, 1 : 1 + width, : 1 + width] = drift
    for (i, j), row in place.items():
        matrix[:, row, : 1 + width] = (changes[i] * changes[j]) @ rates
        for k in range(width):
            matrix[:, row, place[min(k, j), max(k, j)]] += drift[:, i, 1 + k]
            matrix[:, row, place[min(k, i), max(k, i)]] += drift[:, j, 1 + k]
    return matrix
