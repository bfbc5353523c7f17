"""How a frame is found: sizes, weights and B from rows of targets, before the regressions that count.

In: rows (`sources.Batch`). Out: a `Frame`. B is the Cholesky factor of the covariance that a first regression finds, as
a smooth lower triangle. It comes from the rows that are measured in it later: its own noise stays, unseen by the
regression that follows, and is told (`base_spread`) so that standard errors can count it.
"""

from __future__ import annotations

import numpy as np

from ctmoments.learn.frame import Frame, chunks, framed_covariance, places, tabulate, without_leverage
from ctmoments.learn.indexset import index_set
from ctmoments.learn.regress import NormalEquations, Solution, equations_of, find_stretch, solve
from ctmoments.learn.sizes import choose_size, fit_size
from ctmoments.learn.sources import Batch
from ctmoments.predict.chebyshev import Chebyshev, basis
from ctmoments.predict.combine import Exponential
from ctmoments.predict.covariance import floor_eigenvalues, lower, symmetric
from ctmoments.predict.evaluator import Evaluator

BASE_FLOOR = 0.1  # eigenvalues of a simulated covariance below this share of their mean are noise
EXACT_FLOOR = 1e-7  # those of exact labels are not
TAME = 40.0  # largest eigenvalue of the covariance in the frame
EXACT_SIZE = 30  # terms of sizes where labels have no noise
SOME_ENTRIES = 40  # of the covariance are looked at to choose its size
SPREAD_TERMS = 28  # of the logarithm of the noise of B


def pilot_frame(rows: Batch, active: np.ndarray, index: np.ndarray, size_terms: int, base_terms: int) -> Frame:
    """A frame from rows alone; `index` says which terms the regressions on the way may have."""
    unit, weights = rows.unit, rows.weights
    one = fit_size(unit, np.ones(len(unit)), weights, 1.0, 1)
    size = _size_of_means(rows, index, size_terms)
    if not len(active):
        return Frame(active=active, size=size, mean_noise=one, spread=one, base=one, cov_noise=one)
    products = _Products(rows, active, index, size)
    variance = products.targets(one, None, products.diagonal).mean(axis=1)
    spread = _size_of_covariances(products, variance, one, size_terms)
    first = products.equations(spread, None)
    solution = solve(first, find_stretch(first))
    base = _smooth_factor(solution, unit.shape[1], base_terms, EXACT_FLOOR if rows.exact else BASE_FLOOR)
    if rows.exact:
        return Frame(active=active, size=size, mean_noise=one, spread=spread, base=base, cov_noise=one)
    return Frame(
        active=active, size=size, spread=spread, base=base,
        mean_noise=fit_size(unit, variance / size.values(unit)[:, 0] ** 2, weights, 1.0),
        cov_noise=fit_size(unit, products.noise(spread, base), weights, 1.0),
        base_spread=_base_spread(solution, first.gram, base),
    )  # fmt: skip


class _Products:
    """Targets of the covariance about a first mean, some rows at a time."""

    def __init__(self, rows: Batch, active: np.ndarray, index: np.ndarray, size: Evaluator) -> None:
        equations = equations_of(rows.unit, rows.mean / size.values(rows.unit), rows.weights, index)
        fitted = without_leverage(rows, solve(equations, find_stretch(equations)), size, rows.weights)
        self.rows, self.active, self.index = rows, active, index
        self.entries = len(active) * (len(active) + 1) // 2
        self.diagonal = (np.arange(len(active)) + 1) * (np.arange(len(active)) + 2) // 2 - 1
        self._parts = list(chunks(rows, len(active)))
        self._fits = np.split(fitted, np.cumsum([len(part.unit) for part in self._parts])[:-1])

    def _chunks(self, spread: Evaluator, base: Evaluator | None):
        for part, fit in zip(self._parts, self._fits, strict=True):
            yield part, framed_covariance(part, fit, self.active, spread, base)

    def targets(self, spread: Evaluator, base: Evaluator | None, entries: np.ndarray) -> np.ndarray:
        """Some entries at all rows."""
        return np.concatenate([values[:, entries] for _, values in self._chunks(spread, base)])

    def equations(self, spread: Evaluator, base: Evaluator | None) -> NormalEquations:
        """Normal equations of all entries."""
        equations = NormalEquations.empty(self.index, self.entries)
        for part, values in self._chunks(spread, base):
            equations.add(part.unit, values, part.weights)
        return equations

    def noise(self, spread: Evaluator, base: Evaluator) -> np.ndarray:
        """Squared distance of each row from a regression, as that of a single path, averaged over entries."""
        equations = self.equations(spread, base)
        solution = solve(equations, find_stretch(equations))
        rest = [
            ((values - solution.values(part.unit)) ** 2).mean(axis=1) for part, values in self._chunks(spread, base)
        ]
        return np.concatenate(rest) * self.rows.weights


