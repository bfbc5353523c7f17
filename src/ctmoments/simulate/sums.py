"""Sums that paths leave: exact whole numbers, so that any split over threads, blocks and machines gives the same bits.

In: a block of outputs (int64), cut into ranges of consecutive replicates of one point. Out: `Sums`, one row for each
point: Σy, Σyyᵀ, and over whole leaves of `LEAF` aligned replicates ΣD and ΣD² with D = LEAF·Σyyᵀ - ΣyΣyᵀ, from which
the standard error of the covariance follows. Symmetric matrices are kept as their lower triangle, row by row.
Arrays are int64, or Python integers where int64 could overflow.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from ctmoments.errors import Status
from ctmoments.simulate.context import padded
from ctmoments.simulate.engine import built_once, compile_function, vector_width
from ctmoments.simulate.sumkernel import LARGEST_DEVIATION, LEAF, RANGE, SPLIT, WIDEST, SumCell, emit_sums, scratch_rows

SAFE = 2.0**62  # int64 arithmetic stays exact below
WORK_BYTES = 2**19  # sums of a batch of ranges: what stays in the cache and costs no fresh pages


@dataclass(frozen=True)
class Sums:
    """Exact sums of outputs over replicates, a row for each point."""

    paths: np.ndarray  # (n,) paths summed: those that did not fail
    leaves: np.ndarray  # (n,) whole leaves among them
    sum1: np.ndarray  # (n, outputs)
    sum2: np.ndarray  # (n, triangle)
    leaf1: np.ndarray  # (n, triangle)
    leaf2: np.ndarray  # (n, triangle)

    @classmethod
    def zeros(cls, points: int, outputs: int) -> Sums:
        """No paths yet."""
        triangle = (points, outputs * (outputs + 1) // 2)
        shapes = ((points,), (points,), (points, outputs), triangle, triangle, triangle)
        return cls(*(np.zeros(shape, np.int64) for shape in shapes))

    def plus(self, rows: np.ndarray, other: Sums) -> Sums:
        """These sums with those of `other` added at `rows` (each row once)."""
        merged = []
        for field in fields(Sums):
            mine, theirs = exact_pair(getattr(self, field.name), getattr(other, field.name))
            mine = mine.copy()
            mine[rows] = mine[rows] + theirs
            merged.append(mine)
        return Sums(*merged)


def largest(array: np.ndarray) -> float:
    """The largest size in an array of whole numbers, as a double (0 for an empty one)."""
    if array.size == 0:
        return 0.0
    return max(abs(float(array.max())), abs(float(array.min())))


def exact_pair(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both arrays in a dtype in which their sum is exact."""
    if a.dtype == object or b.dtype == object or largest(a) + largest(b) >= SAFE:
        return a.astype(object), b.astype(object)
    return a, b


def add_by_row(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Exact sums of consecutive rows: from each start to the next."""
    if len(starts) == len(values):
        return values
    longest = int(np.diff(starts, append=len(values)).max())
    if values.dtype != object and largest(values) * longest >= SAFE:
        values = values.astype(object)
    return np.add.reduceat(values, starts, axis=0)


@dataclass(frozen=True)
class Ranges:
    """Consecutive replicates of one point each, as they lie in a block, points in order."""

    row: np.ndarray  # row of parameter values, int64
    first: np.ndarray  # first replicate, int64
    count: np.ndarray  # number of replicates, int64; at most RANGE

    @property
    def offset(self) -> np.ndarray:
        """Index of each range's first path in the block."""
        return np.cumsum(self.count) - self.count

    @property
    def paths(self) -> int:
        """Paths in the block."""
        return int(self.count.sum())


@built_once(maxsize=32)
def _kernel(width: int, length: int):
    return compile_function(emit_sums(width, length), "add_up")


def sum_block(outputs: np.ndarray, status: np.ndarray, ranges: Ranges, length: int) -> tuple[np.ndarray, Sums]:
    """The rows of a block and their sums. `outputs` is (paths, padded(length)) int64, `status` (paths,) int64."""
    offset = np.ascontiguousarray(ranges.offset, np.int64)
    stride = padded(length)
    batch = max(1, WORK_BYTES // (8 * 5 * length * stride))
    squares = np.empty((min(batch, len(offset)), 5, length, stride))
    scratch = np.zeros((scratch_rows(), stride))
    lower = np.tril_indices(length)
    parts = []
    for begin in range(0, len(offset), batch):
        taken = slice(begin, begin + batch)
        parts.append(_sum_ranges(outputs, status, offset[taken], ranges.count[taken], squares, scratch, lower))
    sums = Sums(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Sums)))
    starts = np.flatnonzero(np.diff(ranges.row, prepend=-1))
    return ranges.row[starts], Sums(*(add_by_row(getattr(sums, field.name), starts) for field in fields(Sums)))


