"""Kills campaigns, resumes them, and compares: a program of its own, which forks, so that no test runner is forked.

    python store_kills.py FOLDER KILLS SEED

Prints one JSON object: kills, campaigns, blocks, blocks started, hashes that differ. Every campaign goes through four
stages (start; more points and replicates; added times; repair of a damaged block). Each stage is killed several times:
at a random moment, or just after a given statement that SQLite was told to run, or just after a commit.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import ctmoments as ctm
from ctmoments.moments.estimate import simulate_moments
from ctmoments.simulate import campaign
from ctmoments.simulate.design import sample_design
from ctmoments.simulate.merge import store_hash
from ctmoments.simulate.store import Store

SIR = ctm.load_problem("sir")
LATER = ctm.Problem(SIR.model, SIR.space, "I", (0.5, *SIR.times))
DESIGN = sample_design(SIR, 6, seed=3)
MORE = sample_design(SIR, 2, seed=3, extend=DESIGN)
STAGES = ((SIR, DESIGN, 20), (SIR, MORE, 37), (LATER, MORE, 37), (LATER, MORE, 37))
BLOCK_PATHS = 40


def run_stage(path: Path, stage: int) -> None:
    problem, theta, replicates = STAGES[stage]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # damaged blocks, on purpose
        simulate_moments(problem, theta, replicates, seed=5, store=path, resume=True, add_times=True,
                         block_paths=BLOCK_PATHS, threads=1)  # fmt: skip


def damage(path: Path) -> None:
    """Flip a bit in the sums of a block."""
    with Store(path, write=True) as held:
        number, *_ = held.block_numbers()
        sums = bytearray(held.read_block(number).sums)
        sums[len(sums) // 2] ^= 1
        held._do("UPDATE blocks SET sums = ? WHERE block = ?", (bytes(sums), number))


def watch(started: Path, statement: int | None, commit: int | None) -> None:
    """In a child: write down each block that is started; die just after a statement or a commit."""
    run, connect, transaction = campaign.run_task, Store._connect, Store.transaction
    log = os.open(started, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    seen = {"statements": 0, "commits": 0}

    def die_at(kind: str, limit: int | None) -> None:
        seen[kind] += 1
        if limit is not None and seen[kind] > limit:
            os.kill(os.getpid(), signal.SIGKILL)

    def traced(self, write):
        connection = connect(self, write)
        connection.set_trace_callback(lambda text: die_at("statements", statement))
        return connection

    @contextlib.contextmanager
    def counted(self):
        with transaction(self):
            yield
        die_at("commits", commit)

    def logged(job, task, switch):
        os.write(log, b".")
        return run(job, task, switch)

    campaign.run_task, Store._connect, Store.transaction = logged, traced, counted


def child(path: Path, stage: int, rng: random.Random | None) -> bool:
    """Run a stage in a child of this process, and kill it if `rng` is given; whether it came to its end."""
    how = rng.choice(("moment", "statement", "commit")) if rng else ""
    statement = rng.randrange(90) if rng and how == "statement" else None
    commit = rng.randrange(6) if rng and how == "commit" else None
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            watch(path.with_suffix(".started"), statement, commit)
            run_stage(path, stage)
            os._exit(0)
        os._exit(1)
    if rng and how == "moment":
        time.sleep(rng.random() * 0.25)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _, code = os.waitpid(pid, 0)
    if os.WIFEXITED(code) and os.WEXITSTATUS(code):
        raise SystemExit(f"a child failed at stage {stage} of {path}")
    return os.WIFEXITED(code)


def campaign_with_kills(path: Path, rng: random.Random | None, expected: list[str], per_stage: int) -> tuple[int, list]:
    """One campaign through all stages: how many kills struck, and the stages whose hash differs."""
    kills, wrong = 0, []
    for stage in range(len(STAGES)):
        if stage == 3:
            damage(path)
        for _ in range(per_stage):
            if child(path, stage, rng):
                break
            kills += 1
        child(path, stage, None)
        if store_hash(path) != expected[stage]:
            wrong.append((path.name, stage))
    return kills, wrong


def main(folder: Path, wanted: int, seed: int) -> dict:
    rng = random.Random(seed)
    expected = []
    for stage in range(len(STAGES)):
        path = folder / f"whole{stage}.sqlite"
        run_stage(path, stage)
        expected.append(store_hash(path))
    kills, wrong, count, blocks, started = 0, [], 0, 0, 0
    while kills < wanted:
        path = folder / f"{count}.sqlite"
        struck, differ = campaign_with_kills(path, rng, expected, per_stage=4)
        kills, count, wrong = kills + struck, count + 1, wrong + differ
        started += path.with_suffix(".started").stat().st_size
        # a clean campaign starts these blocks: the ones of two stages, all of them again for added times, one repaired
        blocks += clean_starts(folder)
    return {"kills": kills, "campaigns": count, "blocks": blocks, "started": started, "wrong": wrong}


def clean_starts(folder: Path) -> int:
    """The blocks that a campaign without kills starts, counted once."""
    path = folder / "clean.sqlite"
    if not path.exists():
        for stage in range(len(STAGES)):
            if stage == 3:
                damage(path)
            child(path, stage, None)
    return path.with_suffix(".started").stat().st_size


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
