"""Weighted least squares on Chebyshev polynomials with a smoothness prior, from sums: rows are folded in, forgotten.

In: blocks of targets. Out: coefficients, and the variance of any value. The prior variance of a coefficient of degrees
k is τ² exp(-s |a k|), with a stretch a_d for each parameter that all outputs share (`find_stretch`); s and τ²/σ² are
chosen for each output by the evidence (marginal likelihood) over a grid, in the eigenbasis of the scaled normal
equations, where one evaluation costs as many operations as there are terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ctmoments.learn.indexset import euclidean_order
from ctmoments.predict.chebyshev import basis

DECAYS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.5)  # s: from rough to very smooth
RATIOS = np.exp(np.arange(-16.0, 36.0, 0.5))  # τ²/σ²; the upper end is for labels without noise
ROUNDING = 1e-12  # eigenvalues below this share of the largest are rounding, and so is what they seem to explain
NATS = 1.0  # of evidence that a wider prior may lose and still count in the spread
FEW_TERMS, FEW_OUTPUTS = 120, 60  # the stretch is sought with so many
STEP, FARTHEST = 1.25, 3.0  # factor between stretches that are tried, and the largest
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

    def part(self, terms: int, outputs: np.ndarray) -> NormalEquations:
        """Those of the first terms and of some outputs."""
        moment = self.moment[:terms, outputs]
        return NormalEquations(self.index[:terms], self.gram[:terms, :terms], moment, self.square[outputs], self.rows)

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
    ratio: np.ndarray  # (output,) τ²/σ²
    wide: tuple[np.ndarray, np.ndarray]  # decay and ratio of the freest prior that the data allow nearly as well
    spectra: tuple[tuple[np.ndarray, np.ndarray], ...]  # for each decay: eigenvalues, scaled eigenvectors
    stretch: np.ndarray  # (parameter,)

    def values(self, unit: np.ndarray) -> np.ndarray:
        """Fitted values (n, output)."""
        return basis(unit, self.index).T @ self.coefficients

    def spread(self, unit: np.ndarray) -> np.ndarray:
        """The posterior variance of the values over the noise of a target there: (n, output).

        With the wider prior: where noise hides all structure the best prior is that there is none, and is too sure.
        """
        table = basis(unit, self.index)
        result = np.empty((table.shape[1], len(self.noise)))
        for chosen, values, vectors in self._by_decay(self.wide[0]):
            ratio = self.wide[1][chosen, None]
            result[:, chosen] = ((ratio / (1.0 + ratio * values)) @ (vectors.T @ table) ** 2).T
        return result

    def leverage(self, unit: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """What a row's own noise takes from the variance of its residual: 1 - E[e²]/σ², (n, output)."""
        table = basis(unit, self.index)
        result = np.empty((table.shape[1], len(self.noise)))
        for chosen, values, vectors in self._by_decay(self.decay):
            shrink = self.ratio[chosen, None] / (1.0 + self.ratio[chosen, None] * values)
            result[:, chosen] = ((2.0 * shrink - shrink**2 * values) @ (vectors.T @ table) ** 2).T
        return result * weights[:, None]

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
        for chosen, values, vectors in self._by_decay(self.decay):
            rotated = vectors.T @ table
            for sign, half in zip((1.0, -1.0), halves, strict=True):
                share = values[:, None] * (float(np.trace(half.gram)) / whole)
                shrink = np.where(share > 0, self.ratio[chosen] / (1.0 + self.ratio[chosen] * share), 0.0)
                rest = half.moment[:, chosen] - half.gram @ self.coefficients[:, chosen]
                seen[:, chosen] += sign * rotated.T @ (shrink * (vectors.T @ rest))
                expected[:, chosen] += (rotated**2).T @ (shrink**2 * share)
        return seen, expected

    def _by_decay(self, decay: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(outputs, eigenvalues, scaled eigenvectors) of each decay that was chosen."""
        for position, (values, vectors) in enumerate(self.spectra):
            chosen = np.flatnonzero(decay == position)
            if chosen.size:
                yield chosen, values, vectors


def solve(equations: NormalEquations, stretch: np.ndarray | None = None) -> Solution:
    """The coefficients of largest evidence for each output."""
    stretch = np.ones(equations.index.shape[1]) if stretch is None else stretch
    outputs = equations.moment.shape[1]
    spectra = tuple(_spectrum(equations, stretch, decay) for decay in DECAYS)
    chosen, ratio, noise = np.zeros(outputs, np.int64), np.ones(outputs), np.zeros(outputs)
    wide_decay, wide_ratio = chosen.copy(), ratio.copy()
    freedom = np.stack([_freedom(values) for values, _ in spectra])
    coefficients = np.empty_like(equations.moment)
    for begin in range(0, outputs, OUTPUTS):
        part = slice(begin, min(begin + OUTPUTS, outputs))
        rotated = [vectors.T @ equations.moment[:, part] for _, vectors in spectra]
        pairs = [_evidence(equations, part, values, r) for (values, _), r in zip(spectra, rotated, strict=True)]
        evidence = np.stack([pair[0] for pair in pairs])  # (decay, ratio, output)
        flat = evidence.reshape(-1, evidence.shape[2])
        at = np.unravel_index(flat.argmax(axis=0), evidence.shape[:2])
        chosen[part], ratio[part] = at[0], RATIOS[at[1]]
        allowed = np.where(flat >= flat.max(axis=0) - NATS, freedom.reshape(-1, 1), -1.0)
        freest = np.unravel_index(allowed.argmax(axis=0), evidence.shape[:2])
        wide_decay[part], wide_ratio[part] = freest[0], RATIOS[freest[1]]
        for position, (values, vectors) in enumerate(spectra):
            here = np.flatnonzero(at[0] == position)
            noise[begin + here] = pairs[position][1][at[1][here], here] / max(equations.rows, 1)
            shrink = RATIOS[at[1][here]] / (1.0 + RATIOS[at[1][here]] * values[:, None])
            shrink[values == 0] = 0.0
            coefficients[:, begin + here] = vectors @ (shrink * rotated[position][:, here])
    wide = (wide_decay, wide_ratio)
    return Solution(equations.index, coefficients, noise, chosen, ratio, wide, spectra, stretch)


def _freedom(values: np.ndarray) -> np.ndarray:
    """Effective terms of a fit for each ratio."""
    product = RATIOS[:, None] * values
    return (product / (1.0 + product)).sum(axis=1)


def equations_of(unit: np.ndarray, targets: np.ndarray, weights: np.ndarray, index: np.ndarray) -> NormalEquations:
    """Those of rows alone."""
    equations = NormalEquations.empty(index, targets.shape[1])
    equations.add(unit, targets, weights)
    return equations


def find_stretch(equations: NormalEquations) -> np.ndarray:
    """How much faster than the average the prior falls along each parameter: (parameter,), of geometric mean 1.

    Coordinate by coordinate while the evidence of all outputs together grows; with few terms and outputs, which tell.
    """
    parameters, outputs = equations.index.shape[1], equations.moment.shape[1]
    log = np.zeros(parameters)
    if parameters == 1:
        return np.exp(log)
    few = equations.part(FEW_TERMS, np.unique(np.linspace(0, outputs - 1, min(outputs, FEW_OUTPUTS)).astype(int)))
    best = _total_evidence(few, np.exp(log))
    moved = True
    while moved:
        moved = False
        for d in range(parameters):
            for step in (np.log(STEP), -np.log(STEP)):
                while True:
                    trial = log + step * (np.arange(parameters) == d)
                    trial -= trial.mean()
                    if np.abs(trial).max() > np.log(FARTHEST) or (new := _total_evidence(few, np.exp(trial))) <= best:
                        break
                    log, best, moved = trial, new, True
    return np.exp(log)


def _total_evidence(equations: NormalEquations, stretch: np.ndarray) -> float:
    best = np.full(equations.moment.shape[1], -np.inf)
    for decay in DECAYS[1::2]:
        values, vectors = _spectrum(equations, stretch, decay)
        evidence, _ = _evidence(equations, slice(None), values, vectors.T @ equations.moment)
        best = np.maximum(best, evidence.max(axis=0))
    return float(best.sum())


def _spectrum(equations: NormalEquations, stretch: np.ndarray, decay: float) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and scaled eigenvectors of the normal equations in units of the prior."""
    scale = np.exp(-0.25 * decay * euclidean_order(equations.index, stretch))
    values, vectors = np.linalg.eigh(scale[:, None] * equations.gram * scale)
    return np.where(values > ROUNDING * values[-1], values, 0.0), scale[:, None] * vectors


def _evidence(
    equations: NormalEquations, part: slice, values: np.ndarray, rotated: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The logarithm of the evidence for each ratio (ratio, output), and the sum of squares that is left over."""
    square = equations.square[part]
    energy = np.where(values[:, None] == 0, 0.0, rotated**2)
    shrink = RATIOS[:, None] / (1.0 + RATIOS[:, None] * values)
    floor = 1e-13 * square + np.finfo(float).tiny  # what rounding leaves of a difference of sums
    rest = np.maximum(square - shrink @ energy, floor)
    volume = np.log1p(RATIOS[:, None] * values).sum(axis=1, keepdims=True)
    return -0.5 * max(equations.rows, 1) * np.log(rest) - 0.5 * volume, rest
