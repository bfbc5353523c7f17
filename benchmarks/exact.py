"""Exact moments of the SIR against scipy.sparse.linalg.expm_multiply doing the same job, in one run, one core.

    OPENBLAS_NUM_THREADS=1 python benchmarks/exact.py [--full] [--rounds 3] [--theta 0.457 0.00253] [--ours-only]

The job: mean at 13 times and the full 13 x 13 covariance. SciPy's way: the generator over all reachable states as a
sparse matrix, the distribution carried forward from time to time, the observed amount carried backward as a block that
grows by one column at each time; one `expm_multiply` for each interval and direction. By default the population is 150
(11,000 states); `--full` takes the paper's 766 (294,522 states; SciPy needs minutes, so it runs once). Both have to
agree to 1e-7 (Frobenius). Processor time, because the machine may be shared; wall time beside it.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix, diags
from scipy.sparse.linalg import expm_multiply

from ctmoments import Model, Problem, Space, exact_moments
from ctmoments.moments.exact import chain_of
from ctmoments.moments.exact_states import reachable_states

PEOPLE = 766


def sir(people: int, beta: float) -> Problem:
    """The paper's SIR, or a smaller one with the same infections a head."""
    model = Model({"S": people - 3, "I": 3, "R": 0}, ["alpha", "beta"], ["S + I -> 2 I : beta*S*I", "I -> R : alpha*I"])
    space = Space(alpha=(0.1, 0.9), beta=(0.1 * beta, 10 * beta))
    return Problem(model, space, observe="I", times=range(1, 14))


def scipy_moments(problem: Problem, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Mean, covariance and states by expm_multiply."""
    point = theta.reshape(1, -1)
    chain = chain_of(problem, problem.parameter_columns(point)[0], problem.initial_states(point)[0])
    states = reachable_states(chain, 1_000_000)
    generator = sparse_generator(chain, states)
    backward, forward = generator, csr_matrix(generator.T)
    infected = states[1].astype(float)
    p = (states == chain.start[:, None]).all(axis=0).astype(float)
    count = len(problem.times)
    held = []
    for _ in range(count):
        p = expm_multiply(forward, p)
        held.append(p)
    mean = np.array([p @ infected for p in held])
    cov = np.zeros((count, count))
    block = np.zeros((len(infected), 0))
    for b in reversed(range(count)):
        block = np.column_stack((infected - mean[b], block))
        cov[b, b:] = ((infected - mean[b]) * held[b]) @ block
        if b:
            block = expm_multiply(backward, block)
    return mean, np.triu(cov) + np.triu(cov, 1).T, len(infected)


def sparse_generator(chain, states: np.ndarray) -> csr_matrix:
    """Assemble the generator over the listed states."""
    width = states.max() + 2
    keys = states[0] * width + states[1]
    order = np.argsort(keys)
    rates = chain.rates(states)
    parts = []
    for change, rate in zip(chain.changes.T, rates, strict=True):
        source = np.flatnonzero(rate > 0)
        there = keys[source] + change[0] * width + change[1]
        target = order[np.searchsorted(keys, there, sorter=order)]
        parts.append(coo_matrix((rate[source], (source, target)), shape=(len(keys), len(keys))))
    return csr_matrix(sum(parts) - diags(rates.sum(axis=0)))


def clocked(work) -> tuple[float, float, object]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.process_time() - cpu, time.perf_counter() - wall, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the paper's 766 people")
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--theta", type=float, nargs=2, default=(0.457, 0.00253), help="alpha, beta at 766 people")
    options = parser.parse_args()
    people = PEOPLE if options.full else 150
    beta = options.theta[1] * PEOPLE / people
    problem, theta = sir(people, beta), np.array([options.theta[0], beta])
    exact_moments(sir(30, beta), theta, threads=1)  # compile
    ours, theirs = [], []
    for round_ in range(options.rounds):
        ours.append(clocked(lambda: exact_moments(problem, theta, threads=1, progress=False)))
        if not options.ours_only and (round_ == 0 or not options.full):
            theirs.append(clocked(lambda: scipy_moments(problem, theta)))
    cpu, wall, data = min(ours, key=lambda run: run[0])
    print(f"ours           {cpu:8.2f} s processor, {wall:8.2f} s wall, at most {int(data.states[0]):,} states at once")
    if not theirs:
        return
    cpu_, wall_, (mean, cov, states) = min(theirs, key=lambda run: run[0])
    print(f"expm_multiply  {cpu_:8.2f} s processor, {wall_:8.2f} s wall, {states:,} states")
    apart = np.linalg.norm(data["cov"].values[0] - cov) / np.linalg.norm(cov)
    off = np.abs(data["mean"].values[0] - mean).max()
    print(f"ratio {cpu_ / cpu:.1f}; covariances differ by {apart:.1e}, means by {off:.1e}")
    if apart > 1e-7:
        raise SystemExit("the two do not agree")


if __name__ == "__main__":
    main()
