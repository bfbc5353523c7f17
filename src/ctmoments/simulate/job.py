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
from ctmoments.model.problem import Problem
from ctmoments.simulate.blocks import Region, Task, region_sums
from ctmoments.simulate.encode import pack
from ctmoments.simulate.lanes import Switch, prepare
from ctmoments.simulate.store import StoredBlock
from ctmoments.simulate.streams import Purpose
from ctmoments.simulate.sums import Sums


@dataclass(frozen=True, eq=False)
class Job:
    """A campaign as its workers see it."""

    problem: Problem
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
    begin = time.perf_counter()
    prepared = prepare(job.problem, job.rows(task.row_first, task.row_end), job.seed, job.purpose, job.max_events)
    region = region_sums(prepared, task, switch)
    return finished(job, task, region, time.perf_counter() - begin)


def finished(job: Job, task: Task, region: Region, seconds: float, note: str = "") -> Finished:
    """A region as the block that is stored."""
    sums = pack(getattr(region.sums, field.name) for field in fields(Sums))
    failed = int(region.statuses[:, Status.ABSORBED + 1 :].sum())
    block = StoredBlock(task, sums, pack([region.statuses]), failed, region.events, note, seconds)
    return Finished(block, block.checksum(job.edition))
