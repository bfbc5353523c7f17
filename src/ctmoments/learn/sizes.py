"""Smooth positive sizes over the box: what targets are divided by before they are regressed.

In: positive numbers at points. Out: an evaluator exp(Σ c T) whose values follow their mean (a gamma regression with
logarithmic link: the mean is fitted, not the median, and noise of any distribution averages out).
"""

from __future__ import annotations

import numpy as np

from ctmoments.learn.indexset import euclidean_order, index_set
from ctmoments.predict.chebyshev import Chebyshev, basis
from ctmoments.predict.combine import Exponential

MOST = 40_000  # points used
RIDGE = 1e-2  # of an observation for each squared order: keeps empty corners quiet


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
