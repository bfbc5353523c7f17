"""Paths of a user's own simulator, and their sums as doubles over fixed ranges of replicates.

In: a `CallableProblem`, a `Task`. Out: outputs with statuses and the first traceback; blocks of `RealSums`.

Doubles do not add up to the same bits in any order. So paths are summed one after the other within fixed pieces of
`PIECE` replicates, aligned to 0, and pieces are folded in order, whatever the cut into blocks was. As with whole
numbers a piece belongs to the block that holds its last replicate: a block that starts inside a piece runs the piece
from its start; of two blocks with the same piece, the one that ends later has more of it and counts.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from ctmoments.errors import InputError, Status
from ctmoments.model.callable import CallableProblem
from ctmoments.simulate.blocks import Task
from ctmoments.simulate.streams import Purpose, generator, path_keys
from ctmoments.simulate.sumkernel import LEAF

PIECE = 64  # replicates; a multiple of LEAF
CHUNK_BYTES = 2**26
BATCH = 4096  # paths that a vectorised simulator is given at a time


@dataclass(frozen=True)
class RealSums:
    """Sums of real outputs over replicates, a row for each point; `square` is centred on `mean`."""

    paths: np.ndarray  # (n,)
    leaves: np.ndarray  # (n,)
    mean: np.ndarray  # (n, outputs)
    square: np.ndarray  # (n, triangle) Σ (y - mean)(y - mean)'
    leaf1: np.ndarray  # (n, triangle) Σ D over whole leaves, D as in sums.py
    leaf2: np.ndarray  # (n, triangle) Σ D²


@dataclass(frozen=True)
class RealRegion:
    """What the paths of a rectangle leave."""

    sums: RealSums
    statuses: np.ndarray  # (rows, Status)
    events: int


@dataclass(frozen=True)
class Pieces:
    """`RealSums` of single pieces: arrays with the dims (row, piece, ...)."""

    first: int  # index of the first piece
    arrays: tuple[np.ndarray, ...]


def shapes(task: Task, outputs: int) -> list[tuple[int, ...]]:
    """Shapes of the arrays of a block's pieces."""
    head = (task.rows, -(-task.end // PIECE) - task.first // PIECE)
    triangle = outputs * (outputs + 1) // 2
    return [head, head, (*head, outputs), *[(*head, triangle)] * 3]


def real_chunk(outputs: int, replicates: int) -> int:
    """Rows whose pieces take about `CHUNK_BYTES` together."""
    row = 8 * sum(prod(shape) for shape in shapes(Task(0, 1, 0, replicates), outputs))
    return max(CHUNK_BYTES // row, 1)


def call_paths(
    problem: CallableProblem, labels: np.ndarray, theta: np.ndarray, first: int, end: int, seed: int, purpose: Purpose
) -> tuple[np.ndarray, np.ndarray, str]:
    """Outputs (row, replicate, output), statuses (row, replicate) and the first traceback of some paths."""
    if problem.simulate is None:
        raise InputError(f"{problem.name!r} is a Python callable, which no file can hold: give the problem with it.")
    count, length = end - first, len(problem.output_names)
    values = np.full((len(labels), count, length), np.nan)
    note = ""
    run = _call_batches if problem.vectorised else _call_each
    for where, got, text in run(problem, labels, theta, np.arange(first, end), seed, purpose):
        values.reshape(-1, length)[where] = got
        note = note or text
    failed = ~np.isfinite(values).all(axis=2)
    values[failed] = np.nan
    if failed.any() and not note:
        note = "the simulator must return finite values, got others."
    return values, np.where(failed, Status.CALL_FAILED, Status.FINISHED), note


def _call_each(problem, labels, theta, replicates, seed, purpose) -> Iterator[tuple[slice, np.ndarray, str]]:
    """One path at a time."""
    at = 0
    for label, row in zip(labels.tolist(), theta, strict=True):
        for replicate in replicates.tolist():
            rng = generator(seed, purpose, label, replicate)
            got, text = _checked(problem, (len(problem.output_names),), problem.theta_mapping(row), rng)
            yield slice(at, at + 1), got, text
            at += 1


def _call_batches(problem, labels, theta, replicates, seed, purpose) -> Iterator[tuple[slice, np.ndarray, str]]:
    """Many paths at a time; a batch that fails is run path by path, so that a failure stays with its path."""
    rows, count = len(labels), len(replicates)
    length = len(problem.output_names)
    seeds = path_keys(seed, purpose, np.repeat(labels, count), np.tile(replicates, rows))[:, 0].copy()
    points = np.repeat(theta, count, axis=0)
    for low in range(0, rows * count, BATCH):
        part = slice(low, min(low + BATCH, rows * count))
        got, text = _checked(problem, (part.stop - low, length), points[part].copy(), seeds[part].copy())
        if not text:
            yield part, got, ""
            continue
        for at in range(low, part.stop):
            one = slice(at, at + 1)
            yield one, *_checked(problem, (1, length), points[one].copy(), seeds[one].copy())


def _checked(problem: CallableProblem, shape: tuple[int, ...], *arguments) -> tuple[np.ndarray, str]:
    """What the simulator gave, or NaN and why not."""
    assert problem.simulate is not None
    try:
        got = np.asarray(problem.simulate(*arguments), np.float64)
    except Exception:  # whatever a user's code raises is counted
        return np.full(shape, np.nan), traceback.format_exc(limit=-8)
    if got.shape != shape:
        return np.full(shape, np.nan), f"the simulator must return shape {shape}, got {got.shape}."
    if problem.vectorised or np.isfinite(got).all():
        return got, ""
    return got, f"the simulator must return finite values, got {got.tolist()}."


def call_block(
    problem: CallableProblem, labels: np.ndarray, theta: np.ndarray, task: Task, seed: int, purpose: Purpose
) -> tuple[Pieces, np.ndarray, str, float]:
    """A task: its pieces, paths by status, the first traceback, seconds."""
    begin = time.perf_counter()
    before = task.first - task.first % PIECE
    values, status, note = call_paths(problem, labels, theta, before, task.end, seed, purpose)
    counts = np.stack([(status[:, task.first - before :] == s).sum(axis=1) for s in Status], axis=1)
    columns = [
        tuple(np.stack(parts) for parts in zip(*(_piece(y) for y in values[:, low : low + PIECE]), strict=True))
        for low in range(0, task.end - before, PIECE)
    ]
    arrays = tuple(np.stack(parts, axis=1) for parts in zip(*columns, strict=True))
    return Pieces(before // PIECE, arrays), counts, note, time.perf_counter() - begin


def _piece(values: np.ndarray) -> tuple[np.ndarray, ...]:
    """The sums of up to PIECE paths of one point, in order; failed ones are NaN and left out."""
    length = values.shape[1]
    i, j = np.tril_indices(length)
    good = np.asarray(np.isfinite(values).all(axis=1))
    kept = values[good]
    mean = _in_order(kept) / max(len(kept), 1)
    off = kept - mean
    leaves, leaf1, leaf2 = 0, np.zeros(len(i)), np.zeros(len(i))
    for low in range(0, len(values) - LEAF + 1, LEAF):
        if good[low : low + LEAF].all():
            y = values[low : low + LEAF] - mean
            total = _in_order(y)
            d = LEAF * _in_order(y[:, i] * y[:, j]) - total[i] * total[j]
            leaves, leaf1, leaf2 = leaves + 1, leaf1 + d, leaf2 + d * d
    return np.array(len(kept)), np.array(leaves), mean, _in_order(off[:, i] * off[:, j]), leaf1, leaf2


def _in_order(rows: np.ndarray) -> np.ndarray:
    """The sum of rows, one after the other: NumPy's own order may depend on shape and machine."""
    total = np.zeros(rows.shape[1])
    for row in rows:
        total = total + row
    return total


def fold(parts: list[tuple[Task, Pieces]], rows: int, outputs: int, replicates: int) -> RealSums:
    """Pieces of blocks, rows counted from 0, as the sums of each row."""
    whole = [np.zeros(shape) for shape in shapes(Task(0, rows, 0, replicates), outputs)]
    for task, pieces in sorted(parts, key=lambda part: part[0].end):  # the later end has more of a shared piece
        for mine, theirs in zip(whole, pieces.arrays, strict=True):
            mine[task.row_first : task.row_end, pieces.first : pieces.first + theirs.shape[1]] = theirs
    i, j = np.tril_indices(outputs)
    total = [array[:, 0].copy() for array in whole]
    for index in range(1, whole[0].shape[1]):
        n, leaves, mean, square, leaf1, leaf2 = (array[:, index] for array in whole)
        both = np.maximum(total[0] + n, 1)[:, None]  # Chan, Golub & LeVeque 1983
        step = mean - total[2]
        weight = total[0][:, None] * n[:, None] / both
        total[3] = total[3] + square + step[:, i] * step[:, j] * weight
        total[2] = total[2] + step * (n[:, None] / both)
        total[0], total[1] = total[0] + n, total[1] + leaves
        total[4], total[5] = total[4] + leaf1, total[5] + leaf2
    return RealSums(total[0].astype(np.int64), total[1].astype(np.int64), *total[2:])
