"""The frame that targets are measured in: smooth sizes, weights, and a triangle B(θ) that makes the covariance plain.

In: sizes and B (`pilot.py` finds them), rows. Out: targets and weights. Whatever a frame is, regression in it stays
unbiased: sizes and B multiply targets before, and predictions after. A good one makes targets smooth, evenly noisy and
nearly uncorrelated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ctmoments.learn.regress import Solution
from ctmoments.learn.sources import Batch
from ctmoments.predict.chebyshev import Chebyshev, basis
from ctmoments.predict.covariance import lower
from ctmoments.predict.evaluator import Evaluator
from ctmoments.simulate.streams import Purpose, generator

TEMPER = 0.75  # rows weigh as (local variance)^-TEMPER: between efficiency and the relative error that is scored
CHUNK_NUMBERS = 4_000_000  # targets of the covariance held at once
MOST_LEVERAGE = 0.8  # a row that decides its own fit tells no noise
PLACES = 30  # points for each term where a smooth function is tabulated


@dataclass(frozen=True, eq=False, kw_only=True)
class Frame:
    """Sizes, weights and B, all evaluators over the box; `active` are the outputs that have a variance."""

    active: np.ndarray
    size: Evaluator  # of the mean: one number
    mean_noise: Evaluator  # variance of mean / size of one path, averaged over outputs
    spread: Evaluator  # root of the residual variance, averaged over active outputs
    base: Evaluator  # B
    cov_noise: Evaluator  # variance of an entry of B⁻¹ e eᵀ B⁻ᵀ / spread², averaged over entries
    base_spread: Evaluator | None = None  # variance of an entry of B Bᵀ over that of one path's; None where exact

    def mean_rows(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Targets of the mean, and the weights of their rows."""
        noise = self.mean_noise.values(batch.unit)[:, 0]
        return batch.mean / self.size.values(batch.unit), batch.weights * noise**-TEMPER

    def cov_rows(self, batch: Batch, fitted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Targets of the covariance as lower triangles, and weights; `fitted` are means from other rows."""
        noise = self.cov_noise.values(batch.unit)[:, 0]
        targets = framed_covariance(batch, fitted, self.active, self.spread, self.base)
        return targets, batch.weights * noise**-TEMPER

    def mean_of(self, solution: Solution, unit: np.ndarray) -> np.ndarray:
        """Means (n, output) of a solution in this frame."""
        return solution.values(unit) * self.size.values(unit)


def framed_covariance(
    batch: Batch, fitted: np.ndarray, active: np.ndarray, spread: Evaluator, base: Evaluator | None
) -> np.ndarray:
    """Lower triangles of B⁻¹ T B⁻ᵀ / spread², where T has the covariance as its mean.

    T is e eᵀ for one path; ((M - 1) S + M e eᵀ) / M for the moments of M paths, for e = mean - fitted adds the degree
    of freedom that S has spent on its own mean; S where labels are exact.
    """
    i, j = np.tril_indices(len(active))
    spreads = spread.values(batch.unit)
    e = (batch.mean - fitted)[:, active] / spreads
    triangle = None if base is None else base.values(batch.unit)
    if triangle is not None:
        e = forward(triangle, e)
    products = e[:, i] * e[:, j]
    if batch.cov is None:
        return products
    cov = batch.cov[:, active[:, None], active] / (spreads[:, :, None] * spreads[:, None, :])
    if triangle is not None:
        inverse = np.linalg.inv(lower(triangle))
        cov = inverse @ cov @ np.swapaxes(inverse, 1, 2)
    m = batch.replicates[:, None]
    return np.where(m == 0, cov[:, i, j], ((m - 1) * cov[:, i, j] + m * products) / np.maximum(m, 1))


def forward(triangle: np.ndarray, e: np.ndarray) -> np.ndarray:
    """B⁻¹ e for each row, B given as a lower triangle: outputs² operations, where an inverse takes outputs³."""
    solved = np.array(e)
    begin = 0
    for i in range(e.shape[1]):
        if i:
            solved[:, i] -= np.einsum("nk,nk->n", triangle[:, begin : begin + i], solved[:, :i])
        solved[:, i] /= triangle[:, begin + i]
        begin += i + 1
    return solved


def chunks(batch: Batch, active: int) -> Iterator[Batch]:
    """The rows of a batch in pieces whose covariance targets fit into memory."""
    rows = int(np.clip(CHUNK_NUMBERS // max(active * (active + 1) // 2, 1), 64, 8192))
    for begin in range(0, len(batch.unit), rows):
        yield batch.rows(slice(begin, begin + rows))


def without_leverage(rows: Batch, solution: Solution, size: Evaluator, weights: np.ndarray) -> np.ndarray:
    """Means (n, output) whose distance from a row is as noisy as if the row had not taken part in the fit."""
    sizes = size.values(rows.unit)
    fitted = solution.values(rows.unit) * sizes
    if rows.exact:
        return fitted
    kept = 1.0 - np.clip(solution.leverage(rows.unit, weights), 0.0, MOST_LEVERAGE)
    return rows.mean - (rows.mean - fitted) / np.sqrt(kept)


def places(parameters: int, terms: int) -> np.ndarray:
    """Points of the box, denser towards its faces as Chebyshev nodes are, where `terms` functions can be told apart."""
    draws = generator(0, Purpose.REPLAY, 0, terms).random((PLACES * terms + 200, parameters))
    return (1.0 - np.cos(np.pi * draws)) / 2.0


def tabulate(values: np.ndarray, unit: np.ndarray, index: np.ndarray) -> Chebyshev:
    """The expansion nearest to values at points."""
    return Chebyshev(index=index, coefficients=np.linalg.lstsq(basis(unit, index).T, values, rcond=None)[0])
