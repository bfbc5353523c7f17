"""What is done and what is missing, as rectangles of rows and replicates; and how missing rectangles become tasks.

In: the ranges of the blocks that exist. Out: missing rectangles, then tasks of about the length that a pace asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from ctmoments.errors import FileError
from ctmoments.simulate.blocks import Task
from ctmoments.simulate.sumkernel import RANGE


def missing_tasks(done: Iterable[Task], rows: int, replicates: int) -> list[Task]:
    """Rectangles that cover what `done` does not, rows in order. Blocks that overlap are refused."""
    blocks = sorted(done)
    edges = np.unique([0, rows, *(b.row_first for b in blocks), *(b.row_end for b in blocks)])
    edges = edges[edges <= rows]
    strips: list[list[tuple[int, int]]] = [[] for _ in edges[1:]]
    for block in blocks:
        low, high = np.searchsorted(edges, (block.row_first, min(block.row_end, rows)))
        for strip in strips[low:high]:
            strip.append((block.first, block.end))
    missing: list[Task] = []
    for row_first, row_end, held in zip(edges[:-1].tolist(), edges[1:].tolist(), strips, strict=True):
        for first, end in _gaps(held, replicates, row_first):
            missing.append(Task(row_first, row_end, first, end))
    return _joined(missing)


def _gaps(held: list[tuple[int, int]], replicates: int, row: int) -> Iterator[tuple[int, int]]:
    """Ranges of replicates between those that are held."""
    at = 0
    for first, end in sorted(held):
        if first < at:
            raise FileError(f"blocks must not overlap, got replicate {first} of row {row} twice.")
        if first > at:
            yield at, first
        at = end
    if at < replicates:
        yield at, replicates


def _joined(tasks: list[Task]) -> list[Task]:
    """Rectangles above each other with the same replicates as one."""
    joined: list[Task] = []
    open_at: dict[tuple[int, int, int], int] = {}  # (row_end, first, end) -> index of the rectangle that ends there
    for task in tasks:
        index = open_at.pop((task.row_first, task.first, task.end), None)
        if index is None:
            index = len(joined)
            joined.append(task)
        else:
            joined[index] = Task(joined[index].row_first, task.row_end, task.first, task.end)
        open_at[task.row_end, task.first, task.end] = index
    return joined


def cut_tasks(missing: Sequence[Task], pace: Callable[[], int], aligned: int = RANGE) -> Iterator[Task]:
    """Tasks of about `pace()` paths: whole rows where they are short, else pieces of one row cut at multiples."""
    for region in missing:
        length = region.end - region.first
        row = region.row_first
        while row < region.row_end:
            wanted = pace()
            if length <= max(wanted, aligned):
                rows = min(max(wanted // length, 1), region.row_end - row)
                yield Task(row, row + rows, region.first, region.end)
                row += rows
                continue
            at = region.first
            while at < region.end:
                end = (at + max(pace(), aligned)) // aligned * aligned
                end = min(end, region.end)
                yield Task(row, row + 1, at, end)
                at = end
            row += 1
