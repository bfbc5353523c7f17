"""`ctmoments selftest`: whether this machine computes what it should, in a few seconds.

Compiled kernels against the plain interpreter, to the bit; simulated against exact moments; a dataset to a file and
back. One line a check.
"""

from __future__ import annotations

import platform
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from ctmoments.use.arguments import Parser, add_threads
from ctmoments.use.talk import Talk

REPLAYED = ("birth-death", "telegraph", "sis")  # a path has a few dozen to a few hundred events
LIMIT = 6.4  # of |z| over the outputs of one comparison: false alarm below 1e-8
PATHS = 20_000


def add_selftest(parser: Parser) -> None:
    """Arguments of `selftest`."""
    add_threads(parser)


def run_selftest(settings: Namespace, talk: Talk) -> int:
    """Run every check; 1 where one fails."""
    from ctmoments import __version__
    from ctmoments.simulate.engine import vector_width
    from ctmoments.simulate.lanes import thread_count

    threads = thread_count(settings.threads)
    machine = (
        f"ctmoments {__version__}, Python {platform.python_version()}, {platform.machine()}, "
        f"{vector_width()} lanes a vector, {threads} thread{'s' if threads > 1 else ''}"
    )
    checks: dict[str, Callable[[int], str]] = {
        "kernels agree with the interpreter": _kernels,
        "simulated moments agree with exact ones": _moments,
        "a dataset survives a file": _file,
    }
    lines, record, good = [machine], [], True
    for name, check in checks.items():
        begin = time.perf_counter()
        try:
            told, passed = check(threads), True
        except AssertionError as error:
            told, passed = str(error), False
        seconds = time.perf_counter() - begin
        good &= passed
        lines.append(f"  {'ok ' if passed else 'BAD'}  {name}: {told} ({seconds:.1f} s)")
        record.append({"check": name, "ok": passed, "told": told, "seconds": round(seconds, 3)})
    talk.result("\n".join(lines), {"machine": machine, "ok": good, "checks": record})
    return 0 if good else 1


def _kernels(threads: int) -> str:
    import numpy as np

    from ctmoments.model.library import load_problem
    from ctmoments.simulate.design import sample_design
    from ctmoments.simulate.interpreter import interpret_path
    from ctmoments.simulate.network import output_scale
    from ctmoments.simulate.paths import simulate_paths

    events = 0
    for name in REPLAYED:
        problem = load_problem(name)
        theta = sample_design(problem, 2, seed=1)
        paths = simulate_paths(problem, theta, 2, seed=1, threads=threads, progress=False)
        for row in range(2):
            for replicate in range(2):
                path = interpret_path(problem, theta, row, replicate, seed=1)
                events += path.events
                expected = np.array(path.outputs) * output_scale(problem)
                if not np.array_equal(paths.values[row, replicate], expected):
                    raise AssertionError(f"{name}: replicate {replicate} at {theta.values[row]} differs")
    return f"{4 * len(REPLAYED)} paths, {events:,} events, to the bit"


def _moments(threads: int) -> str:
    import numpy as np

    from ctmoments.model.library import load_problem
    from ctmoments.moments.estimate import simulate_moments
    from ctmoments.moments.exact import exact_moments

    problem = load_problem("birth-death")
    theta = (problem.space.low + problem.space.high)[None] / 2
    data = simulate_moments(problem, theta, PATHS, seed=1, threads=threads, progress=False)
    exact = exact_moments(problem, theta, threads=threads, progress=False)
    worst = 0.0
    for name in ("mean", "cov"):
        z = (data[name] - exact[name]) / data[f"{name}_se"]
        worst = max(worst, float(np.abs(z.values).max()))
    if not worst < LIMIT:
        raise AssertionError(f"largest |z| is {worst:.1f}, must be below {LIMIT}")
    return f"largest |z| {worst:.1f} of {PATHS:,} paths"


def _file(threads: int) -> str:
    from ctmoments.model.library import load_problem
    from ctmoments.moments.estimate import simulate_moments
    from ctmoments.moments.export import write_dataset
    from ctmoments.use.files import read_dataset

    problem = load_problem("sir")
    data = simulate_moments(problem, [0.5, 0.002], 100, seed=1, threads=threads, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "moments.nc"
        write_dataset(data, path)
        size = path.stat().st_size
        if not read_dataset(path).identical(data):
            raise AssertionError("what is read differs from what was written")
    return f"{size:,} bytes of NetCDF"
