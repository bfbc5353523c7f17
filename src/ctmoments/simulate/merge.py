"""What a store holds in the end: sums merged over blocks, and their hash, whatever the cut into blocks was.

In: an open store. Out: chunks of rows with `Region`s, in order; memory is that of a chunk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np

from ctmoments.errors import FileError, Status
from ctmoments.simulate.blocks import Region, Task, Totals
from ctmoments.simulate.callables import PIECE, Pieces, RealRegion, fold, real_chunk, shapes
from ctmoments.simulate.coverage import missing_tasks
from ctmoments.simulate.encode import pack, unpack
from ctmoments.simulate.store import BlockRow, Store, StoredBlock
from ctmoments.simulate.sums import Sums

CHUNK = 2048  # rows merged at a time: blocks are read again for each chunk, so not too few


def block_region(block: StoredBlock, outputs: int) -> Region:
    """The sums of a stored block."""
    rows, triangle = block.task.rows, outputs * (outputs + 1) // 2
    shapes = [(rows,), (rows,), (rows, outputs), *[(rows, triangle)] * 3]
    return Region(Sums(*unpack(block.sums, shapes)), block_statuses(block), block.events)


def block_statuses(block: StoredBlock) -> np.ndarray:
    """Paths by status of a stored block: (rows, Status)."""
    return unpack(block.statuses, [(block.task.rows, len(Status))])[0]


def merged(
    store: Store, edition: int, outputs: int, rows: int
) -> Iterator[tuple[int, Region] | tuple[int, RealRegion]]:
    """(first row, sums of some rows), all rows in order. Events are counted with a block's first row."""
    real = "callable" in store.meta("identity")
    replicates = store.meta("replicates")
    chunk = real_chunk(outputs, replicates) if real else CHUNK
    blocks = store.blocks(edition)
    first = np.array([block.task.row_first for block in blocks], np.int64)
    end = np.array([block.task.row_end for block in blocks], np.int64)
    for low in range(0, rows, chunk):
        high = min(low + chunk, rows)
        inside = [blocks[index] for index in np.flatnonzero((first < high) & (end > low))]
        if real:
            yield low, _real_rows(store, inside, outputs, low, high, replicates)
            continue
        totals = Totals(high - low, outputs)
        for block in inside:
            _add_rows(totals, store, block, outputs, low, high)
        yield low, Region(totals.sums, totals.statuses, totals.events)


def _inside(row: BlockRow, low: int, high: int) -> tuple[slice, int, int]:
    """Which rows of a block lie in low..high, and where there."""
    begin, stop = max(row.task.row_first, low), min(row.task.row_end, high)
    return slice(begin - row.task.row_first, stop - row.task.row_first), begin - low, stop - low


def _add_rows(totals: Totals, store: Store, row: BlockRow, outputs: int, low: int, high: int) -> None:
    region = block_region(store.read_block(row.number), outputs)
    cut, begin, stop = _inside(row, low, high)
    sums = Sums(*(getattr(region.sums, field.name)[cut] for field in fields(Sums)))
    totals.add(np.arange(begin, stop), sums, region.statuses[cut], 0 if cut.start else region.events)


def _real_rows(store: Store, inside: list[BlockRow], outputs: int, low: int, high: int, replicates: int) -> RealRegion:
    statuses = np.zeros((high - low, len(Status)), np.int64)
    parts = []
    for row in inside:
        block = store.read_block(row.number)
        cut, begin, stop = _inside(row, low, high)
        arrays = tuple(array[cut] for array in unpack(block.sums, shapes(block.task, outputs)))
        parts.append((Task(begin, stop, row.task.first, row.task.end), Pieces(row.task.first // PIECE, arrays)))
        statuses[begin:stop] += block_statuses(block)[cut]
    return RealRegion(fold(parts, high - low, outputs, replicates), statuses, 0)


def require_complete(store: Store, rows: int, replicates: int, blocks: Sequence[Task]) -> None:
    """Refuse to give results of a campaign that is not finished."""
    missing = missing_tasks(blocks, rows, replicates)
    if missing:
        paths = sum(task.paths for task in missing)
        raise FileError(
            f"{store.path} must be finished: {paths:,} of {rows * replicates:,} paths are missing. Run it with resume."
        )


def store_hash(path: str) -> str:
    """A hash over who the campaign is and its merged sums: the same for any cut, order, number of workers.

    Like every reader it may stand beside a writer; a campaign that is not finished is refused.
    """
    with Store(path) as store:
        edition, outputs, times = store.editions()[-1]
        identity, replicates = store.meta("identity"), store.meta("replicates")
        labels, theta = store.design(len(identity["parameters"]))
        require_complete(store, len(theta), replicates, [block.task for block in store.blocks(edition)])
        digest = hashlib.sha256(json.dumps([identity, times, replicates], sort_keys=True).encode())
        digest.update(pack([labels, theta]))
        events = 0
        for _, region in merged(store, edition, outputs, len(theta)):
            digest.update(pack([*(getattr(region.sums, f.name) for f in fields(region.sums)), region.statuses]))
            events += region.events
        digest.update(str(events).encode())
        return digest.hexdigest()
