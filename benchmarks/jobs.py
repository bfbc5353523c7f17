"""The jobs that run.py measures: the C programs, the same work through the public API, fresh processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import ctmoments as ctm

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
FLAGS = ["-O3", "-march=native", "-ffast-math"]
THETA = np.array([[0.55, 0.00275]])

Report = dict  # what a job says: seconds, events, mean (and more)


def build_programs() -> str:
    """Compile sir.c and chain.c into build/; returns the compiler's first line."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise SystemExit("The comparison needs a C compiler (gcc); ctmoments itself does not.")
    BUILD.mkdir(exist_ok=True)
    for name in ("sir", "chain"):
        subprocess.run([compiler, *FLAGS, "-o", BUILD / name, HERE / f"{name}.c", "-lm"], check=True)
    return subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout.splitlines()[0]


def run_c(program: str, *arguments: int, points: np.ndarray | None = None) -> Report:
    """One run of a C program; `points` (point, parameter) goes to its standard input."""
    text = "" if points is None else "\n".join(" ".join(repr(float(x)) for x in row) for row in points)
    command = [str(BUILD / program), *map(str, arguments)]
    return json.loads(subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout)


def run_ours(problem, theta, replicates: int, threads: int = 1) -> Report:
    """The same through `simulate_moments`, everything that a user waits for included.

    `seconds` are of processor time, as in the C programs; `wall` is what the clock on the wall says.
    """
    wall, start = time.perf_counter(), time.process_time()
    data = ctm.simulate_moments(problem, theta, replicates=replicates, seed=1, threads=threads, progress=False)
    return {
        "seconds": time.process_time() - start,
        "wall": time.perf_counter() - wall,
        "events": int(data.attrs["events"]),
        "mean": data["mean"].values[0],
        "mean_se": data["mean_se"].values[0],
    }


def interleave(jobs: Mapping[str, Callable[[], Report]], rounds: int, clock: str = "seconds") -> dict[str, Report]:
    """Each job once in every round, so that all see the same machine; of each the fastest round by that clock."""
    best: dict[str, Report] = {}
    for _ in range(rounds):
        for name, job in jobs.items():
            report = job()
            if name not in best or report[clock] < best[name][clock]:
                best[name] = report
    return best


def ns_per_event(report: Report) -> float:
    """Nanoseconds for one event."""
    return report["seconds"] / report["events"] * 1e9


def sir_at(times) -> ctm.Problem:
    """The paper's SIR, observed at other times."""
    sir = ctm.load_problem("sir")
    return ctm.Problem(sir.model, sir.space, observe="I", times=times)


def chain(n: int) -> ctm.Problem:
    """The chain of chain.c."""
    species = {f"X{i}": 100 for i in range(1, n + 1)}
    reactions = []
    for i in range(1, n):
        reactions += [f"X{i} -> X{i + 1} : forward*X{i}", f"X{i + 1} -> X{i} : backward*X{i + 1}"]
    model = ctm.Model(species=species, parameters=["forward", "backward"], reactions=reactions)
    space = ctm.Space(forward=(0.5, 2.0), backward=(0.25, 1.0))
    return ctm.Problem(model, space, observe=f"X{n}", times=[0.1 * k for k in range(1, 11)])


# Bodies of fresh processes. A constant that no run before had makes a model new: no cache can know it.
NEW_MODEL = """
model = ctm.Model(species={{"A": 50, "B": 0}}, parameters=["k"],
                  reactions=["2 A -> B : k*A*(A-1)", "B -> 2 A : {fresh}*B"])
problem = ctm.Problem(model, ctm.Space(k=(0.001, 0.1)), observe="B", times=range(1, 11))
ctm.simulate_moments(problem, [0.01], replicates=100, seed=1)
"""
KNOWN_MODEL = NEW_MODEL.replace("{fresh}", "0.25")  # the same model each time: from the cache but for the first
SWEEP = """
problem = ctm.load_problem("sir")
theta = ctm.sample_design(problem, points=500, seed=1)
ctm.simulate_moments(problem, theta, replicates=40, seed=1, threads=1)
"""


def run_fresh(body: str) -> dict[str, float]:
    """A new process: seconds to import and from there to the end of `body`, by the wall and of processor time."""
    fresh = f"{0.25 + (time.time_ns() % 10**9) * 1e-12!r}"
    lines = [
        "import json, time",
        "def now(): return [time.perf_counter(), time.process_time()]",
        "start = now()",
        "import ctmoments as ctm",
        "imported = now()",
        body.format(fresh=fresh),
        "print(json.dumps([start, imported, now()]))",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, stdout=subprocess.PIPE, text=True)
    start, imported, end = json.loads(done.stdout.splitlines()[-1])
    return {
        "import": imported[0] - start[0],
        "import, processor": imported[1] - start[1],
        "rest": end[0] - imported[0],
        "rest, processor": end[1] - imported[1],
    }


def run_help() -> float | None:
    """Seconds for `ctmoments --help`, the whole process; None where the command is not installed."""
    command = Path(sys.executable).with_name("ctmoments")
    if not command.exists():
        return None
    start = time.perf_counter()
    subprocess.run([command, "--help"], check=True, capture_output=True)
    return time.perf_counter() - start


def peak_memory(points: int, replicates: int) -> float:
    """Peak resident MB of a process that simulates so many paths of the SIR."""
    body = f"""
import resource, ctmoments as ctm
problem = ctm.load_problem("sir")
ctm.simulate_moments(problem, ctm.sample_design(problem, points={points}, seed=1), replicates={replicates}, seed=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", body], check=True, capture_output=True, text=True)
    unit = 1024 if sys.platform != "darwin" else 1024**2
    return int(done.stdout.splitlines()[-1]) / unit
