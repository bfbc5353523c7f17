"""What a campaign costs: against memory, in bytes, and where driver, scheduler and store saturate.

    python benchmarks/campaign.py memory|rss|rss-workers|tasks|commits

Each prints a line of figures; docs/measurements.md keeps them.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import ctmoments as ctm
from ctmoments.simulate import distribute, job
from ctmoments.simulate.blocks import Task
from ctmoments.simulate.campaign import Where, run_campaign
from ctmoments.simulate.status import campaign_status
from ctmoments.simulate.store import Store
from ctmoments.simulate.streams import Purpose

SIR = ctm.load_problem("sir")


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def against_memory(folder: Path) -> None:
    """10^6 paths with a store and without, in turn, least of seven rounds, by wall and processor time."""
    for points, replicates in ((100, 10_000), (1_000, 1_000), (5_000, 200)):
        theta = ctm.sample_design(SIR, points, seed=1)
        best = np.full((2, 2), np.inf)
        for _ in range(7):
            for kind in range(2):
                path = folder / "a.sqlite"
                path.unlink(missing_ok=True)
                begin = clocks()
                ctm.simulate_moments(SIR, theta, replicates, seed=1, store=path if kind else None)
                best[kind] = np.minimum(best[kind], np.subtract(clocks(), begin))
        size = path.stat().st_size / 1e6
        print(f"{points} x {replicates}: memory {best[0, 0]:.3f} s wall {best[0, 1]:.3f} s cpu; store {best[1, 0]:.3f}"
              f" wall {best[1, 1]:.3f} cpu; ratio {best[1, 0] / best[0, 0]:.3f} wall {best[1, 1] / best[0, 1]:.3f} cpu;"
              f" {size:.2f} MB")  # fmt: skip


def peak(folder: Path, workers: int | None) -> None:
    """10^5 points x 100 replicates: the largest memory of the driver (a local scheduler lives in it)."""
    theta = ctm.sample_design(SIR, 100_000, seed=1)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    begin = time.perf_counter()
    run_campaign(SIR, theta, 100, 1, store=folder / "a.sqlite", where=Where(workers=workers))
    seconds = time.perf_counter() - begin
    ran = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    status = campaign_status(folder / "a.sqlite")
    ctm.simulate_moments(SIR, theta, 100, 1, store=folder / "a.sqlite", resume=True)
    end = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"workers {workers}: {seconds:.1f} s; MB before {start:.0f}, campaign {ran:.0f}, with the dataset {end:.0f};"
          f" store {status.megabytes:.0f} MB in {status.blocks} blocks")  # fmt: skip


def tasks(folder: Path) -> None:
    """Tasks a second through the scheduler, workers that return at once, nothing written; and bytes a second."""
    theta = ctm.sample_design(SIR, 10, seed=1)
    campaign = job.Job(SIR, theta["point"].values, theta.values, 1, Purpose.PATHS, 10**9, 0)
    distribute._threads = lambda client: 200
    for size, count in ((1_000, 3_000), (1_000_000, 1_000), (4_000_000, 400)):

        def start(workers: int, count=count):
            return iter([Task(row, row + 1, 0, 1) for row in range(count)]), lambda result: None

        distribute.run_on_worker = sized(size)
        begin = clocks()
        got = 0
        for _ in distribute.run_distributed(campaign, start, 2, None):
            if got == 100:
                begin = clocks()
            got += 1
        wall, cpu = np.subtract(clocks(), begin)
        print(f"{size} bytes: {(got - 101) / wall:.0f} tasks/s, {(got - 101) * size / wall / 1e6:.0f} MB/s,"
              f" driver and scheduler {1e3 * cpu / (got - 101):.2f} ms cpu a task")  # fmt: skip


def sized(size: int):
    def run(key: str, task: Task) -> job.Finished:
        return job.Finished(job.StoredBlock(task, os.urandom(64) * (size // 64), b"\0", 0, 0, "", 1.0), b"")

    return run


def commits(folder: Path) -> None:
    """Blocks a second into a store, by size; and again when it holds 10^5."""
    for size, count in ((1_000, 300), (100_000, 200), (1_000_000, 100), (4_000_000, 40)):
        with Store(folder / f"{size}.sqlite", write=True) as held:
            with held.transaction():
                held.create_tables()
            begin = clocks()
            for row in range(count):
                add(held, row, size)
            wall, cpu = np.subtract(clocks(), begin)
        print(f"{size} bytes: {count / wall:.0f} blocks/s, {count * size / wall / 1e6:.0f} MB/s,"
              f" {1e3 * cpu / count:.2f} ms cpu a block")  # fmt: skip
    with Store(folder / "many.sqlite", write=True) as held:
        with held.transaction():
            held.create_tables()
            for row in range(100_000):
                block(held, row, 1_000)
        begin = clocks()
        for row in range(100_000, 100_300):
            add(held, row, 1_000)
        wall, cpu = np.subtract(clocks(), begin)
        begin = clocks()
        held.blocks(0)
        print(f"after 10^5 blocks: {300 / wall:.0f} blocks/s, {1e3 * cpu / 300:.2f} ms cpu;"
              f" list of blocks {np.subtract(clocks(), begin)[0]:.2f} s")  # fmt: skip


def block(held: Store, row: int, size: int) -> None:
    made = job.StoredBlock(Task(row, row + 1, 0, 1), os.urandom(64) * (size // 64), b"\0", 0, 0, "", 1.0)
    held.add_block(0, made, made.checksum(0))


def add(held: Store, row: int, size: int) -> None:
    with held.transaction():
        block(held, row, size)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=os.environ.get("CAMPAIGN_DIR")) as name:
        {
            "memory": against_memory,
            "rss": lambda folder: peak(folder, None),
            "rss-workers": lambda folder: peak(folder, 2),
            "tasks": tasks,
            "commits": commits,
        }[sys.argv[1]](Path(name))
