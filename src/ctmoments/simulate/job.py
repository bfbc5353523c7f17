"""What a worker must know to run any block of a campaign, and how it runs one.

In: a `Job` (small, picklable, sent once) and a `Task`. Out: a `StoredBlock` and its checksum, ready to be written.
A block depends on job and task alone: who runs it, when, how often, makes no difference.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields

import numpy as np
import xarray as xr

from ctmoments.errors import Status
from ctmoments.model.callable import CallableProblem
from ctmoments.model.problem import Problem
from ctmoments.simulate.blocks import Task, region_sums
from ctmoments.simulate.callables import call_block
from ctmoments.simulate.encode import pack
from ctmoments.simulate.lanes import Switch, prepare
from ctmoments.simulate.store import StoredBlock
from ctmoments.simulate.streams import Purpose
from ctmoments.simulate.sums import Sums


@dataclass(frozen=True, eq=False)
class Job:
    """A campaign as its workers see it."""

    problem: Problem | CallableProblem
    labels: np.ndarray  # (rows,) the coordinate `point`: part of each path's address
    theta: np.ndarray  # (rows, parameters)
    seed: int
    purpose: Purpose
    max_events: int
    edition: int

    def rows(self, first: int, end: int) -> xr.DataArray:
        """Parameter values of some rows."""
        coords = {"point": self.labels[first:end], "parameter": list(self.problem.space.parameters)}
        return xr.DataArray(self.theta[first:end], coords, ("point", "parameter"))


@dataclass(frozen=True)
class Finished:
    """A block as it travels: with the checksum taken where it was made."""

    block: StoredBlock
    checksum: bytes


def run_task(job: Job, task: Task, switch: Switch) -> Finished:
    """Simulate a task."""
    if isinstance(job.problem, CallableProblem):
        rows = slice(task.row_first, task.row_end)
        pieces, statuses, note, seconds = call_block(
            job.problem, job.labels[rows], job.theta[rows], task, job.seed, job.purpose
        )
        return finished(job, task, pack(pieces.arrays), statuses, 0, seconds, note)
    begin = time.perf_counter()
    prepared = prepare(job.problem, job.rows(task.row_first, task.row_end), job.seed, job.purpose, job.max_events)
    region = region_sums(prepared, task, switch)
    sums = pack(getattr(region.sums, field.name) for field in fields(Sums))
    return finished(job, task, sums, region.statuses, region.events, time.perf_counter() - begin)


def finished(
    job: Job, task: Task, sums: bytes, statuses: np.ndarray, events: int, seconds: float, note: str = ""
) -> Finished:
    """A block as it is stored."""
    failed = int(statuses[:, Status.ABSORBED + 1 :].sum())
    block = StoredBlock(task, sums, pack([statuses]), failed, events, note, seconds)
    return Finished(block, block.checksum(job.edition))
