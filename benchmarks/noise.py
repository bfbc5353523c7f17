"""Linear noise, closures and linear networks: seconds for 1,000 parameter values, one core, minima of rounds.

    python benchmarks/noise.py [--points 1000] [--rounds 5]

Processor time, so that other work on the machine counts little. The SIR is the paper's: 13 times, full covariance.
"""

from __future__ import annotations

import argparse
import os
import warnings
from time import process_time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import ctmoments as ctm
from ctmoments.moments.drift import drift_paths
from ctmoments.moments.equations_linear import linear_moments

LIBRARY = ("sir", "seir", "sir-two-patch", "dimerisation", "schlogl", "toggle-switch", "lotka-volterra", "telegraph")


def best_seconds(work, rounds: int) -> float:
    """The least processor time of several rounds."""
    seconds = []
    for _ in range(rounds):
        start = process_time()
        work()
        seconds.append(process_time() - start)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in LIBRARY:
        problem = ctm.load_problem(name)
        theta = ctm.sample_design(problem, points=options.points, seed=1)
        works = {
            "lna": lambda p=problem, t=theta: ctm.approximate_moments(p, t),
            "lna, tolerance 1e-8": lambda p=problem, t=theta: ctm.approximate_moments(p, t, tolerance=1e-8),
            "drift alone": lambda p=problem, t=theta: drift_paths(p, t, p.initial_states(t), np.array(p.times)),
        }
        if name == "sir":
            works |= {m: lambda m=m: ctm.approximate_moments(problem, theta, m) for m in ("normal", "log-normal")}  # noqa: B023
        if name == "telegraph":
            works["exact"] = lambda p=problem, t=theta: linear_moments(p, t)
        for what, work in works.items():
            print(f"{name:14s} {what:20s} {best_seconds(work, options.rounds):8.3f} s", flush=True)


if __name__ == "__main__":
    main()
