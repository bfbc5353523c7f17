"""The forward sweep: the distribution of a chain from one output time to the next, in windows that follow it.

In: a `Chain`, its `Lattice`, output times, how much probability may be lost. Out: a `Passage`: the distribution at
each output time, and the segments (window, rate, Poisson weights) that led there, for `exact_moments` to walk again.

Between output times the time is cut into segments of some hundred expected uniformised jumps. Before each, states
that hold next to nothing are dropped, the window is widened by what can happen in the segment, and after it the lost
mass is measured: too much lost, and the segment is done again with a wider margin. So everything computed here is the
expectation over the paths that stay inside the windows, and the lost mass is that of all others, whatever the guesses.
Longer segments need fewer powers for each unit of time (1.7 for each expected jump at 128, 1.4 at 512) but wider
windows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammaln

from ctmoments.errors import SizeError
from ctmoments.moments.exact_chain import Chain, clean_rates, explain_wrong_rate
from ctmoments.moments.exact_kernel import aligned_zeros, apply_powers
from ctmoments.moments.exact_lattice import Lattice, Operator, Rows, Window, dilate, make_operator

REACHES = np.array([32.0, 64.0, 128.0, 256.0, 512.0, 1024.0])  # expected uniformised jumps of a segment
KEPT_BYTES = 1 << 30  # operators kept for the way back; the others are made again
WIDE = 20.0  # a window that loses less than its share by this factor is wider than it need be
ROUNDING = 2.0**-52  # of one power, relative


@dataclass(frozen=True)
class Vector:
    """A vector on a window: probability, or an expectation."""

    window: Window
    values: np.ndarray  # (box,) or (count, box)

    def moved(self, window: Window) -> Vector:
        """Return the same values on another window, zero where this one holds nothing."""
        if window is self.window:
            return self
        moved = aligned_zeros((*self.values.shape[:-1], window.box))
        for there, here, length in window.shared_rows(self.window):
            moved[..., there : there + length] = self.values[..., here : here + length]
        return Vector(window, moved)


@dataclass(frozen=True)
class Segment:
    """One application of a truncated exponential: sum_k weights[k] P^k on a window."""

    window: Window
    weights: np.ndarray
    operator: Operator | None  # None: to be made again

    @property
    def cost(self) -> float:
        """Multiply-adds for one vector, in states times powers."""
        return float(self.window.rows.states) * (len(self.weights) - 1)


@dataclass
class Passage:
    """What the forward sweep leaves: distributions at the output times, and the segments of each interval."""

    distributions: list[Vector] = field(default_factory=list)
    intervals: list[list[Segment]] = field(default_factory=list)
    powers: int = 0
    states: int = 0  # of the largest window
    attempts: int = 0

    @property
    def rounding(self) -> float:
        """A bound on the relative error that rounding adds to a probability."""
        return ROUNDING * (self.powers + 100)

    @property
    def lost(self) -> float:
        """Probability of the paths that left the windows."""
        return max(1.0 - float(self.distributions[-1].values.sum()), 0.0)


def poisson_weights(mean: float, tail: float) -> np.ndarray:
    """Return Poisson probabilities from 0 up to where the rest is below `tail`.

    >>> poisson_weights(0.0, 1e-12)
    array([1.])
    """
    if mean == 0:
        return np.ones(1)
    k = np.arange(int(mean + 15 * np.sqrt(mean) + 60))
    weights = np.exp(k * np.log(mean) - mean - gammaln(k + 1))
    beyond = np.cumsum(weights[::-1])[::-1]
    return np.ascontiguousarray(weights[: max(int(np.count_nonzero(beyond > tail)), 1)])


def propagate(chain: Chain, segment: Segment, vectors: Vector, forward: bool) -> Vector:
    """Carry a block of vectors (count, box) through a segment, probabilities forward or expectations backward."""
    vectors = vectors.moved(segment.window)
    if len(segment.weights) == 1:
        return Vector(segment.window, vectors.values * segment.weights[0])
    operator = segment.operator or make_operator(chain, segment.window, aligned_zeros)
    hold = aligned_zeros(vectors.values.shape)
    window = segment.window
    values = apply_powers(
        segment.weights, vectors.values, hold, operator.coefficients, window.table(forward), window.lag
    )
    return Vector(window, values)


class ForwardSweep:
    """The moving window and what it has learned about its own margins."""

    def __init__(self, chain: Chain, lattice: Lattice, horizon: float, budget: float, max_states: int):
        """Begin at the start state."""
        self.chain, self.lattice, self.horizon, self.budget = chain, lattice, horizon, budget
        self.max_states = max_states
        one = np.zeros(1, np.int64)
        window = Window(lattice, Rows(np.array([lattice.first_key]), one, one + 1))
        values = aligned_zeros((1, window.box))
        values[0, window.origins[0]] = 1.0
        self.here = Vector(window, values)
        self.operator = make_operator(chain, window, aligned_zeros)
        self.peaks = np.zeros_like(self.operator.peaks)  # least rates to reckon with: those of a window that failed
        self.step = np.inf
        self.reach = 64.0
        self.margin = 1.0
        self.patience = 0  # segments for which the window stands still
        self.trust = 1
        self.passage = Passage()
        self.kept = 0
        self._refuse_wrong(self.here, self.operator)

    def advance(self, duration: float, report: Callable[[float], None]) -> None:
        """Go on to the next output time."""
        segments: list[Segment] = []
        left = duration
        while left > 0:
            used, segment = self._segment(left)
            left = 0.0 if used >= left else left - used
            segments.append(segment)
            report(used)
        self.passage.intervals.append(segments)
        self.passage.distributions.append(Vector(self.here.window, self.here.values[0]))

    def _segment(self, left: float) -> tuple[float, Segment]:
        """Find a step and a window that lose little enough, and take the step."""
        held = self.here.values.sum()
        for _ in range(60):
            step, operator = self._next_window(left)
            share = max(self.budget * step / self.horizon, self.budget * 1e-4)
            weights = poisson_weights(operator.rate * step, share / 20)
            segment = Segment(operator.window, weights, operator)
            there = propagate(self.chain, segment, self.here, forward=True)
            lost = held - there.values.sum()
            self.passage.attempts += 1
            noise = 2 * ROUNDING * len(weights)
            if lost <= share + noise:
                cut = share / 20  # what the weights leave out is no sign of a narrow window
                return step, self._accept(segment, there, operator, step, lost < share / WIDE + cut + noise)
            self.margin = min(1.4 * self.margin, 4.0)
            self.step = step if self.margin < 2 else step / 2
            self.peaks = operator.peaks
            self.patience, self.trust = 0, 1
        raise SizeError(
            f"The distribution outgrows every window near {self.lattice.dims}-dimensional spread of "
            f"{operator.window.rows.states} states; shorten the times or raise `tolerance`."
        )

    def _accept(self, segment: Segment, there: Vector, operator: Operator, step: float, wide: bool) -> Segment:
        self._refuse_wrong(there, operator)
        if wide and self.patience == 0:
            self.margin = max(self.margin * 0.85, 0.02)
        self.peaks = np.zeros_like(self.peaks)
        self.patience = max(self.patience - 1, 0)
        self.here, self.operator = there, operator
        self.passage.powers += len(segment.weights) - 1
        self.passage.states = max(self.passage.states, operator.window.rows.states)
        self.kept += operator.coefficients.nbytes
        return segment if self.kept < KEPT_BYTES else Segment(segment.window, segment.weights, None)

    def _next_window(self, left: float) -> tuple[float, Operator]:
        """Choose the step and the window: the old one while it stands still, else a new one around the mass."""
        if self.patience:
            return _even_step(left, REACHES[-2] / self.operator.rate if self.operator.rate else left), self.operator
        share = self.budget * min(self.step, left) / self.horizon / 4
        rows, peaks = self._support(share)
        peaks = np.maximum(peaks, self.peaks)
        self.step = min(self.step, self.reach / max(peaks.sum(), 1e-300))
        spread = np.log(1 / max(self.budget * min(self.step, left) / self.horizon, 1e-30))
        for _ in range(60):
            step = _even_step(left, self.step)
            firings = peaks * step
            counts = np.ceil(self.margin * (firings + np.sqrt(2 * firings * spread) + spread / 3))
            wider = dilate(self.lattice, rows, np.where(peaks > 0, counts, 0).astype(np.int64))
            self._refuse_large(wider, left)
            if self.operator.window.rows.covers(wider) and wider.states > 0.6 * self.operator.window.rows.states:
                self.trust = min(2 * self.trust, 64)
                self.patience = self.trust
                return _even_step(left, self.reach / self.operator.rate if self.operator.rate else left), self.operator
            operator = make_operator(self.chain, Window(self.lattice, wider), aligned_zeros)
            woken = (peaks == 0) & (operator.peaks > 0)  # possible only after another reaction
            if not woken.any() and operator.rate * step <= 1.5 * self.reach:
                break
            peaks = np.where(woken, operator.peaks, peaks)
            self.step = min(self.step, self.reach / operator.rate)
        self.trust = 1
        if operator.rate > 0:
            self._choose_reach(operator.rate * step, wider.states / rows.states)
            self.step = min(1.5 * self.step, self.reach / operator.rate)
        return step, operator

    def _choose_reach(self, jumps: float, widening: float) -> None:
        """Balance powers for each jump, about 1 + 8/sqrt(reach), against a window that widens with the reach."""
        widened = 1 + REACHES * (widening - 1) / max(jumps, 1.0)
        cost = (1 + 8 / np.sqrt(REACHES) + 20 / REACHES) * widened
        self.reach = float(np.clip(REACHES[np.argmin(cost)], self.reach / 2, 2 * self.reach))

    def _support(self, share: float) -> tuple[Rows, np.ndarray]:
        """Return the rows that hold all but `share` of the mass, and the largest rate of each move there."""
        window = self.here.window
        values = self.here.values[0]
        ascending = np.sort(values[values > 0])
        dropped = int(np.searchsorted(np.cumsum(ascending), share, side="right"))
        mask = values >= ascending[min(dropped, len(ascending) - 1)]
        kept = np.flatnonzero(mask)
        starts = window.origins + window.rows.low
        first = np.searchsorted(kept, starts)
        last = np.searchsorted(kept, starts + window.rows.high - window.rows.low) - 1
        some = np.flatnonzero(last >= first)
        rows = Rows(
            window.rows.keys[some],
            kept[first[some]] - window.origins[some],
            kept[last[some]] - window.origins[some] + 1,
        )
        peaks = np.max(self.operator.coefficients[1:], axis=1, where=mask, initial=0.0) * self.operator.rate
        return rows, peaks

    def _refuse_wrong(self, vector: Vector, operator: Operator) -> None:
        if not operator.wrong.size:
            return
        reached = operator.wrong[vector.values[0, operator.wrong] > 0]
        if reached.size:
            at = np.flatnonzero(vector.window.positions == reached[0])[0]
            raise explain_wrong_rate(self.chain, vector.window.states[:, at])

    def _refuse_large(self, rows: Rows, left: float) -> None:
        if rows.states <= self.max_states:
            return
        raise SizeError(
            f"The distribution needs {rows.states:,} states at once, more than max_states = {self.max_states:,}, "
            f"with {left:.3g} of an interval to go. Raise `max_states`, shorten the times, or simulate instead."
        )


def _even_step(left: float, step: float) -> float:
    """Return `left` cut into equal steps not longer than `step`."""
    return left / max(np.ceil(left / step * (1 - 1e-9)), 1.0)


def state_rates(chain: Chain, window: Window) -> np.ndarray:
    """Return the total rate of each held state, in the order of `window.positions`."""
    return np.nansum(clean_rates(chain, window.states), axis=0)
