"""Campaigns over dask workers: the hash of one machine, whatever workers do; a local cluster is for this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ctmoments as ctm
from ctmoments.errors import FileError, InputError, SimulationError
from ctmoments.moments.estimate import simulate_moments
from ctmoments.simulate.design import sample_design
from ctmoments.simulate.merge import store_hash
from ctmoments.simulate.store import Store

distributed = pytest.importorskip("distributed")
psutil = pytest.importorskip("psutil")
from ctmoments.simulate import distribute  # noqa: E402

SIR = ctm.load_problem("sir")
DESIGN = sample_design(SIR, 40, seed=3)
REPLICATES = 300


@pytest.fixture(scope="module")
def cluster():
    with distribute.local_cluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "campaign.sqlite"
    simulate(path)
    return store_hash(path)


def simulate(path, **settings):
    return simulate_moments(SIR, DESIGN, REPLICATES, seed=5, store=path, **settings)


def blocks_of(path: Path) -> list:
    if not path.exists():
        return []
    with Store(path) as held:
        return [] if held.empty else held.blocks(0)


def test_processes_and_threads_give_one_hash(cluster, whole, tmp_path):
    with distribute.local_cluster(1, processes=False) as threads:
        for name, kind, block_paths in (("p", cluster, None), ("q", cluster, 900), ("t", threads, None)):
            path = tmp_path / f"{name}.sqlite"
            simulate(path, scheduler=kind.scheduler_address, block_paths=block_paths)
            assert store_hash(path) == whole


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_one_hash_for_any_number_of_workers(workers, whole, tmp_path):
    simulate(tmp_path / "a.sqlite", workers=workers, block_paths=1000)
    assert store_hash(tmp_path / "a.sqlite") == whole
    simulate(tmp_path / "b.sqlite", threads=workers)
    assert store_hash(tmp_path / "b.sqlite") == whole


def slow_run(folder: str):
    """A worker's task that takes its time and writes down that it was started."""

    def run(key, task):
        (Path(folder) / f"{task.row_first}-{time.time_ns()}").touch()
        time.sleep(0.05)
        return distribute.run_on_worker(key, task)

    return run


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_worker_that_is_killed_costs_its_block_at_most(kills, whole, tmp_path, monkeypatch):
    started = tmp_path / "started"
    started.mkdir()
    path = tmp_path / "killed.sqlite"
    clusters = []
    make = distribute.local_cluster
    monkeypatch.setattr(distribute, "local_cluster", lambda workers: clusters.append(make(workers)) or clusters[0])
    monkeypatch.setattr(distribute, "run_on_worker", slow_run(str(started)))
    with ThreadPoolExecutor(1) as pool:
        campaign = pool.submit(simulate, path, workers=2, block_paths=300)
        struck, seen = 0, 0
        while not campaign.done() and struck < kills:
            done = len(blocks_of(path))
            nannies = clusters[0].workers.values() if clusters else ()
            pids = [nanny.pid for nanny in nannies if nanny.status == distributed.Status.running and nanny.pid]
            if done > seen and pids:
                os.kill(pids[struck % len(pids)], signal.SIGKILL)
                struck, seen = struck + 1, done
            time.sleep(0.02)
        campaign.result(timeout=280)
    assert struck == kills and store_hash(path) == whole
    assert len(list(started.iterdir())) <= len(blocks_of(path)) + struck


def test_a_local_cluster_listens_on_loopback_only(cluster):
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = {c.laddr.ip for p in processes for c in p.net_connections("inet") if c.status == "LISTEN"}
    assert listening == {"127.0.0.1"}


def test_a_worker_of_another_version_is_refused(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(ctm, "__version__", "0.0.1")  # the driver's; workers are other processes
    with pytest.raises(FileError, match=r"a worker must have the driver's ctmoments, '0.0.1', got"):
        simulate(tmp_path / "a.sqlite", scheduler=cluster.scheduler_address)


def test_a_task_that_always_fails_is_given_up_and_the_rest_stays(cluster, tmp_path, monkeypatch):
    def run(key, task):
        if task.row_first == 20:
            raise MemoryError("too large")
        return distribute.run_on_worker(key, task)

    monkeypatch.setattr(distribute, "run_on_worker", run)
    path = tmp_path / "a.sqlite"
    with pytest.raises(SimulationError, match=r"row_first=20.* failed: MemoryError\('too large'\), 4 times"):
        simulate(path, scheduler=cluster.scheduler_address, block_paths=300)
    assert len(blocks_of(path)) >= 10


def test_no_scheduler_there(tmp_path, monkeypatch):
    monkeypatch.setitem(distribute.CLIENT, "timeout", 0.5)
    with pytest.raises(
        InputError, match=r"`scheduler` must be the address of a dask scheduler, got 'tcp://127.0.0.1:9'"
    ):
        simulate(tmp_path / "a.sqlite", scheduler="tcp://127.0.0.1:9")


def test_the_slurm_example_writes_its_batch_script(root):
    pytest.importorskip("dask_jobqueue")
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    command = [sys.executable, root / "examples" / "slurm.py", "--account", "lab", "--cores", "6", "--dry-run"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    for line in ("#SBATCH -A lab", "#SBATCH --cpus-per-task=6", "#SBATCH -t 08:00:00", "export OPENBLAS_NUM_THREADS=1"):
        assert line in answer.stdout.splitlines()
    assert "--nthreads 1" in answer.stdout and "--nworkers 6" in answer.stdout


def test_a_callable_runs_on_workers_to_the_same_bits(cluster, tmp_path):
    def simulate(theta, rng):
        return [rng.normal(theta["k"]), rng.random()]

    problem = ctm.Problem.from_callable(simulate, ctm.Space(k=(0, 1)), ["a", "b"])
    theta = sample_design(problem, 6, seed=1)
    path = tmp_path / "a.sqlite"
    data = simulate_moments(
        problem, theta, 90, seed=5, store=path, scheduler=cluster.scheduler_address, block_paths=130
    )
    assert data.identical(simulate_moments(problem, theta, 90, seed=5)) and len(blocks_of(path)) > 3