def _size_of_means(rows: Batch, index: np.ndarray, most: int) -> Exponential:
    squares = (rows.mean**2).mean(axis=1)
    if rows.exact:
        return fit_size(rows.unit, squares, rows.weights, 0.5, EXACT_SIZE)

    def targets(size: Exponential, some: slice) -> np.ndarray:
        return rows.mean[some] / size.values(rows.unit[some])

    return choose_size(rows.unit, squares, rows.weights, targets, 1, index, most)


def _size_of_covariances(products: _Products, variance: np.ndarray, one: Evaluator, most: int) -> Exponential:
    rows, entries = products.rows, products.entries
    if rows.exact:
        return fit_size(rows.unit, variance, rows.weights, 0.5, EXACT_SIZE)
    chosen = np.unique(np.linspace(0, entries - 1, min(entries, SOME_ENTRIES)).astype(int))
    plain = products.targets(one, None, chosen)

    def targets(size: Exponential, some: slice) -> np.ndarray:
        return plain[some] / size.values(rows.unit[some]) ** 2

    return choose_size(rows.unit, variance, rows.weights, targets, 2, products.index, most)


def _base_spread(solution: Solution, gram: np.ndarray, base: Chebyshev) -> Exponential:
    """The variance of an entry of B Bᵀ over that of one path: B has as few terms as it has, and is no freer than C."""
    terms = len(base.index)
    unit = places(base.index.shape[1], SPREAD_TERMS)
    table = basis(unit, base.index)
    few = np.einsum("kn,kn->n", table, np.linalg.solve(gram[:terms, :terms], table))
    logs = np.log(np.minimum(few, solution.spread(unit).mean(axis=1)))[:, None]
    return Exponential(inner=tabulate(logs, unit, index_set(unit.shape[1], SPREAD_TERMS)))


def _smooth_factor(solution: Solution, parameters: int, terms: int, floor: float) -> Chebyshev:
    """The Cholesky factor of a regressed covariance, as a smooth lower triangle that is safe to invert.

    The largest expansion that leaves the covariance within `TAME` of the identity everywhere; the constant otherwise:
    a wild frame costs more than a plain one (SIR, 90,000 paths, one seed: 7.2 % against 5.2).
    """
    unit = places(parameters, terms)
    matrices, _ = floor_eigenvalues(symmetric(solution.values(unit)), floor)
    outputs = matrices.shape[1]
    i, j = np.tril_indices(outputs)
    factors = np.linalg.cholesky(matrices)[:, i, j]
    while True:
        index = index_set(parameters, terms)
        expansion = tabulate(factors, unit, index)
        base = lower(expansion.values(unit))
        if len(index) == 1:
            return expansion
        if np.diagonal(base, axis1=1, axis2=2).min() > 0:
            framed = np.linalg.solve(base, np.swapaxes(np.linalg.solve(base, matrices), 1, 2))
            if np.linalg.eigvalsh((framed + np.swapaxes(framed, 1, 2)) / 2)[:, -1].max() < TAME:
                return expansion
        terms = len(index) - 1
