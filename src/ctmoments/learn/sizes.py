"""Smooth positive sizes over the box: what targets are divided by before they are regressed.

In: positive numbers at points. Out: an evaluator exp(Σ c T) whose values follow their mean.

`fit_size` is crude and always works: a gamma regression with logarithmic link (the mean is fitted, not the median, and
noise of any distribution averages out). `choose_size` is for targets: a first, crude size makes a regression possible,
which knows far more than single rows do; sizes that follow it more and more closely compete. A size that is too plain
leaves structure to the regression (seir: mean error 14 % with a constant, 2.6 with 250 terms), one that is too free
adds its own wiggles (toggle-switch 1.3 and 1.5 %); each half of the rows says which one predicts it best.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ctmoments.learn.frame import TEMPER, places, tabulate
from ctmoments.learn.indexset import euclidean_order, index_set
from ctmoments.learn.regress import equations_of, find_stretch, solve
from ctmoments.predict.chebyshev import Chebyshev, basis
from ctmoments.predict.combine import Exponential

MOST = 40_000  # points used
RIDGE = 1e-2  # of an observation for each squared order: keeps empty corners quiet
COUNTS = (1, 10, 21, 45, 120, 250)  # terms of the logarithm of the sizes that compete
FIRST_TERMS = 10  # of the crude size, for each parameter beyond the first
ROWS_FOR_A_TERM = 15
LOWEST = 0.1  # of the crude size, squared: what is regressed below is told as this
ALIKE = 1e-3  # losses this close say nothing: the plainer size is taken
HALVES = ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2)))

Targets = Callable[[Exponential, slice], np.ndarray]


def fit_size(unit: np.ndarray, values: np.ndarray, weights: np.ndarray, power: float, terms: int = 30) -> Exponential:
    """E[values] at each point to the given power, one output. `values` (n,) are at least 0, some above."""
    step = max(len(unit) // MOST, 1)
    unit, values, weights = unit[::step], values[::step], weights[::step] / weights[::step].mean()
    middle = float(np.average(values, weights=weights))
    if not middle > 0:
        return Exponential(inner=Chebyshev(index=np.zeros((1, unit.shape[1]), int), coefficients=np.zeros((1, 1))))
    index = index_set(unit.shape[1], max(min(terms, len(unit) // 20), 1))
    coefficients = _gamma_regression(basis(unit, index), values / middle, weights, RIDGE * euclidean_order(index) ** 2)
    coefficients[0] += np.log(middle)
    return Exponential(inner=Chebyshev(index=index, coefficients=power * coefficients[:, None]))


def _gamma_regression(table: np.ndarray, values: np.ndarray, weights: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """Coefficients that minimise Σ w (v e^{-η} + η) + Σ ridge c²/2, by Fisher scoring with halved steps."""

    def loss(c: np.ndarray) -> float:
        eta = np.clip(c @ table, -60.0, 60.0)
        return float(weights @ (values * np.exp(-eta) + eta) + 0.5 * ridge @ c**2)

    information = (table * weights) @ table.T + np.diag(ridge + 1e-9 * weights.sum())
    c = np.zeros(len(table))
    current = loss(c)
    for _ in range(100):
        eta = np.clip(c @ table, -60.0, 60.0)
        step = np.linalg.solve(information, table @ (weights * (values * np.exp(-eta) - 1.0)) - ridge * c)
        length = 1.0
        while (new := loss(c + length * step)) > current and length > 1e-4:
            length /= 2
        if new > current:
            break
        done = current - new < 1e-9 * weights.sum()
        c, current = c + length * step, new
        if done:
            break
    return c


def choose_size(
    unit: np.ndarray, squares: np.ndarray, weights: np.ndarray, targets: Targets, power: int, index: np.ndarray,
    most: int,
) -> Exponential:  # fmt: skip
    """The root of E[squares], as closely as helps to predict `targets(size, rows)`, which are values / size^power.

    A half finds its sizes by itself: one that has seen the other's noise seems to predict it.
    """
    counts = [terms for terms in COUNTS if terms <= min(most, max(len(unit) // ROWS_FOR_A_TERM, 1))]
    sizes = _candidates(unit, squares, weights, index, counts)
    if len(sizes) == 1:
        return sizes[0]
    loss = np.zeros(len(sizes))
    for own, other in HALVES:
        here, there, own_weights = unit[own], unit[other], weights[own]
        own_sizes = _candidates(here, squares[own], own_weights, index, counts)
        plain = targets(own_sizes[0], own)
        stretch = find_stretch(equations_of(here, plain, own_weights, index))
        noise = _noise(here, plain, own_weights, index, stretch)  # of targets in the plainest size
        # errors count by the size of what is told, and by the noise: squares of small errors in quiet places
        unit_of_loss = (noise.values(there) ** 0.5 * own_sizes[0].values(there) ** power)[:, 0]
        unit_of_loss *= own_sizes[-1].values(there)[:, 0] ** power
        for position, size in enumerate(own_sizes):
            ratio = (size.values(here) / own_sizes[0].values(here))[:, 0]
            rows = own_weights * (noise.values(here)[:, 0] * ratio ** (-2 * power)) ** -TEMPER
            solution = solve(equations_of(here, targets(size, own), rows, index), stretch)
            rest = (solution.values(there) - targets(size, other)) * size.values(there) ** power
            loss[position] += weights[other] @ ((rest**2).mean(axis=1) / unit_of_loss)
    return sizes[int(np.flatnonzero(loss <= (1.0 + ALIKE) * loss.min())[0])]


def _noise(unit, values: np.ndarray, weights: np.ndarray, index: np.ndarray, stretch: np.ndarray) -> Exponential:
    """The variance of a target of weight 1."""
    rest = values - solve(equations_of(unit, values, weights, index), stretch).values(unit)
    return fit_size(unit, (rest**2).mean(axis=1) * weights, weights, 1.0)


def _candidates(
    unit: np.ndarray, squares: np.ndarray, weights: np.ndarray, index: np.ndarray, counts: list[int]
) -> list[Exponential]:
    """Roots of E[squares], from plain to free."""
    parameters = unit.shape[1]
    first = fit_size(unit, squares, weights, 1.0, FIRST_TERMS * max(parameters - 1, 1))
    equations = equations_of(unit, squares[:, None] / first.values(unit), weights, index)
    solution = solve(equations, find_stretch(equations))
    nodes = places(parameters, max(counts))
    logs = 0.5 * np.log(first.values(nodes) * np.maximum(solution.values(nodes), LOWEST))
    indices = {len(part): part for part in (index_set(parameters, terms) for terms in counts)}
    return [Exponential(inner=tabulate(logs, nodes, part)) for part in indices.values()]
