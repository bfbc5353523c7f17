"""What a campaign has done, and whether what it holds is right.

In: the path of a store. Out: `CampaignStatus`, also beside a running writer; `Verification`, from recomputed checksums
and a random sample of blocks that are simulated again.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ctmoments.errors import CtmomentsError, FileError, Status
from ctmoments.model.callable import CallableProblem
from ctmoments.model.problem import Problem
from ctmoments.simulate.campaign import stored_problem
from ctmoments.simulate.coverage import missing_tasks
from ctmoments.simulate.identity import check_identity, identity_of
from ctmoments.simulate.job import Job, run_task
from ctmoments.simulate.lanes import Switch
from ctmoments.simulate.merge import block_statuses
from ctmoments.simulate.network import MAX_EVENTS
from ctmoments.simulate.store import BlockRow, DamagedBlock, Store
from ctmoments.simulate.streams import Purpose

RECENT = 50  # blocks that the rate is taken from
STALE = 600.0  # seconds without a block after which no rate is given


@dataclass(frozen=True, kw_only=True)
class CampaignStatus:
    """Progress of a campaign. `statuses` has a row of paths by `Status` for each point."""

    store: str
    points: int
    replicates: int
    paths: int
    paths_done: int
    failed: int
    events: int
    blocks: int
    seconds: float  # simulated by all workers together
    paths_per_second: float  # lately, by the clock; NaN where nothing was written for ten minutes
    seconds_left: float
    megabytes: float  # of the file
    first_failure: str  # the first traceback of a Python callable
    labels: np.ndarray
    statuses: np.ndarray

    @property
    def finished(self) -> bool:
        """Whether every path is there."""
        return self.paths_done == self.paths

    def to_dict(self) -> dict[str, Any]:
        """For machines: everything but the table, and the points with failures. What is not known is None."""
        plain = {name: value for name, value in asdict(self).items() if name not in ("labels", "statuses")}
        plain = {name: None if isinstance(value, float) and np.isnan(value) else value for name, value in plain.items()}
        failing = {str(self.labels[row]): self._row_text(row) for row in self._failing}
        return plain | {"finished": self.finished, "statuses": self._totals(), "failing_points": failing}

    @property
    def _failing(self) -> list[int]:
        return np.flatnonzero(self.statuses[:, Status.ABSORBED + 1 :].any(axis=1)).tolist()

    def _totals(self) -> dict[str, int]:
        return {status.name.lower(): int(self.statuses[:, status].sum()) for status in Status}

    def _row_text(self, row: int) -> dict[str, int]:
        return {s.name.lower(): int(self.statuses[row, s]) for s in Status if self.statuses[row, s]}

    def __str__(self) -> str:
        share = self.paths_done / self.paths
        lines = [
            f"{self.store}: {'finished' if self.finished else f'{share:.1%} done'}",
            f"  {self.points:,} points x {self.replicates:,} replicates: {self.paths_done:,} of {self.paths:,} paths",
            f"  {self.events:,} events in {self.seconds:,.1f} s of one core",
            f"  {self.blocks:,} blocks, {self.megabytes:,.1f} MB",
            "  " + ", ".join(f"{name} {count:,}" for name, count in self._totals().items() if count),
        ]
        if not self.finished and not np.isnan(self.paths_per_second):
            lines.append(f"  {self.paths_per_second:,.0f} paths/s, {self.seconds_left:,.0f} s left")
        for row in self._failing[:10]:
            counts = ", ".join(f"{name} {count:,}" for name, count in self._row_text(row).items())
            lines.append(f"  point {self.labels[row]}: {counts}")
        if self.first_failure:
            lines += ["  the first failure:", *(f"    {line}" for line in self.first_failure.splitlines())]
        return "\n".join(lines)


def campaign_status(store: str | Path) -> CampaignStatus:
    """How far a campaign is, how fast, and how its paths end, point by point."""
    with closing(Store(store)) as held:
        labels, theta = held.design(len(held.meta("identity")["parameters"]))
        replicates, edition = held.meta("replicates"), held.edition
        blocks = held.blocks(edition)
        missing = sum(task.paths for task in missing_tasks([b.task for b in blocks], len(theta), replicates))
        statuses = np.zeros((len(theta), len(Status)), np.int64)
        for block in blocks:
            statuses[block.task.row_first : block.task.row_end] += block_statuses(held.read_block(block.number))
        rate = _rate(blocks)
        return CampaignStatus(
            store=str(store), points=len(theta), replicates=replicates, paths=len(theta) * replicates,
            paths_done=len(theta) * replicates - missing, failed=sum(b.failed for b in blocks),
            events=sum(b.events for b in blocks), blocks=len(blocks), seconds=sum(b.seconds for b in blocks),
            paths_per_second=rate, seconds_left=missing / rate if missing else 0.0,
            megabytes=held.path.stat().st_size / 1e6, first_failure=first_failure(held, blocks), labels=labels,
            statuses=statuses,
        )  # fmt: skip


def first_failure(held: Store, blocks: list[BlockRow]) -> str:
    """The traceback of the first path that failed, points in order, if a Python callable ran it."""
    failing = (block for block in blocks if block.failed)
    return next((held.read_block(block.number).note for block in failing), "")


def _rate(blocks: list[BlockRow]) -> float:
    """Paths a second between the last blocks."""
    latest = sorted(blocks, key=lambda block: block.written)[-RECENT:]
    if len(latest) < 2 or time.time() - latest[-1].written > STALE:
        return np.nan
    return sum(b.task.paths for b in latest[1:]) / max(latest[-1].written - latest[0].written, 1e-9)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was looked at, and every complaint, a line each."""

    blocks: int
    replayed: int
    complaints: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.complaints

    def __str__(self) -> str:
        looked = f"{self.blocks:,} blocks match their checksums, {self.replayed} simulated again to the same bits"
        return "\n".join(self.complaints) if self.complaints else looked


