"""The state space as a lattice, and windows on it: which states are held, and how the reactions join them.

Every state is start + basis z with whole numbers z, as many as the reactions span. The last coordinate runs along a
row; a `Window` is a set of rows, each an interval, stored one after the other so that every reaction is one constant
shift of a whole row. In: a `Chain` (start, changes, rates). Out: windows, and an `Operator` that the kernel can step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ctmoments.errors import SizeError
from ctmoments.moments.exact_chain import Chain, clean_rates
from ctmoments.moments.exact_kernel import LANES


@dataclass(frozen=True)
class Lattice:
    """Whole-number coordinates of a chain's states: state = start + basis z; moves are the reactions in z."""

    start: np.ndarray  # (species,)
    basis: np.ndarray  # (species, dims), echelon in `pivots`
    pivots: tuple[int, ...]
    moves: np.ndarray  # (dims, distinct moves), no zero move
    groups: np.ndarray  # (reactions,) index of each reaction's move, -1: it changes nothing

    @property
    def dims(self) -> int:
        return self.basis.shape[1]

    @cached_property
    def bits(self) -> int:
        """Bits of a key for each outer coordinate."""
        return min(60 // max(self.dims - 1, 1), 40)

    @cached_property
    def key_steps(self) -> np.ndarray:
        """What each move adds to the key of a row."""
        return self.moves[:-1].T @ self._places

    @cached_property
    def row_shifts(self) -> np.ndarray:
        """What each move adds to the coordinate along a row."""
        return self.moves[-1]

    @cached_property
    def _places(self) -> np.ndarray:
        return np.array([1 << (self.bits * i) for i in reversed(range(self.dims - 1))], np.int64)

    @cached_property
    def first_key(self) -> int:
        """The key of the row of the start state."""
        return int(self._places.sum()) << (self.bits - 1) if self.dims > 1 else 0

    def bases_of_rows(self, keys: np.ndarray) -> np.ndarray:
        """Return the states (species, rows) at coordinate 0 along each row."""
        mask, half = (1 << self.bits) - 1, 1 << (self.bits - 1)
        outer = np.array([(keys // place) & mask for place in self._places], np.int64).reshape(-1, len(keys))
        if outer.size and (outer.min() < 4 or outer.max() > mask - 4):
            raise SizeError(f"The states spread over more than 2^{self.bits} steps in one of {self.dims} directions.")
        return self.start[:, None] + self.basis[:, :-1] @ (outer - half)


def make_lattice(start: np.ndarray, changes: np.ndarray, order: Sequence[int] | None = None) -> Lattice:
    """Find a basis of the whole numbers that the reactions span; species late in `order` run along the rows."""
    species = changes.shape[0]
    order = list(range(species)) if order is None else list(order)
    columns = [changes[:, j].astype(object) for j in range(changes.shape[1]) if changes[:, j].any()]
    basis: list[np.ndarray] = []
    pivots: list[int] = []
    for i in order:
        pivot, columns = _eliminate(columns, i)
        if pivot is not None:
            basis.append(pivot)
            pivots.append(i)
    matrix = np.array(basis, dtype=object).reshape(len(basis), species).T.astype(np.int64)
    moves = _coordinates(matrix, pivots, changes)
    unique, inverse = np.unique(moves.T, axis=0, return_inverse=True)
    keep = np.flatnonzero(unique.any(axis=1))
    index = np.full(len(unique), -1)
    index[keep] = np.arange(len(keep))
    return Lattice(start.astype(np.int64), matrix, tuple(pivots), unique[keep].T, index[inverse.ravel()])


def _eliminate(columns: list[np.ndarray], i: int) -> tuple[np.ndarray | None, list[np.ndarray]]:
    """Reduce the columns by Euclid's algorithm until at most one has an entry in row i, and split it off."""
    columns = [c for c in columns if c.any()]
    while sum(c[i] != 0 for c in columns) > 1:
        columns.sort(key=lambda c: (c[i] == 0, abs(c[i])))
        columns[1:] = [c - (c[i] // columns[0][i]) * columns[0] for c in columns[1:]]
        columns = [c for c in columns if c.any()]
    pivot = next((c for c in columns if c[i] != 0), None)
    rest = [c for c in columns if c is not pivot]
    return (pivot if pivot is None or pivot[i] > 0 else -pivot), rest


def _coordinates(basis: np.ndarray, pivots: Sequence[int], changes: np.ndarray) -> np.ndarray:
    """Solve basis z = changes exactly, pivot by pivot."""
    rest = changes.astype(np.int64).copy()
    z = np.zeros((basis.shape[1], changes.shape[1]), np.int64)
    for k, i in enumerate(pivots):
        z[k] = rest[i] // basis[i, k]
        rest -= np.outer(basis[:, k], z[k])
    return z


@dataclass(frozen=True)
class Rows:
    """Intervals along rows, without storage: keys ascending, [low, high)."""

    keys: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def states(self) -> int:
        return int((self.high - self.low).sum())

    def covers(self, other: Rows) -> bool:
        """Whether every state of `other` is held."""
        at = np.searchsorted(self.keys, other.keys)
        if at.size and at[-1] >= len(self.keys):
            return False
        same = self.keys[at] == other.keys
        return bool(np.all(same & (self.low[at] <= other.low) & (self.high[at] >= other.high)))


def hull(keys: np.ndarray, low: np.ndarray, high: np.ndarray) -> Rows:
    """Join intervals of equal rows."""
    order = np.argsort(keys, kind="stable")
    keys, low, high = keys[order], low[order], high[order]
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return Rows(keys[first], np.minimum.reduceat(low, first), np.maximum.reduceat(high, first))


def dilate(lattice: Lattice, rows: Rows, counts: np.ndarray) -> Rows:
    """Add all states within counts[j] firings of each move j, in any combination, where no amount is negative."""
    for step, shift, count in zip(lattice.key_steps, lattice.row_shifts, counts, strict=True):
        done = 0
        while done < count:
            jump = min(done + 1, int(count) - done)
            done += jump
            rows = hull(
                np.concatenate((rows.keys, rows.keys + jump * step)),
                np.concatenate((rows.low, rows.low + jump * shift)),
                np.concatenate((rows.high, rows.high + jump * shift)),
            )
    return _within_amounts(lattice, rows)


def _within_amounts(lattice: Lattice, rows: Rows) -> Rows:
    """Cut away negative amounts."""
    low, high = rows.low, rows.high
    for base, b in zip(lattice.bases_of_rows(rows.keys), lattice.basis[:, -1], strict=True):
        if b > 0:
            low = np.maximum(low, -(base // b))
        elif b < 0:
            high = np.minimum(high, base // -b + 1)
        else:
            high = np.where(base < 0, low, high)
    keep = high > low
    return Rows(rows.keys[keep], low[keep], high[keep])


class Window:
    """Rows in storage: whole blocks, padded with zeros so that no shift along a reaction leaves its row's room."""

    def __init__(self, lattice: Lattice, rows: Rows):
        """Lay the rows out."""
        self.lattice = lattice
        low = rows.low // LANES * LANES
        high = -(-rows.high // LANES) * LANES
        self.rows = Rows(rows.keys, low, high)
        sources = self._neighbours(-1)
        targets = self._neighbours(1)
        room_low, room_high = low.copy(), high.copy()
        for (there, shift), sign in [(s, -1) for s in sources] + [(t, 1) for t in targets]:
            known = np.flatnonzero(there >= 0)
            np.minimum.at(room_low, there[known], low[known] + sign * shift)
            np.maximum.at(room_high, there[known], high[known] + sign * shift)
        room_low = room_low // LANES * LANES
        lengths = -(-(room_high - room_low) // LANES) * LANES
        begins = np.concatenate(([0], np.cumsum(lengths)))
        self.box = int(begins[-1] + (high - low).max())
        self.origins = begins[:-1] - room_low  # position of coordinate 0 of each row
        empty = int(begins[-1])  # a row of zeros for reactions that come from outside
        index = np.arange(len(low))
        apart = [np.abs(there - index)[there >= 0].max(initial=0) for there, _ in sources]
        self.lag = int(max(apart, default=0))  # how far apart in storage the rows of one reaction lie
        self._forward = self._table(sources, -1, empty, True)
        self._backward = self._table(targets, 1, empty, False)

    def _neighbours(self, sign: int) -> list[tuple[np.ndarray, int]]:
        """For each move: the index of the row `sign` moves away (-1: not held), and the shift along it."""
        keys = self.rows.keys
        found = []
        for step, shift in zip(self.lattice.key_steps, self.lattice.row_shifts, strict=True):
            at = np.searchsorted(keys, keys + sign * step)
            at[at == len(keys)] = 0
            found.append((np.where(keys[at] == keys + sign * step, at, -1), int(shift)))
        return found

    def _table(self, neighbours: list, sign: int, empty: int, gather: bool) -> np.ndarray:
        low, high, origins = self.rows.low, self.rows.high, self.origins
        starts = origins + low
        offsets = [
            np.where(there >= 0, origins[there] + sign * shift - origins, empty - starts) for there, shift in neighbours
        ]
        zeros = [np.zeros(len(low), np.int64)] * len(offsets)
        columns = [starts, high - low, *offsets, *(offsets if gather else zeros)]
        return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int64))

    def table(self, forward: bool) -> np.ndarray:
        """Return the kernel's table of rows: pulling probability (forward) or expectations (backward)."""
        return self._forward if forward else self._backward

    @cached_property
    def row_of(self) -> np.ndarray:
        """The row of each held state, in the order of `positions`."""
        return np.repeat(np.arange(len(self.rows.keys)), self.rows.high - self.rows.low)

    @cached_property
    def along(self) -> np.ndarray:
        """The coordinate along the row of each held state."""
        lengths = self.rows.high - self.rows.low
        first = np.cumsum(lengths) - lengths
        return np.arange(lengths.sum()) + np.repeat(self.rows.low - first, lengths)

    @cached_property
    def positions(self) -> np.ndarray:
        """Where each held state lies in a vector."""
        return self.origins[self.row_of] + self.along

    @cached_property
    def states(self) -> np.ndarray:
        """The held states (species, n); those with a negative amount are no states: see `valid`."""
        bases = self.lattice.bases_of_rows(self.rows.keys)
        lengths = self.rows.high - self.rows.low
        steps = self.lattice.basis[:, -1]
        return np.stack([np.repeat(b, lengths) + s * self.along for b, s in zip(bases, steps, strict=True)])

    @cached_property
    def valid(self) -> np.ndarray:
        return np.all(self.states >= 0, axis=0)

    def shared_rows(self, other: Window) -> list[list[int]]:
        """Return where the intervals that both windows hold start here and there, and their lengths."""
        at = np.searchsorted(self.rows.keys, other.rows.keys)
        at[at == len(self.rows.keys)] = 0
        low = np.maximum(other.rows.low, self.rows.low[at])
        high = np.minimum(other.rows.high, self.rows.high[at])
        both = np.flatnonzero((self.rows.keys[at] == other.rows.keys) & (high > low))
        low, lengths = low[both], (high - low)[both]
        return np.stack((self.origins[at[both]] + low, other.origins[both] + low, lengths), axis=1).tolist()


@dataclass(frozen=True)
class Operator:
    """The generator on a window: 1 + Q / rate as coefficients at the states' positions."""

    window: Window
    rate: float  # largest total rate: one uniformised step
    coefficients: np.ndarray  # (1 + moves, box)
    peaks: np.ndarray  # (moves,) largest rate of each move
    wrong: np.ndarray  # positions of states where a rate is wrong


def make_operator(chain: Chain, window: Window, allocate: Callable[[tuple[int, ...]], np.ndarray]) -> Operator:
    """Evaluate the rates on a window."""
    lattice = window.lattice
    moves = lattice.moves.shape[1]
    rates = clean_rates(chain, window.states)
    wrong = np.isnan(rates.sum(axis=0)) & window.valid
    rates[:, np.flatnonzero(wrong | ~window.valid)] = 0.0
    total = np.zeros(rates.shape[1])
    coefficients = allocate((1 + moves, window.box))
    peaks = np.zeros(moves)
    for j in range(moves):
        of_move = sum(rates[member] for member in np.flatnonzero(lattice.groups == j))
        coefficients[1 + j, window.positions] = of_move
        peaks[j] = np.max(of_move, initial=0.0)
        total += of_move
    rate = float(total.max(initial=0.0))
    if rate > 0:
        coefficients[1:] /= rate
        total /= rate
    coefficients[0, window.positions] = 1.0 - total
    return Operator(window, rate, coefficients, peaks, window.positions[wrong])