def _sum_ranges(outputs, status, offset, count, squares, scratch, lower) -> Sums:
    """Sums of each range, by the kernel; `squares` and `scratch` are memory to work in."""
    length, stride = squares.shape[2:]
    squares = squares[: len(offset)]
    squares.fill(0.0)
    sum1 = np.zeros((len(offset), stride))
    paths, leaves = np.zeros((2, len(offset)), np.int64)
    deviation = np.zeros((len(offset), WIDEST))
    context = np.zeros(len(SumCell), np.uint64)
    for cell, array in (
        (SumCell.FIRST, offset), (SumCell.COUNT, count), (SumCell.OUTPUTS, outputs), (SumCell.STATUS, status),
        (SumCell.SCRATCH, scratch), (SumCell.SUM1, sum1), (SumCell.SQUARES, squares), (SumCell.PATHS, paths),
        (SumCell.LEAVES, leaves), (SumCell.DEVIATION, deviation),
    ):  # fmt: skip
        context[cell] = array.ctypes.data
    context[SumCell.RANGES] = len(offset)
    _kernel(vector_width(), length)(context.ctypes.data)

    wide = np.flatnonzero(deviation.max(axis=1) > LARGEST_DEVIATION)
    sum1[wide], squares[wide] = 0.0, 0.0  # not exact, and perhaps beyond int64: summed below instead
    flat = squares.reshape(len(offset), 5, -1).take(lower[0] * stride + lower[1], axis=2)
    total, d_sum, aa, ab, bb = flat.astype(np.int64).swapaxes(0, 1)
    sums = Sums(paths, leaves, sum1[:, :length].astype(np.int64), total, d_sum, _join_parts(aa, ab, bb))
    sums = _from_reference(outputs[offset, :length], sums, lower)
    if wide.size:
        sums = _with_wide_ranges(sums, wide, outputs[:, :length], status, offset, count, lower)
    return sums


def _join_parts(aa: np.ndarray, ab: np.ndarray, bb: np.ndarray) -> np.ndarray:
    """Σ D² from the parts of D = a * 2^SPLIT + b."""
    if largest(aa) * 2.0 ** (2 * SPLIT) + largest(ab) * 2.0 ** (SPLIT + 1) + largest(bb) >= SAFE:
        aa, ab, bb = (part.astype(object) for part in (aa, ab, bb))
    return aa * 2 ** (2 * SPLIT) + ab * 2 ** (SPLIT + 1) + bb


def _from_reference(reference: np.ndarray, sums: Sums, lower: tuple[np.ndarray, np.ndarray]) -> Sums:
    """Sums of y from sums of y - reference. D does not depend on the reference."""
    sum1, sum2, n = sums.sum1, sums.sum2, sums.paths[:, None]
    top = largest(reference)
    if (top + LARGEST_DEVIATION) * (top + LARGEST_DEVIATION) * RANGE >= SAFE:
        reference, sum1, sum2, n = (part.astype(object) for part in (reference, sum1, sum2, n))
    i, j = lower
    ri, rj = reference[:, i], reference[:, j]
    sum2 = sum2 + ri * sum1[:, j] + sum1[:, i] * rj + n * ri * rj
    return Sums(sums.paths, sums.leaves, sum1 + n * reference, sum2, sums.leaf1, sums.leaf2)


def _with_wide_ranges(sums: Sums, wide, outputs, status, offset, count, lower) -> Sums:
    """Ranges whose deviations are too large for the kernel, in Python integers."""
    i, j = lower
    sum1, sum2, leaf1, leaf2 = (a.astype(object) for a in (sums.sum1, sums.sum2, sums.leaf1, sums.leaf2))
    for r in wide:
        block = outputs[offset[r] : offset[r] + count[r]].astype(object)
        good = status[offset[r] : offset[r] + count[r]] <= Status.ABSORBED
        block[~good] = 0
        whole = [block[k : k + LEAF] for k in range(0, len(block), LEAF) if good[k : k + LEAF].sum() == LEAF]
        d = [LEAF * (leaf[:, i] * leaf[:, j]).sum(axis=0) - leaf.sum(axis=0)[i] * leaf.sum(axis=0)[j] for leaf in whole]
        zero = np.zeros(len(i), object)
        sum1[r], sum2[r] = block.sum(axis=0), (block[:, i] * block[:, j]).sum(axis=0)
        leaf1[r], leaf2[r] = sum(d, zero), sum((part * part for part in d), zero)
    return Sums(sums.paths, sums.leaves, sum1, sum2, leaf1, leaf2)
