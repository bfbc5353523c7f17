"""Speed in one run, interleaved, minima: `make bench`.

    python benchmarks/run.py [--rounds 5] [--only sir outputs threads start chain memory] [--long] [--json FILE]

Scalar C (sir.c, chain.c) is compiled here and runs in turn with ours, one core each, by processor time (so that other
work on the machine counts little); threads and fresh processes by the wall. `--long` adds the memory of
100 points x 10^6 replicates (minutes). Other simulators have a script of their own: others.py.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import jobs
import numpy as np

import ctmoments as ctm

Row = tuple[str, float, str, str]  # what, figure, unit, what is asked for


def machine(compiler: str) -> str:
    """One line that names the machine and the tools."""
    listing = Path("/proc/cpuinfo")
    pairs = [line.split(":", 1) for line in listing.read_text().splitlines() if ":" in line] if listing.exists() else []
    cpu = {key.strip(): value.strip() for key, value in pairs}
    name = cpu.get("model name", platform.processor())
    family = f" (family {cpu['cpu family']}, model {cpu['model']})" if "cpu family" in cpu else ""
    vectors = [wide for wide in ("avx512f", "avx2") if wide in cpu.get("flags", "").split()][:1]
    tools = [f"Python {platform.python_version()}", f"llvmlite {version('llvmlite')}", compiler]
    return ", ".join([str(datetime.date.today()), name + family, *vectors, *tools])


def agreement(c: jobs.Report, ours: jobs.Report) -> float:
    """The largest distance of the two means in standard errors: below 5, or they did different jobs."""
    return float(np.max(np.abs(np.asarray(c["mean"]) - ours["mean"]) / (np.sqrt(2) * ours["mean_se"])))


def sir_rows(rounds: int) -> Iterator[Row]:
    """20,000 paths at one value, and 500 values x 40 paths, against sir.c."""
    problem = ctm.load_problem("sir")
    sweep = ctm.sample_design(problem, points=500, seed=1)
    for name, theta, replicates in (("20,000 paths", jobs.THETA, 20_000), ("500 values x 40 paths", sweep, 40)):
        points = np.asarray(theta)
        best = jobs.interleave(
            {
                "c": lambda points=points, m=replicates: jobs.run_c("sir", m, 1, points=points),
                "ours": lambda theta=theta, m=replicates: jobs.run_ours(problem, theta, m),
            },
            rounds,
        )
        c, ours = jobs.ns_per_event(best["c"]), jobs.ns_per_event(best["ours"])
        yield f"SIR, {name}: scalar C", c, "ns/event", ""
        yield f"SIR, {name}: ctmoments", ours, "ns/event", ""
        yield f"SIR, {name}: ratio", c / ours, "x", "8 on Zen 5 (aim 10), 5 on Intel (aim 6)"
        if len(points) == 1:
            yield f"SIR, {name}: distance of the means", agreement(best["c"], best["ours"]), "se", "below 5"


def output_rows(rounds: int) -> Iterator[Row]:
    """What streaming the covariance costs: the same paths with 1, 13 and 100 outputs."""
    grids = {"1": [13.0], "13": range(1, 14), "100": [0.13 * k for k in range(1, 101)]}
    tasks = {name: jobs.sir_at(times) for name, times in grids.items()}
    best = jobs.interleave(
        {name: lambda task=task: jobs.run_ours(task, jobs.THETA, 20_000) for name, task in tasks.items()}, rounds
    )
    for name, report in best.items():
        yield f"SIR, 20,000 paths, outputs: {name}", jobs.ns_per_event(report), "ns/event", ""
    for name, asked in (("13", "at most 15"), ("100", "")):
        more = best[name]["seconds"] / best["1"]["seconds"] - 1
        yield f"SIR, {name} outputs over 1 output", 100 * more, "% more", asked


def thread_rows(rounds: int) -> Iterator[Row]:
    """Two threads against one, on 100,000 paths."""
    problem = ctm.load_problem("sir")
    best = jobs.interleave(
        {n: lambda n=n: jobs.run_ours(problem, jobs.THETA, 100_000, threads=n) for n in (1, 2)}, 2 * rounds, "wall"
    )
    yield "SIR, 100,000 paths, two threads over one, by the wall", best[1]["wall"] / best[2]["wall"], "x", "1.8"
    more = best[2]["seconds"] / best[1]["seconds"] - 1
    yield "SIR, 100,000 paths, processor time of two threads over one", 100 * more, "% more", ""


def start_rows(rounds: int) -> Iterator[Row]:
    """Fresh processes: import, first results, the sweep, the command's help."""
    jobs.run_fresh(jobs.KNOWN_MODEL)  # fills the cache
    bodies = {
        "first result of a new model": (jobs.NEW_MODEL, "0.3 (aim 0.1)"),
        "first result of a known model": (jobs.KNOWN_MODEL, ""),
        "sweep of 500 x 40": (jobs.SWEEP, "0.5"),
    }
    runs = {name: [jobs.run_fresh(body) for _ in range(rounds)] for name, (body, _) in bodies.items()}
    every = [run for group in runs.values() for run in group]
    yield "import ctmoments", min(run["import"] for run in every), "s", "0.7"
    yield "import ctmoments, processor time", min(run["import, processor"] for run in every), "s", ""
    for name, (_, asked) in bodies.items():
        yield f"{name}, fresh process, beyond importing", min(run["rest"] for run in runs[name]), "s", asked
        yield f"{name}, processor time", min(run["rest, processor"] for run in runs[name]), "s", ""
    helps = [seconds for seconds in (jobs.run_help() for _ in range(rounds)) if seconds is not None]
    if helps:
        yield "ctmoments --help", min(helps), "s", "0.5"


