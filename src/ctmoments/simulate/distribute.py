"""A campaign over many processes or machines, by dask.distributed (the extra `ctmoments[cluster]`).

In: a `Job`, tasks as they are asked for, a scheduler. Out: finished blocks in any order, each task once. The job goes
to every worker once, as a plugin: the scheduler hands it to workers that come later, too. A task is its key alone. The
scheduler never holds more than `MOST_TASKS` of them; blocks come straight from the workers. A task whose worker dies
is run again; a straggler is started a second time, and the first that is done counts.
"""

from __future__ import annotations

import logging
import queue
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from ctmoments.errors import CtmomentsError, FileError, InputError, SimulationError
from ctmoments.simulate.blocks import Task
from ctmoments.simulate.identity import arithmetic_class
from ctmoments.simulate.job import Finished, Job, run_task
from ctmoments.simulate.lanes import Switch

try:
    from distributed import Client, LocalCluster, WorkerPlugin
    from distributed.scheduler import KilledWorker
except ImportError as error:  # the extra is not there
    raise InputError(f"`workers` and `scheduler` need dask: pip install 'ctmoments[cluster]' ({error}).") from None

SECONDS = (1.0, 5.0)  # what a task may last
MOST_TASKS = 400  # in the scheduler at a time; about 16 KiB each there
ATTEMPTS = 4  # a task that took this many workers with it is given up
STRAGGLER = 4.0  # times as long as the longest task so far, while others idle
WAIT = 0.5
CLIENT: dict[str, Any] = {"set_as_default": False, "direct_to_workers": True, "timeout": 30}

_JOBS: dict[str, tuple[Job, str, str]] = {}  # on a worker: key -> job, version, arithmetic


class JobPlugin(WorkerPlugin):
    """Brings the job to a worker."""

    def __init__(self, key: str, job: Job) -> None:
        from ctmoments import __version__

        self.name = key
        self._held = job, __version__, _arithmetic(job)

    def setup(self, worker: Any) -> None:
        """Called by the worker when it starts, or when the plugin is registered."""
        _JOBS[self.name] = self._held

    def teardown(self, worker: Any) -> None:
        """Called when the worker stops, or the campaign is over."""
        _JOBS.pop(self.name, None)


class JobMissing(Exception):
    """A worker was asked for a block before it had the job."""


def run_on_worker(key: str, task: Task) -> Finished:
    """What a worker does: the block of a task, from its key alone."""
    from ctmoments import __version__

    if key not in _JOBS:
        raise JobMissing
    job, version, arithmetic = _JOBS[key]
    for what, wanted, got in (("ctmoments", version, __version__), ("arithmetic", arithmetic, _arithmetic(job))):
        if wanted != got:
            raise FileError(f"a worker must have the driver's {what}, {wanted!r}, got {got!r}.")
    return run_task(job, task, Switch())


def _arithmetic(job: Job) -> str:
    return arithmetic_class(job.problem)


def run_distributed(
    job: Job,
    start: Callable[[int], tuple[Iterator[Task], Callable[[Finished], None]]],
    workers: int | None,
    scheduler: str | None,
) -> Iterator[Finished]:
    """Blocks of the tasks that `start(threads)` gives, as they are finished."""
    with ExitStack() as stack:
        cluster: Any = stack.enter_context(local_cluster(workers or 1)) if scheduler is None else None
        client = stack.enter_context(connect(scheduler or cluster))
        key = f"ctmoments-{uuid.uuid4().hex}"
        client.register_plugin(JobPlugin(key, job))
        stack.callback(client.unregister_worker_plugin, key)
        tasks, learn = start(max(_threads(client), 1))
        for result in _Drive(client, key, job, tasks, cluster).results():
            learn(result)
            yield result


def connect(scheduler: Any) -> Client:
    """A client of a scheduler, by its address or its cluster."""
    try:
        return Client(scheduler, **CLIENT)
    except (OSError, ValueError) as error:
        raise InputError(f"`scheduler` must be the address of a dask scheduler, got {scheduler!r}: {error}.") from None


def local_cluster(workers: int, processes: bool = True) -> LocalCluster:
    """Workers on this machine. Everything listens on loopback only: `dashboard_address=None` would open 0.0.0.0."""
    return LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=processes, host="127.0.0.1", protocol="tcp",
        dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL,
    )  # fmt: skip


