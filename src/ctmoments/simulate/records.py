"""Records along paths: a driver of `recordkernel.py`.

In: a `Prepared` job, ranges of replicates, a `Cutting` of paths into steps. Out: a `Record`: outputs, and the steps of
every path that did not fail, path by path, in the order of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ctmoments.simulate.context import Cell
from ctmoments.simulate.engine import built_once, compile_function, vector_width
from ctmoments.simulate.lanes import Block, Compiled, Lockstep, Prepared, Switch, run_kernel
from ctmoments.simulate.network import Network
from ctmoments.simulate.recordkernel import RecordKernel, row_cells
from ctmoments.simulate.sums import Ranges

ROOM = 64  # steps a path that a block has room for at first


@dataclass(frozen=True)
class Cutting:
    """Where steps close: after a movement of `reach`, and at `grid` times besides the output times."""

    reach: float
    grid: tuple[float, ...] = ()


@dataclass(frozen=True)
class Steps:
    """Steps of paths, path by path; `path` is the index in the block."""

    path: np.ndarray  # (step,) int64
    time: np.ndarray  # (step,) where it begins
    amounts: np.ndarray  # (step, slot) what it begins with
    compensated: np.ndarray  # (step, reaction) M
    variation: np.ndarray  # (step, reaction) Q


@dataclass(frozen=True)
class Record:
    """Paths with their steps."""

    block: Block
    steps: Steps


@built_once(maxsize=16)
def _compiled(network: Network, width: int, groups: int) -> Compiled:
    kernel = RecordKernel(network, width, groups)
    return Compiled(compile_function(kernel.text(), "simulate"), kernel.cells, np.zeros(1, np.int64))


def record_block(
    prepared: Prepared, ranges: Ranges, cutting: Cutting, switch: Switch, lockstep: Lockstep | None = None
) -> Record:
    """Simulate the paths of `ranges` in this thread, and keep their steps."""
    network = prepared.network
    step = lockstep or Lockstep(vector_width())
    compiled = _compiled(network, step.width, step.groups)
    times = np.array(network.times)
    marks = np.union1d(times, [t for t in cutting.grid if 0 < t < times[-1]])
    output_of = np.full(len(marks), -1, np.int64)
    output_of[np.searchsorted(marks, times)] = np.arange(len(times))
    room = ROOM * ranges.paths
    while True:
        counts = np.array([0, room], np.int64)
        rows = np.empty((room, row_cells(network)))
        more = {Cell.OUTPUT_OF: output_of, Cell.STEPS: counts, Cell.STEP_ROWS: rows, Cell.REACH: float(cutting.reach)}
        block = run_kernel(compiled, prepared, ranges, switch, marks, more)
        if counts[0] <= room:
            return Record(block, _sorted(rows[: counts[0]], len(network.species), len(network.rates)))
        room = int(counts[0])  # a path depends on its address alone, so as many are enough


def _sorted(rows: np.ndarray, species: int, reactions: int) -> Steps:
    path = np.ascontiguousarray(rows[:, 0]).view(np.int64)
    order = np.argsort(path, kind="stable")
    rows = rows[order]
    cuts = np.cumsum([2, species, reactions, reactions])
    return Steps(path[order], rows[:, 1], *(rows[:, a:b] for a, b in pairwise(cuts)))
