"""A campaign: a design simulated into a store, on this machine or many; killed, resumed, extended at any moment.

In: a problem, parameter values, replicates, a seed, a store. Out: the store, holding exactly the numbers that these
define. Only the process that runs `run_campaign` writes; what simulates only returns blocks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ctmoments.errors import FileError, InputError
from ctmoments.model.callable import CallableProblem
from ctmoments.model.problem import Problem
from ctmoments.model.toml import problem_from_toml
from ctmoments.progress import progress_bar
from ctmoments.simulate.blocks import Task
from ctmoments.simulate.coverage import cut_tasks, missing_tasks
from ctmoments.simulate.editions import settle_editions
from ctmoments.simulate.identity import check_identity, identity_of
from ctmoments.simulate.job import Finished, Job, run_task
from ctmoments.simulate.lanes import prepare, run_blocks, thread_count
from ctmoments.simulate.network import MAX_EVENTS
from ctmoments.simulate.store import DamagedBlock, Store
from ctmoments.simulate.streams import Purpose, check_seed

BLOCK_BYTES = 2**22  # of sums in one block, before they are packed
FIRST_PATHS = 2048  # a campaign's first tasks, until it is known how long a path takes


@dataclass(frozen=True, kw_only=True)
class Where:
    """Who simulates: threads of this process, workers on this machine, or a cluster. Numbers do not depend on it."""

    threads: int | None = None
    workers: int | None = None  # processes of a LocalCluster
    scheduler: str | None = None  # address of a dask scheduler
    block_paths: int | None = None  # paths in a block, instead of blocks of a good length

    def __post_init__(self):
        if self.workers is not None and self.scheduler is not None:
            raise InputError("`workers` and `scheduler` must not both be given: a scheduler has its own workers.")
        for name in ("workers", "block_paths"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"`{name}` must be a whole number from 1, got {value!r}.")


class TaskPace:
    """Paths in the next task: about `seconds` of work, and no more bytes of sums than `BLOCK_BYTES`."""

    def __init__(self, missing: list[Task], outputs: int, workers: int, seconds: tuple[float, float]) -> None:
        self._shortest, self._longest = seconds
        self._left = sum(task.paths for task in missing)
        self._workers = workers
        self._least = self._left // (20 * workers)  # a short campaign is not cut into crumbs: a commit costs 1 ms
        self._rate = 0.0  # paths a second of one worker
        triangle = outputs * (outputs + 1) // 2
        length = max((task.end - task.first for task in missing), default=1)
        row = 8 * (outputs if length == 1 else outputs + 3 * triangle)
        self._most = max(BLOCK_BYTES // row, 1) * length

    def __call__(self) -> int:
        """How many paths; called once for each task."""
        if not self._rate:
            paths = FIRST_PATHS
        else:  # towards the end shorter tasks, so that all workers end together
            share = self._left / (4 * self._workers) / self._rate
            paths = int(self._rate * min(max(share, self._shortest), self._longest))
            paths = max(paths, min(self._least, int(self._rate * self._longest)))
        paths = max(min(paths, self._most), 1)
        self._left = max(self._left - paths, 0)
        return paths

    def learn(self, finished: Finished) -> None:
        """What a task took."""
        rate = finished.block.task.paths / max(finished.block.seconds, 1e-6)
        self._rate = rate if not self._rate else 0.7 * self._rate + 0.3 * rate


def run_campaign(
    problem: Problem | CallableProblem,
    theta: xr.DataArray,
    replicates: int,
    seed: int = 0,
    *,
    store: str | Path,
    resume: bool = False,
    add_times: bool = False,
    purpose: Purpose = Purpose.PATHS,
    max_events: int = MAX_EVENTS,
    where: Where | None = None,
    progress: bool | None = None,
) -> None:
    """Simulate what is missing in `store`, a block a transaction, until it holds `replicates` paths of every point.

    Without `resume` the store must not exist. With it, a store of the same campaign goes on, with more points or
    replicates if asked; `add_times` lets further output times in, for which every path is replayed.
    """
    where = where or Where()
    check_seed(seed)
    if not isinstance(problem, CallableProblem):
        prepare(problem, theta, seed, purpose, max_events)  # what does not fit is refused before there is a store
    path = Path(store)
    if path.exists() and not resume:
        raise FileError(f"{path} exists already; resume it, or name another store.")
    with closing(Store(path, write=True)) as held:
        identity = identity_of(problem, seed, purpose, max_events)
        if held.empty:
            _create(held, problem, theta, replicates, identity)
        else:
            held.check_pages()
            check_identity(str(path), held.meta("identity"), identity)
            _extend(held, problem, theta, replicates, add_times)
            _drop_damaged(held)
        _complete(held, Job(problem, theta["point"].values, theta.values, seed, purpose, max_events, held.edition),
                  replicates, where, progress)  # fmt: skip


def stored_design(held: Store) -> xr.DataArray:
    """The design of a store, as `sample_design(extend=)` takes it."""
    names = held.meta("identity")["parameters"]
    labels, theta = held.design(len(names))
    coords = {"point": labels, "parameter": names}
    return xr.DataArray(theta, coords, ("point", "parameter"), name="theta", attrs=held.meta("design"))


def stored_problem(held: Store) -> Problem | CallableProblem:
    """The problem of a store. That of a callable is only known to those who have the callable."""
    return problem_from_toml(held.meta("problem"), str(held.path))


def campaign_design(store: str | Path) -> xr.DataArray:
    """The parameter values of a campaign, as `sample_design(extend=)` takes them."""
    with closing(Store(store)) as held:
        return stored_design(held)


def _create(
    held: Store, problem: Problem | CallableProblem, theta: xr.DataArray, replicates: int, identity: dict[str, Any]
) -> None:
    from ctmoments import __version__

    with held.transaction():
        held.create_tables()
        held.set_meta("identity", identity)
        held.set_meta("created_by", f"ctmoments {__version__}")
        _record(held, problem, theta, replicates, layers=1)
        held.add_layer(theta["point"].values, theta.values)
        held.add_edition(problem.times, len(problem.output_times))


def _record(held: Store, problem: Problem | CallableProblem, theta: xr.DataArray, replicates: int, layers: int) -> None:
    held.set_meta("problem", problem.to_toml())
    held.set_meta("replicates", replicates)
    held.set_meta("design", {key: value for key, value in theta.attrs.items() if key.startswith("design_")})
    held.set_meta("layers", layers)


def _extend(
    held: Store, problem: Problem | CallableProblem, theta: xr.DataArray, replicates: int, add_times: bool
) -> None:
    """Record what is asked beyond what the store was made for; refuse what it cannot become."""
    path = held.path
    labels, values = held.design(theta.sizes["parameter"])
    before, points = held.meta("replicates"), len(values)
    _, _, times = held.editions()[-1]
    if replicates < before:
        raise FileError(f"{path} holds replicates = {before}, asked was {replicates}. Ask for at least the former.")
    if len(theta) < points:
        raise FileError(f"{path} holds {points} points, asked were {len(theta)}. Ask for at least the former.")
    same = (theta.values[:points] == values).all(axis=1) & (theta["point"].values[:points] == labels)
    if not same.all():
        row = int(np.argmin(same))
        raise FileError(
            f"{path} holds point {labels[row]} = {values[row].tolist()}, asked was point {theta['point'].values[row]} ="
            f" {theta.values[row].tolist()}. New points go after those that are there."
        )
    if problem.times != times and not (add_times and set(problem.times) > set(times)):
        hint = "All that it holds must be among them." if add_times else "Allow added times (by replay) to extend it."
        raise FileError(f"{path} holds times = {list(times)}, asked was {list(problem.times)}. {hint}")
    more = len(theta) > points
    if not more and replicates == before and problem.times == times:
        return
    with held.transaction():
        layers = held.meta("layers") + more
        if more:
            held.add_layer(theta["point"].values[points:], theta.values[points:])
        if problem.times != times:
            held.add_edition(problem.times, len(problem.output_times))
        _record(held, problem, theta, replicates, layers)


def _drop_damaged(held: Store) -> None:
    """Remove blocks that do not match their checksums, so that they are simulated again."""
    damaged = []
    for number in held.block_numbers():
        try:
            held.read_block(number)
        except DamagedBlock:
            damaged.append(number)
    if damaged:
        warnings.warn(f"{held.path}: {len(damaged)} damaged blocks are simulated again.", RuntimeWarning, stacklevel=4)
        with held.transaction():
            for number in damaged:
                held.drop_block(number)


def _complete(held: Store, job: Job, replicates: int, where: Where, progress: bool | None) -> None:
    rows, edition = len(job.theta), job.edition
    missing = missing_tasks([block.task for block in held.blocks(edition)], rows, replicates)
    total = rows * replicates
    done = total - sum(task.paths for task in missing)
    failed = 0
    if missing:
        with progress_bar("simulating", total, "paths", progress, done) as report:
            with closing(_execute(job, missing, where)) as results:
                for result in results:
                    with held.transaction():
                        held.add_block(edition, result.block, result.checksum)
                    done += result.block.task.paths
                    failed += result.block.failed
                    report(done, f"{failed:,} failed" if failed else "")
    settle_editions(held, rows)


def _execute(job: Job, missing: list[Task], where: Where) -> Generator[Finished]:
    """Blocks as they are finished, each task once."""
    outputs = len(job.problem.output_times)
    if where.workers is not None or where.scheduler is not None:
        from ctmoments.simulate.distribute import SECONDS, run_distributed

        def start(workers: int) -> tuple[Iterator[Task], Callable[[Finished], None]]:
            return _paced(missing, outputs, workers, where, SECONDS)

        yield from run_distributed(job, start, where.workers, where.scheduler)
        return
    if isinstance(job.problem, CallableProblem):
        threads = where.threads or 1  # a user's code may not be made for threads; `workers` are processes
    else:
        threads = thread_count(where.threads)
    tasks, learn = _paced(missing, outputs, threads, where, (0.1, 1.0))
    running = run_blocks(lambda task, switch: run_task(job, task, switch), tasks, threads, None, lambda done: None)
    with closing(running) as results:  # ended at once, whoever is interrupted
        for result in results:
            learn(result)
            yield result


def _paced(
    missing: list[Task], outputs: int, workers: int, where: Where, seconds: tuple[float, float]
) -> tuple[Iterator[Task], Callable[[Finished], None]]:
    if where.block_paths:
        fixed = where.block_paths
        return cut_tasks(missing, lambda: fixed), lambda result: None
    pace = TaskPace(missing, outputs, workers, seconds)
    return cut_tasks(missing, pace), pace.learn