def _threads(client: Any) -> int:  # dask's annotations know its methods as coroutines only
    return sum(client.nthreads().values())


class _Drive:
    """The loop of the driver: keeps the scheduler supplied, takes results, runs again what was lost."""

    def __init__(self, client: Any, key: str, job: Job, tasks: Iterator[Task], cluster: Any = None) -> None:
        self._client, self._key, self._job, self._tasks = client, key, job, tasks
        self._cluster, self._wanted = cluster, 0 if cluster is None else len(cluster.workers)
        self._running: dict[Task, list[Any]] = {}
        self._started: dict[Task, float] = {}
        self._attempts: dict[Task, int] = {}
        self._done: queue.SimpleQueue[tuple[Task, Any]] = queue.SimpleQueue()
        self._longest = SECONDS[1]
        self._room, self._asked = 1, 0.0

    def results(self) -> Iterator[Finished]:
        more = self._fill()
        while self._running:
            try:
                task, future = self._done.get(timeout=WAIT)
            except queue.Empty:
                self._limit()
                more = more and self._fill()
                if not more:
                    self._second_starts()
                continue
            result = self._take(task, future)
            more = more and self._fill()  # before the block is written: a worker waits
            if result is not None:
                yield result

    def _fill(self) -> bool:
        """Give every thread of every worker one task; whether there may be more tasks.

        One, not more: what a worker has finished is fetched before it gets the next, so that a worker that dies takes
        one block with it. The gap is a few hundredths of a second for a task that lasts seconds.
        """
        while len(self._running) < self._limit():
            task = next(self._tasks, None)
            if task is None:
                return False
            self._submit(task)
        return True

    def _limit(self) -> int:
        """Tasks in flight: workers may come and go, so they are counted again every second."""
        if time.monotonic() - self._asked > 1:
            threads = _threads(self._client)
            if self._cluster is not None and threads < self._wanted:
                self._cluster.scale(self._wanted)  # dask gives up a worker that was killed while it started
            self._room = min(max(threads, 1), MOST_TASKS)
            self._asked = time.monotonic()
        return self._room

    def _submit(self, task: Task) -> None:
        attempt = self._attempts[task] = self._attempts.get(task, 0) + 1
        name = f"{self._key}-{task.row_first}-{task.first}-{attempt}"  # equal keys would be merged
        future = self._client.submit(run_on_worker, self._key, task, key=name, pure=False)
        self._running.setdefault(task, []).append(future)
        self._started[task] = time.monotonic()
        future.add_done_callback(lambda done: self._done.put((task, done)))

    def _take(self, task: Task, future: Any) -> Finished | None:
        """The block of a future, or None where its task is done already, or is run again."""
        if task not in self._running:
            return None  # the other copy was first
        if future.status == "finished":
            result = _result(future)
            if result is not None:
                self._longest = max(self._longest, result.block.seconds)
                for copy in self._running.pop(task):
                    copy.cancel() if copy is not future else copy.release()
                del self._started[task], self._attempts[task]
                return result
        elif future.status == "error":
            self._judge(task, future.exception())
        self._running[task].remove(future)
        if not self._running[task]:
            self._submit(task)
        return None

    def _judge(self, task: Task, error: BaseException | None) -> None:
        """Raise what would happen again anywhere; let pass what another worker may do better."""
        if isinstance(error, CtmomentsError):
            raise error
        if self._attempts[task] >= ATTEMPTS:
            what = "took its workers with it" if isinstance(error, KilledWorker) else f"failed: {error!r}"
            raise SimulationError(f"{task} {what}, {ATTEMPTS} times. What is done stays in the store.") from error
        if isinstance(error, JobMissing):
            self._client.register_plugin(JobPlugin(self._key, self._job))

    def _second_starts(self) -> None:
        """Nothing waits any more, so a worker is free: start what takes far too long once more."""
        for task, futures in self._running.items():
            if len(futures) == 1 and time.monotonic() - self._started[task] > STRAGGLER * self._longest:
                self._submit(task)


def _result(future: Any) -> Finished | None:
    """What a worker holds; None where the worker died before it was fetched."""
    try:
        return future.result()
    except (OSError, RuntimeError, KeyError):
        return None