def chain_rows(rounds: int) -> Iterator[Row]:
    """Large networks against the direct method with a dependency graph."""
    sizes = {100: 320, 1000: 32}
    tasks = {n: jobs.chain(n) for n in sizes}
    for task in tasks.values():
        jobs.run_ours(task, [[1.0, 0.5]], 1)  # compile
    best = jobs.interleave(
        {f"c {n}": lambda n=n, m=m: jobs.run_c("chain", n, m, 1) for n, m in sizes.items()}
        | {f"ours {n}": lambda n=n, m=m: jobs.run_ours(tasks[n], [[1.0, 0.5]], m) for n, m in sizes.items()},
        rounds,
    )
    figures = {name: jobs.ns_per_event(report) for name, report in best.items()}
    for n in sizes:
        yield f"chain of {n}: C", figures[f"c {n}"], "ns/event", ""
        yield f"chain of {n}: ctmoments", figures[f"ours {n}"], "ns/event", ""
        yield f"chain of {n}: distance of the means", agreement(best[f"c {n}"], best[f"ours {n}"]), "se", "below 5"
    yield "chain of 100: ratio to C", figures["ours 100"] / figures["c 100"], "x the time", "at most 1"
    yield "chain of 1000: ratio to C at 100", figures["ours 1000"] / figures["c 100"], "x the time", "at most 3.5"


def memory_rows(long: bool) -> Iterator[Row]:
    """Peak memory does not grow with the number of paths."""
    for replicates in (100, 10_000) + ((1_000_000,) if long else ()):
        yield f"peak memory, 100 points x {replicates:,}", jobs.peak_memory(100, replicates), "MB", "below 600"


def collect(parts: list[str], rounds: int, long: bool) -> list[Row]:
    """The rows of the parts asked for, shown as they come."""
    sources = {
        "sir": lambda: sir_rows(rounds),
        "outputs": lambda: output_rows(rounds),
        "threads": lambda: thread_rows(rounds),
        "start": lambda: start_rows(rounds),
        "chain": lambda: chain_rows(rounds),
        "memory": lambda: memory_rows(long),
    }
    rows = []
    for part in parts:
        for row in sources[part]():
            print(f"| {row[0]} | {row[1]:.3g} {row[2]} | {row[3]} |", flush=True)
            rows.append(row)
    return rows


PARTS = ("sir", "outputs", "threads", "start", "chain", "memory")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    options = parser.parse_args()
    where = machine(jobs.build_programs())
    print(f"{where}\n\n| what | measured | asked for |\n|---|---|---|")
    rows = collect(options.only, options.rounds, options.long)
    if options.json:
        options.json.write_text(json.dumps({"machine": where, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
