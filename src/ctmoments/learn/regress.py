"""Weighted least squares on Chebyshev polynomials with a smoothness prior, from sums: rows are folded in, forgotten.

In: blocks of targets. Out: coefficients, and the variance of any value. The prior variance of a coefficient of order k
is τ² exp(-s k); s and τ²/σ² are chosen for each output by the evidence (marginal likelihood) over a grid, in the
eigenbasis of the scaled normal equations, where one evaluation costs as many operations as there are terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ctmoments.learn.indexset import euclidean_order
from ctmoments.predict.chebyshev import basis

DECAYS = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0)  # s: from rough to very smooth
RATIOS = np.exp(np.arange(-16.0, 36.0, 0.5))  # τ²/σ²; the upper end is for labels without noise
ROUNDING = 1e-12  # eigenvalues below this share of the largest are rounding, and so is what they seem to explain
ROWS = 8192  # folded in at once: long enough for two threads of BLAS
OUTPUTS = 512  # outputs searched at once: bounds memory for wide covariances


@dataclass(eq=False)
class NormalEquations:
    """Σ w φφᵀ, Σ w φ zᵀ, Σ w z², and how many rows: what a regression needs to know of its data."""

    index: np.ndarray  # (term, parameter)
    gram: np.ndarray  # (term, term)
    moment: np.ndarray  # (term, output)
    square: np.ndarray  # (output,)
    rows: int

    @classmethod
    def empty(cls, index: np.ndarray, outputs: int) -> NormalEquations:
        """Nothing folded in yet."""
        terms = len(index)
        return cls(index, np.zeros((terms, terms)), np.zeros((terms, outputs)), np.zeros(outputs), 0)

    def add(self, unit: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> None:
        """Fold in rows: unit (n, parameter), targets (n, output), weights (n,)."""
        for begin in range(0, len(unit), ROWS):
            part = slice(begin, begin + ROWS)
            root = np.sqrt(weights[part])
            table = basis(unit[part], self.index)
            table *= root
            scaled = targets[part] * root[:, None]
            self.gram += table @ table.T
            self.moment += table @ scaled
            self.square += np.einsum("nk,nk->k", scaled, scaled)
        self.rows += len(unit)

    def plus(self, other: NormalEquations) -> NormalEquations:
        """The sums of both."""
        return NormalEquations(
            self.index, self.gram + other.gram, self.moment + other.moment, self.square + other.square,
            self.rows + other.rows,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Solution:
    """Coefficients (term, output), and what their variance needs."""

    index: np.ndarray
    coefficients: np.ndarray
    noise: np.ndarray  # (output,) variance of a target of weight 1
    decay: np.ndarray  # (output,) position in DECAYS
    ratio: np.ndarray  # (output,)
    spectra: tuple[tuple[np.ndarray, np.ndarray], ...]  # for each decay: eigenvalues, scaled eigenvectors

    def values(self, unit: np.ndarray) -> np.ndarray:
        """Fitted values (n, output)."""
        return basis(unit, self.index).T @ self.coefficients

    def spread(self, unit: np.ndarray) -> np.ndarray:
        """The posterior variance of the values over the noise of a target there: (n, output)."""
        table = basis(unit, self.index)
        result = np.empty((table.shape[1], len(self.noise)))
        for position, (values, vectors) in enumerate(self.spectra):
            chosen = np.flatnonzero(self.decay == position)
            if chosen.size:
                squares = (vectors.T @ table) ** 2
                ratio = self.ratio[chosen, None]
                result[:, chosen] = ((ratio / (1.0 + ratio * values)) @ squares).T
        return result

    def disagreement(self, unit: np.ndarray, halves: Sequence[NormalEquations]) -> tuple[np.ndarray, np.ndarray]:
        """What two halves of the data say, one minus the other, and its variance over the noise: both (n, output).

        Each half is solved for what the whole left over, with the prior chosen here and its share of the eigenvalues.
        The variance expected is that of independent targets; what is seen beyond it comes from targets that hang
        together.
        """
        table = basis(unit, self.index)
        whole = sum(float(np.trace(half.gram)) for half in halves)
        seen = np.zeros((table.shape[1], len(self.noise)))
        expected = np.zeros_like(seen)
        for position, (values, vectors) in enumerate(self.spectra):
            chosen = np.flatnonzero(self.decay == position)
            rotated = vectors.T @ table
            for sign, half in zip((1.0, -1.0), halves, strict=True):
                share = values[:, None] * (float(np.trace(half.gram)) / whole)
                shrink = np.where(share > 0, self.ratio[chosen] / (1.0 + self.ratio[chosen] * share), 0.0)
                rest = half.moment[:, chosen] - half.gram @ self.coefficients[:, chosen]
                seen[:, chosen] += sign * rotated.T @ (shrink * (vectors.T @ rest))
                expected[:, chosen] += (rotated**2).T @ (shrink**2 * share)
        return seen, expected


def solve(equations: NormalEquations) -> Solution:
    """The coefficients of largest evidence for each output."""
    order = euclidean_order(equations.index)
    outputs = equations.moment.shape[1]
    spectra = []
    for decay in DECAYS:
        scale = np.exp(-0.5 * decay * order / 2)
        values, vectors = np.linalg.eigh(scale[:, None] * equations.gram * scale)
        spectra.append((np.where(values > ROUNDING * values[-1], values, 0.0), scale[:, None] * vectors))
    best = np.full(outputs, -np.inf)
    chosen, ratio, noise = np.zeros(outputs, np.int64), np.ones(outputs), np.zeros(outputs)
    for begin in range(0, outputs, OUTPUTS):
        part = slice(begin, begin + OUTPUTS)
        _search(equations, spectra, part, best[part], chosen[part], ratio[part], noise[part])
    coefficients = np.empty_like(equations.moment)
    for position, (values, vectors) in enumerate(spectra):
        which = np.flatnonzero(chosen == position)
        shrink = ratio[which] / (1.0 + ratio[which] * values[:, None])
        shrink[values == 0] = 0.0
        coefficients[:, which] = vectors @ (shrink * (vectors.T @ equations.moment[:, which]))
    return Solution(equations.index, coefficients, noise, chosen, ratio, tuple(spectra))


def _search(equations: NormalEquations, spectra, part: slice, best, chosen, ratio, noise) -> None:
    """Fill the slices `best`, `chosen`, `ratio`, `noise` of these outputs."""
    rows, square = max(equations.rows, 1), equations.square[part]
    floor = 1e-13 * square + np.finfo(float).tiny  # what rounding leaves of a difference of sums
    for position, (values, vectors) in enumerate(spectra):
        energy = (vectors.T @ equations.moment[:, part]) ** 2
        energy[values == 0] = 0.0
        for r in RATIOS:
            rest = np.maximum(square - (r / (1.0 + r * values)) @ energy, floor)
            evidence = -0.5 * rows * np.log(rest) - 0.5 * np.log1p(r * values).sum()
            better = evidence > best
            best[better], chosen[better], ratio[better] = evidence[better], position, r
            noise[better] = rest[better] / rows
