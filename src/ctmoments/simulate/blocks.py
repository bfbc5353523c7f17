"""Blocks of a campaign: a rectangle of points and replicates, simulated to its sums.

In: a `Task` (rows of the design, a range of replicates) and a prepared job. Out: `Region`: sums, statuses, events.

Any cut of the replicates adds up to the same sums: products over a whole leaf belong to the block that holds the
leaf's last replicate, and y0 y0' of replicate 0 to the block that holds replicate 1. A block that starts inside a
leaf simulates the leaf's earlier replicates again (at most 7) for that; what they add otherwise is taken off. A block
of replicate 0 alone is therefore Σy and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from ctmoments.errors import Status
from ctmoments.simulate.lanes import Lockstep, Pace, Prepared, Switch, cut, run_block
from ctmoments.simulate.sumkernel import LEAF, RANGE
from ctmoments.simulate.sums import Ranges, Sums, exact_pair, sum_block

CHUNK_BYTES = 2**17  # rows are taken so many bytes of a triangle at a time: small arrays need no fresh pages


@dataclass(frozen=True, order=True)
class Task:
    """Rows row_first..row_end of a design, replicates first..end of each. Ends are exclusive."""

    row_first: int
    row_end: int
    first: int
    end: int

    @property
    def rows(self) -> int:
        """Number of points."""
        return self.row_end - self.row_first

    @property
    def paths(self) -> int:
        """Number of paths."""
        return self.rows * (self.end - self.first)


@dataclass(frozen=True)
class Region:
    """What the paths of a rectangle leave."""

    sums: Sums
    statuses: np.ndarray  # (rows, Status)
    events: int


def chunk_rows(outputs: int) -> int:
    """How many rows to take at a time where all might not fit."""
    return max(1, CHUNK_BYTES // (8 * outputs * (outputs + 1) // 2))


class Totals:
    """Sums that grow in place: adding a block costs what the block holds, not what the totals hold."""

    def __init__(self, points: int, outputs: int) -> None:
        zeros = Sums.zeros(points, outputs)
        self._arrays = {field.name: getattr(zeros, field.name) for field in fields(Sums)}
        self.statuses = np.zeros((points, len(Status)), np.int64)
        self.events = 0

    def add(self, rows: np.ndarray, sums: Sums, statuses: np.ndarray, events: int) -> None:
        """Add sums at `rows` (each row once)."""
        for name, array in self._arrays.items():
            theirs = getattr(sums, name)
            if not theirs.any():
                continue
            mine, theirs = exact_pair(array[rows], theirs)
            if mine.dtype != array.dtype:
                array = self._arrays[name] = array.astype(object)
            array[rows] = mine + theirs
        self.statuses[rows] += statuses
        self.events += events

    @property
    def sums(self) -> Sums:
        """The sums so far."""
        return Sums(**self._arrays)

    def chunks(self) -> Iterator[tuple[int, Region]]:
        """(first row, totals of some rows), all rows in order; the first has the events of all."""
        rows = chunk_rows(self._arrays["sum1"].shape[1])
        for low in range(0, len(self.statuses), rows):
            cut = slice(low, low + rows)
            sums = Sums(**{name: array[cut] for name, array in self._arrays.items()})
            yield low, Region(sums, self.statuses[cut], 0 if low else self.events)


def block_sums(
    prepared: Prepared, ranges: Ranges, switch: Switch, lockstep: Lockstep | None = None
) -> tuple[np.ndarray, Sums, np.ndarray, int]:
    """Simulate ranges and keep their sums: rows, sums, paths by status, events."""
    block = run_block(prepared, ranges, switch, lockstep)
    rows, sums = sum_block(block.outputs, block.status, ranges, prepared.network.outputs)
    row_of_path = np.searchsorted(rows, np.repeat(ranges.row, ranges.count))
    flat = np.bincount(row_of_path * len(Status) + block.status, minlength=len(rows) * len(Status))
    return rows, sums, flat.reshape(len(rows), len(Status)), int(block.events.sum())


def region_sums(prepared: Prepared, task: Task, switch: Switch, lockstep: Lockstep | None = None) -> Region:
    """The sums of a task. `prepared` holds the task's rows and no others."""
    before = task.first - task.first % LEAF
    region = _add_up(prepared, task.rows, before, task.end, switch, lockstep)
    sums = region.sums
    if before < task.first:
        again = _add_up(prepared, task.rows, before, task.first, switch, lockstep)
        sums = _without(sums, again.sums, products=task.first > 1)
        region = Region(sums, region.statuses - again.statuses, region.events - again.events)
    if task.end == 1:
        sums = replace(sums, sum2=np.zeros_like(sums.sum2))
    return replace(region, sums=sums)


def _add_up(prepared: Prepared, rows: int, first: int, end: int, switch: Switch, lockstep: Lockstep | None) -> Region:
    totals = Totals(rows, prepared.network.outputs)
    # a task is short already: as long blocks as memory allows, since lanes idle at the end of each
    longest = Pace(prepared.network, rows * (end - first), 1).most
    for ranges in cut(rows, first, end - first, RANGE, lambda: longest):
        totals.add(*block_sums(prepared, ranges, switch, lockstep))
    return Region(totals.sums, totals.statuses, totals.events)


def _without(sums: Sums, less: Sums, products: bool) -> Sums:
    """Sums without those of earlier replicates; whole leaves stay, and where not `products`, Σyy' too."""

    def minus(name: str) -> np.ndarray:
        mine, theirs = exact_pair(getattr(sums, name), getattr(less, name))
        return mine - theirs

    sum2 = minus("sum2") if products else sums.sum2
    return replace(sums, paths=minus("paths"), sum1=minus("sum1"), sum2=sum2)
