"""Full disks, folders that cannot be written, second writers, truncation, flipped bits: one clear line or a repair."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import ctmoments as ctm
from ctmoments.errors import CtmomentsError, FileError
from ctmoments.moments.estimate import simulate_moments, store_moments
from ctmoments.simulate.design import sample_design
from ctmoments.simulate.lock import WriterLock
from ctmoments.simulate.merge import store_hash
from ctmoments.simulate.status import campaign_status, verify_store
from ctmoments.simulate.store import Store

SIR = ctm.load_problem("sir")
DESIGN = sample_design(SIR, 9, seed=3)


def simulate(path, resume=True, **settings):
    return simulate_moments(SIR, DESIGN, 21, seed=5, store=path, resume=resume, **({"block_paths": 40} | settings))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "campaign.sqlite"
    simulate(path)
    return path.read_bytes(), store_hash(path)


@pytest.fixture
def path(tmp_path, finished):
    path = tmp_path / "campaign.sqlite"
    path.write_bytes(finished[0])
    return path


def one_line(error) -> bool:
    return len(str(error.value).splitlines()) == 1


def test_a_full_disk_ends_in_one_line_and_resumes(tmp_path, monkeypatch, finished):
    path = tmp_path / "campaign.sqlite"
    connect = Store._connect

    def small(self, write):
        connection = connect(self, write)
        connection.execute(f"PRAGMA max_page_count = {len(finished[0]) // 4096 - 2}")
        return connection

    monkeypatch.setattr(Store, "_connect", small)
    with pytest.raises(
        FileError, match=r"database or disk is full. Free some space, then run again with resume"
    ) as error:
        simulate(path)
    assert one_line(error)
    monkeypatch.undo()
    assert 0 < campaign_status(path).paths_done < 189
    simulate(path)
    assert store_hash(path) == finished[1]


def test_writes_that_the_system_refuses(tmp_path, finished):
    """The operating system's own limit on the size of a file, in a process of its own."""
    path = tmp_path / "campaign.sqlite"
    program = (
        "import resource, signal, sys; sys.path.insert(0, sys.argv[2])\n"
        "from test_store_damage import simulate, FileError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)\n"
        "try: simulate(sys.argv[1])\n"
        "except FileError as error: print(error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "CTMOMENTS_CACHE": ""}
    answer = subprocess.run(
        [sys.executable, "-c", program, path, Path(__file__).parent, str(len(finished[0]) - 8192)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert "Run again with resume: what is written stays" in answer.stdout, answer.stdout + answer.stderr
    assert 0 < campaign_status(path).paths_done < 189
    simulate(path)
    assert store_hash(path) == finished[1]


def test_a_folder_that_cannot_be_written(tmp_path, finished):
    for place in ("/proc/ctmoments", "/proc/self/x.sqlite"):
        with pytest.raises(
            FileError, match=r"must be (in a folder that can be written to|an existing folder)"
        ) as error:
            simulate(Path(place) if place.endswith("sqlite") else Path(place) / "x.sqlite")
        assert one_line(error)


@pytest.mark.skipif(hasattr(os, "getuid") and os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(path):
    path.parent.chmod(0o500)
    try:
        with pytest.raises(FileError, match="must be in a folder that can be written to"):
            simulate(path)
        assert campaign_status(path).finished
    finally:
        path.parent.chmod(0o700)


def test_a_second_writer_is_refused_and_names_the_first(path):
    with Store(path, write=True):
        with pytest.raises(
            FileError, match=rf"is being written by process {os.getpid()} on .*; a store has one"
        ) as error:
            simulate(path)
        assert one_line(error)
        assert campaign_status(path).finished  # readers may look
    simulate(path)


def test_the_lock_goes_with_its_process(path):
    program = (
        f"from ctmoments.simulate.lock import WriterLock; from pathlib import Path; WriterLock(Path({str(path)!r}))\n"
    )
    program += "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    assert subprocess.run([sys.executable, "-c", program], env=environment).returncode == -signal.SIGKILL
    WriterLock(path).release()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_truncated_store(path, finished, share):
    path.write_bytes(finished[0][: int(len(finished[0]) * share)])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            simulate(path)
    except FileError as error:
        assert len(str(error).splitlines()) == 1 and str(path) in str(error)
    else:
        assert store_hash(path) == finished[1]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_flipped_bits_never_give_a_wrong_number(path, finished, seed):
    """Wherever a bit is flipped: an error of one line, or a resume to the same hash. Reading alone never errs."""
    data, whole = finished
    rng = random.Random(seed)
    outcomes = {"refused": 0, "same": 0}
    right = store_moments(path)
    for _ in range(40 if seed == 1 else 1000):
        damaged = bytearray(data)
        at = rng.randrange(len(data))
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            assert store_moments(path).identical(right), at
        except CtmomentsError as error:
            assert len(str(error).splitlines()) == 1, at
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                simulate(path)
            assert store_hash(path) == whole, at
            outcomes["same"] += 1
        except CtmomentsError as error:
            assert len(str(error).splitlines()) == 1, at
            outcomes["refused"] += 1
    assert outcomes["same"] > outcomes["refused"] > 0 or seed == 1


def test_damaged_sums_are_found_and_repaired(path, finished):
    with Store(path) as held:
        sums = held.read_block(5).sums
    path.write_bytes(finished[0].replace(sums[20:60], bytes(40)))
    assert not (report := verify_store(path)).ok and "block 5 does not match its checksum" in str(report)
    with pytest.raises(FileError, match=r"block 5 does not match its checksum. Run again with resume"):
        store_moments(path)
    with pytest.warns(RuntimeWarning, match="1 damaged blocks are simulated again"):
        simulate(path)
    assert store_hash(path) == finished[1] and verify_store(path).ok


@pytest.mark.parametrize("name", ["identity", "replicates"])
def test_a_damaged_entry_is_refused(path, name):
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE meta SET value = replace(replace(value, '5', '6'), '21', '22') WHERE name = ?", (name,))
    raw.close()
    with pytest.raises(FileError, match=f"its entry '{name}' is damaged"):
        simulate(path)


def test_files_of_others_are_refused(tmp_path):
    path = tmp_path / "x.sqlite"
    path.write_bytes(b"text, and long enough to be no database at all" * 99)
    with pytest.raises(FileError, match=r"file is not a database. It is damaged or no store"):
        simulate(path)
    path.unlink()
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE theirs (x)")
    raw.close()
    with pytest.raises(FileError, match="must be a campaign store of ctmoments, got another SQLite file"):
        simulate(path)
    simulate(tmp_path / "future.sqlite")
    with sqlite3.connect(tmp_path / "future.sqlite") as raw:
        raw.execute("PRAGMA user_version = 2")
    raw.close()
    with pytest.raises(FileError, match="this version reads stores of format 1, got format 2"):
        simulate(tmp_path / "future.sqlite")
