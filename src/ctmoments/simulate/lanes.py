"""The CPU driver: blocks of paths over threads, each thread a compiled kernel over many lanes.

In: a `Prepared` job (network, columns, start, keys) and ranges of replicates. Out: blocks of outputs with status and
events, in any order; a path depends on its address alone. Ctrl-C sets a flag that kernels look at a few thousand
times a second.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import xarray as xr

from ctmoments.errors import InputError
from ctmoments.model.problem import Problem
from ctmoments.simulate.context import CLOCK_LIMIT, Cell, padded
from ctmoments.simulate.direct import DirectKernel
from ctmoments.simulate.engine import built_once, compile_function, vector_width
from ctmoments.simulate.graph import build_graph
from ctmoments.simulate.network import MAX_EVENTS, Network, check_reach, column_values, lower, start_values, watched
from ctmoments.simulate.pathkernel import PathKernel
from ctmoments.simulate.sparse import SparseKernel
from ctmoments.simulate.streams import GOLDEN, Purpose, mix64, prefix_keys
from ctmoments.simulate.sumkernel import LEAF
from ctmoments.simulate.sums import Ranges

GROUPS = 4  # vectors of lanes in flight: 32 lanes on AVX-512; more gain 2 %, and lose it at the end of short jobs
SPARSE_LANES = 8  # paths in flight in a large network: more do not fit the caches
BLOCK_PATHS = 16384
BLOCK_BYTES = 2**24

Result = TypeVar("Result")


class Piece(Protocol):
    """Something to run: `Ranges`, or a task of a campaign."""

    @property
    def paths(self) -> int: ...


Work = TypeVar("Work", bound=Piece)


@dataclass(frozen=True)
class Prepared:
    """A problem at parameter values, checked and lowered: all that kernels need."""

    problem: Problem
    network: Network
    columns: np.ndarray  # (n, columns)
    start: np.ndarray  # (n, slots)
    keys: np.ndarray  # (n, 2) uint64: the address up to the point
    max_events: int


@dataclass(frozen=True)
class Lockstep:
    """How many lanes run in step. Results do not depend on it."""

    width: int
    groups: int = GROUPS


@dataclass(frozen=True)
class Block:
    """Paths that were simulated, as they lie in `ranges`."""

    ranges: Ranges
    outputs: np.ndarray  # (paths, padded(outputs)) int64
    status: np.ndarray  # (paths,) int64
    events: np.ndarray  # (paths,) int64


class Switch:
    """A flag in memory that every kernel of a job looks at."""

    def __init__(self) -> None:
        self.stop = np.zeros(1, np.int64)

    def off(self) -> None:
        """Ask every kernel to return soon."""
        self.stop[0] = 1


def prepare(
    problem: Problem, theta: xr.DataArray, seed: int, purpose: Purpose, max_events: int = MAX_EVENTS
) -> Prepared:
    """Check and lower everything before anything runs."""
    network = lower(problem)
    if network.sparse:
        network = build_graph(network).network
    values = theta.values
    start = start_values(problem, network, values)
    check_reach(network, start, max_events)
    points = theta["point"].values
    if (points < 0).any():
        raise InputError(f"`point` must be whole numbers from 0, got {points.min()}.")
    with np.errstate(over="ignore"):
        keys = mix64((prefix_keys(seed, purpose) ^ points.astype(np.uint64)[:, None]) + np.uint64(GOLDEN))
    columns = np.ascontiguousarray(column_values(problem, network, values))
    network = watched(network, columns)
    return Prepared(problem, network, columns, np.ascontiguousarray(start), np.ascontiguousarray(keys), max_events)


def thread_count(threads: int | None) -> int:
    """`threads`, or CTMOMENTS_THREADS, or all cores that this process may use."""
    asked = threads if threads is not None else os.environ.get("CTMOMENTS_THREADS") or None
    if asked is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        number = int(asked) if isinstance(asked, str) else operator.index(asked)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise InputError(f"`threads` (or CTMOMENTS_THREADS) must be a whole number from 1, got {asked!r}.")
    return number


@dataclass(frozen=True)
class Compiled:
    """A kernel ready to run."""

    simulate: Callable[[int], int]
    cells: int  # of lane memory
    tables: np.ndarray


@built_once(maxsize=64)
def _compiled(network: Network, width: int, groups: int) -> Compiled:
    if network.sparse:
        graph = build_graph(network)
        kernel: PathKernel = SparseKernel(graph, width, max(1, SPARSE_LANES // width))
        tables = graph.tables
    else:
        kernel, tables = DirectKernel(network, width, groups), np.zeros(1, np.int64)
    return Compiled(compile_function(kernel.text(), "simulate"), kernel.cells, tables)


def run_block(prepared: Prepared, ranges: Ranges, switch: Switch, lockstep: Lockstep | None = None) -> Block:
    """Simulate the paths of `ranges` in this thread."""
    step = lockstep or Lockstep(vector_width())
    compiled = _compiled(prepared.network, step.width, step.groups)
    return run_kernel(compiled, prepared, ranges, switch, np.array(prepared.network.times), {})


def run_kernel(
    compiled: Compiled, prepared: Prepared, ranges: Ranges, switch: Switch, marks: np.ndarray,
    more: Mapping[Cell, np.ndarray | float],
) -> Block:  # fmt: skip
    """Run a kernel over the paths of `ranges`; `marks` are its marked times, `more` what else its context holds."""
    paths = ranges.paths
    row = np.repeat(ranges.row, ranges.count)
    replicate = (np.arange(paths) - np.repeat(ranges.offset - ranges.first, ranges.count)).astype(np.uint64)
    outputs = np.zeros((paths, padded(prepared.network.outputs)), np.int64)
    status, events, done = np.zeros(paths, np.int64), np.zeros(paths, np.int64), np.zeros(1, np.int64)
    memory = np.zeros(compiled.cells + 8)
    lanes = memory[(-memory.ctypes.data // 8) % 8 :]  # vectors want 64-byte addresses
    context = np.zeros(len(Cell), np.uint64)
    bound = CLOCK_LIMIT / marks[-1] if marks[-1] > 0 else np.inf
    holds: dict[Cell, np.ndarray | float] = {
        Cell.LANES: lanes, Cell.ROW: row, Cell.REPLICATE: replicate, Cell.KEYS: prepared.keys,
        Cell.COLUMNS: prepared.columns, Cell.START: prepared.start, Cell.TIMES: marks, Cell.OUTPUTS: outputs,
        Cell.STATUS: status, Cell.EVENTS: events, Cell.STOP: switch.stop, Cell.DONE: done,
        Cell.TABLES: compiled.tables, Cell.PATHS: paths, Cell.MAX_EVENTS: prepared.max_events,
        Cell.MARKS: len(marks), Cell.RATE_BOUND: bound, **more,
    }  # fmt: skip
    for cell, value in holds.items():
        if isinstance(value, np.ndarray):
            context[cell] = value.ctypes.data
        else:
            context[cell] = value if isinstance(value, int) else np.float64(value).view(np.uint64)
    compiled.simulate(context.ctypes.data)
    if switch.stop[0] and done[0] < paths:
        raise Stopped
    return Block(ranges, outputs, status, events)


class Stopped(Exception):
    """A kernel returned early because it was asked to."""


class Pace:
    """How many paths a block holds: few at first, then about `SECONDS` of work, within bounds of memory.

    Lanes run idle at the end of a block, so blocks are as long as patience allows; with several threads the last ones
    are short, so that all threads end together. Results do not depend on it.
    """

    SECONDS = 0.4
    FEWEST = 256
    LAST = 1024  # paths of the shortest block that the end of a job is cut into

    def __init__(self, network: Network, paths: int, threads: int) -> None:
        memory = BLOCK_BYTES // (8 * padded(network.outputs))
        self.most = max(min(memory, BLOCK_PATHS, paths), self.FEWEST)
        self.paths = min(self.most, 4096)
        self.left, self.threads = paths, threads

    def take(self) -> int:
        """The length of the next block."""
        share = self.left if self.threads == 1 else max(-(-self.left // (2 * self.threads)), self.LAST)
        taken = min(self.paths, max(share, self.FEWEST))
        self.left = max(self.left - taken, 0)
        return taken

    def learn(self, paths: int, seconds: float) -> None:
        """Move towards blocks of the wanted length."""
        wanted = paths * self.SECONDS / max(seconds, 1e-6)
        self.paths = int(min(max(wanted, self.FEWEST), 4 * self.paths, self.most))


def cut(points: int, first: int, replicates: int, longest: int, pace: Callable[[], int]) -> Iterator[Ranges]:
    """All replicates of all points, point by point, as blocks of about `pace()` paths.

    Ranges hold at most `longest` replicates of one point and begin at whole leaves after `first`.
    """
    point, done = 0, 0
    while point < points:
        wanted = -(-max(pace(), 1) // LEAF) * LEAF
        here = min(wanted, replicates - done)
        whole = min(wanted // replicates, points - point) if done == 0 else 0
        rows = np.arange(point, point + max(whole, 1))
        begin = np.arange(first + done, first + done + here, longest)
        end = np.minimum(begin + longest, first + done + here)
        yield Ranges(np.repeat(rows, len(begin)), np.tile(begin, len(rows)), np.tile(end - begin, len(rows)))
        done += here
        if done == replicates:
            point, done = point + len(rows), 0


def run_blocks(
    work: Callable[[Work, Switch], Result],
    blocks: Iterator[Work],
    threads: int,
    pace: Pace | None,
    report: Callable[[float], None],
) -> Generator[Result, None, None]:
    """Results of `work` over blocks, as they come; never more than two blocks a thread in flight."""
    switch = Switch()
    done = 0

    def timed(ranges: Work) -> tuple[Result, int, float]:
        begin = time.perf_counter()
        result = work(ranges, switch)
        return result, ranges.paths, time.perf_counter() - begin

    with ThreadPoolExecutor(threads) as pool:
        running: set[Future[tuple[Result, int, float]]] = set()
        try:
            more = True
            while more or running:
                while more and len(running) < 2 * threads:
                    ranges = next(blocks, None)
                    more = ranges is not None
                    if ranges is not None:
                        running.add(pool.submit(timed, ranges))
                finished, running = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in finished:
                    result, paths, seconds = future.result()
                    done += paths
                    if pace is not None:
                        pace.learn(paths, seconds)
                    yield result
                report(done)
        except BaseException:
            switch.off()
            raise