def verify_store(
    store: str | Path, sample: int = 10, seed: int | None = None, problem: Problem | CallableProblem | None = None
) -> Verification:
    """Recompute every checksum, and simulate a random sample of blocks again, bit for bit.

    `problem` is needed only for a campaign of a Python callable. Without a `seed` each call takes another sample.
    """
    with closing(Store(store)) as held:
        complaints: list[str] = []
        held.check_pages()
        sound = []
        for number in held.block_numbers():
            try:
                held.read_block(number)
                sound.append(number)
            except DamagedBlock as error:
                complaints.append(str(error))
        edition, replicates = held.edition, held.meta("replicates")
        blocks = [block for block in held.blocks(edition) if block.number in set(sound)]
        job = stored_job(held, problem)
        try:
            missing_tasks([block.task for block in blocks], len(job.theta), replicates)
        except FileError as error:
            complaints.append(f"{store}: {error}")
        chosen = np.random.default_rng(seed).permutation(len(blocks))[:sample]
        for block in (blocks[index] for index in sorted(chosen)):
            complaints += _replay(held, job, block)
        return Verification(blocks=len(sound), replayed=len(chosen), complaints=tuple(complaints))


def stored_job(held: Store, problem: Problem | CallableProblem | None = None) -> Job:
    """What a worker must know to run a block of this store again."""
    stored = held.meta("identity")
    problem = problem or stored_problem(held)
    purpose = Purpose[stored["purpose"].upper()]
    limit = stored.get("max_events", MAX_EVENTS)  # a callable has none
    asked = identity_of(problem, stored["seed"], purpose, limit)
    check_identity(str(held.path), stored, asked)
    labels, theta = held.design(len(stored["parameters"]))
    return Job(problem, labels, theta, stored["seed"], purpose, limit, held.edition)


def _replay(held: Store, job: Job, block: BlockRow) -> list[str]:
    try:
        again = run_task(job, block.task, Switch())
    except CtmomentsError as error:
        return [f"{held.path}: block {block.number} cannot be simulated again: {error}"]
    stored = held.read_block(block.number)
    if any(getattr(stored, name) != getattr(again.block, name) for name in ("sums", "statuses", "failed", "events")):
        t = block.task
        return [
            f"{held.path}: block {block.number} (rows {t.row_first} to {t.row_end}, replicates {t.first} to {t.end})"
            " gives other numbers when it is simulated again."
        ]
    return []
