"""One hash for 50 random ways to get the same paths, and the same moments: what is asked decides, never how."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import fingerprint, problem_of

import ctmoments as ctm
from ctmoments.simulate import lanes, paths
from ctmoments.simulate.lanes import Lockstep
from ctmoments.simulate.network import column_values, lower

LOCKSTEPS = [None, *(Lockstep(*pair) for pair in ((1, 1), (1, 7), (2, 3), (4, 2), (4, 8), (8, 1), (8, 4), (8, 8)))]
COMBINATIONS = 50
POINTS = np.array([3, 0, 12, 7, 2**50])  # the integer coordinate that addresses paths
REPLICATES = 83
TIMES = (0.0, 0.5, 0.75, 2.0, 3.0, 6.0)
TIME_PARTS = (((0, 1, 2, 3, 4, 5),), ((0, 1, 2), (0, 1, 2, 3, 4, 5)), ((1, 4), (0, 2, 3, 5)), ((5,), (0, 1, 2, 3, 4)))


def _problem() -> ctm.Problem:
    """Parameters inside functions, a loss that may fail below zero, two observed combinations."""
    reactions = [
        "X -> Y : a*exp(-b)*X^0.7", "Y -> X : a*Y", "0 -> X : hill(b, a, 1.3)*if(X > 15, 0.5, 4)", "Y -> 0 : 0.2*b^0.3",
    ]  # fmt: skip
    return problem_of({"X": 20, "Y": 9}, reactions, ["X", "0.3*X - Y"], TIMES, a=(0.1, 3), b=(0.1, 3))


@pytest.fixture(scope="module")
def problem() -> ctm.Problem:
    return _problem()


@pytest.fixture(scope="module")
def theta(problem):
    values = np.random.default_rng(1).uniform(0.2, 2.9, (len(POINTS), 2))
    return ctm.as_theta(problem, values).assign_coords(point=POINTS)


def _pieces(rng: np.random.Generator, length: int) -> list[np.ndarray]:
    """0 .. length-1 in one to four runs, in any order."""
    cuts = np.sort(rng.choice(np.arange(1, length), rng.integers(0, min(4, length)), replace=False))
    runs = np.split(np.arange(length), cuts)
    return [runs[k] for k in rng.permutation(len(runs))]


class _FixedPace(lanes.Pace):
    """Blocks of one length, whatever the machine does."""

    block = 1

    def __init__(self, *_):
        self.paths = type(self).block

    def take(self):
        return self.paths

    def learn(self, *_):
        pass


@pytest.mark.parametrize("combination", range(COMBINATIONS))
def test_paths_are_one(problem, theta, combination, monkeypatch, whole_paths):
    rng = np.random.default_rng(combination)
    monkeypatch.setattr(paths, "Pace", _FixedPace)
    values = np.full((len(POINTS), REPLICATES, 2, len(TIMES)), np.nan)
    status = np.full((len(POINTS), REPLICATES), -1)
    for part in TIME_PARTS[rng.integers(len(TIME_PARTS))]:
        here = replace(problem, times=[TIMES[k] for k in part])
        for rows in _pieces(rng, len(POINTS)):
            rows = rng.permutation(rows)
            for run in _pieces(rng, REPLICATES):
                _FixedPace.block = int(rng.integers(1, 200))
                got = ctm.simulate_paths(
                    here, theta[rows], len(run), seed=5, first_replicate=int(run[0]),
                    threads=int(rng.integers(1, 4)), lockstep=LOCKSTEPS[rng.integers(len(LOCKSTEPS))],
                )  # fmt: skip
                values[np.ix_(rows, run, range(2), part)] = got.values.reshape(len(rows), len(run), 2, -1)
                if part[-1] == len(TIMES) - 1:  # fewer times end before some failures
                    status[np.ix_(rows, run)] = got["status"].values
    failed = status > 1
    assert 0 < failed.sum() < failed.size
    values[failed] = np.nan
    assert fingerprint(values, status) == whole_paths


@pytest.fixture(scope="module")
def whole_paths(problem, theta) -> str:
    whole = ctm.simulate_paths(problem, theta, REPLICATES, seed=5, threads=1)
    values = whole.values.reshape(len(POINTS), REPLICATES, 2, len(TIMES))
    values[whole["status"].values > 1] = np.nan
    return fingerprint(values, whole["status"].values.astype(int))


VARIABLES = ("mean", "cov", "mean_se", "cov_se", "replicates", "status_count")


@pytest.mark.parametrize("combination", range(COMBINATIONS))
def test_moments_are_one(problem, theta, combination, whole_moments):
    rng = np.random.default_rng(100 + combination)
    pieces = []
    for rows in _pieces(rng, len(POINTS)):
        pieces.append(
            ctm.simulate_moments(
                problem, theta[rng.permutation(rows)], REPLICATES, seed=5, on_failure="drop",
                threads=int(rng.integers(1, 4)), lockstep=LOCKSTEPS[rng.integers(len(LOCKSTEPS))],
                block_paths=[None, 1, 8, 9, 40, 100, 1000][rng.integers(7)],
            )
        )  # fmt: skip
    arrays = {name: np.concatenate([piece[name].values for piece in pieces]) for name in VARIABLES}
    order = [np.concatenate([piece["point"].values for piece in pieces]).tolist().index(point) for point in POINTS]
    assert fingerprint(*(arrays[name][order] for name in VARIABLES)) == whole_moments


@pytest.fixture(scope="module")
def whole_moments(problem, theta) -> str:
    whole = ctm.simulate_moments(problem, theta, REPLICATES, seed=5, on_failure="drop", threads=1)
    return fingerprint(*(whole[name].values for name in VARIABLES))


def test_fewer_times_are_a_part_of_more():
    """Moments over a prefix, or any part, of the times are the block of the whole."""
    problem, theta = ctm.load_problem("lotka-volterra"), [[0.5, 0.0025, 0.3], [0.6, 0.002, 0.35]]
    many = ctm.simulate_moments(problem, theta, 64, seed=9)
    for part in ([0, 1, 2], [11], [3, 4, 9]):
        few = ctm.simulate_moments(replace(problem, times=[problem.times[k] for k in part]), theta, 64, seed=9)
        keep = np.r_[part, np.array(part) + 12]
        for name in ("mean", "mean_se"):
            np.testing.assert_array_equal(few[name].values, many[name].values[:, keep])
        for name in ("cov", "cov_se"):
            np.testing.assert_array_equal(few[name].values, many[name].values[:, keep][:, :, keep])


def test_what_parameters_alone_decide_does_not_depend_on_their_company():
    """NumPy's vectorised functions may round by array length and stride: a point alone, and among others."""
    problem = problem_of(
        {"X": 1}, ["0 -> X : exp(a)*b^1.37 + log(b)/a^b + sqrt(a) + hill(b, a, 2.2)*X"], "X", [1.0], a=(0, 9), b=(0, 9)
    )
    network = lower(problem)
    values = np.random.default_rng(4).uniform(0.1, 9, (1000, 2))
    together = column_values(problem, network, values)
    alone = np.concatenate([column_values(problem, network, values[[k]]) for k in range(1000)])
    pairs = np.concatenate([column_values(problem, network, values[[k, 999 - k]])[:1] for k in range(1000)])
    assert fingerprint(together) == fingerprint(alone) == fingerprint(pairs)


def test_a_sparse_network_splits_like_any_other():
    """The kernel for large networks: lanes, threads, points and replicates change nothing either."""
    names = [f"X{k}" for k in range(60)]
    reactions = [f"{a} -> {b} : k*{a}" for a, b in zip(names, names[1:] + names[:1], strict=True)]
    reactions += [f"{b} -> {a} : 0.5*k*{b}" for a, b in zip(names, names[1:] + names[:1], strict=True)]
    problem = problem_of(dict.fromkeys(names, 3), reactions, names[:2], [0.5, 1.0], k=(0, 2))
    theta = ctm.as_theta(problem, [[0.5], [1.0], [1.7]])
    whole = ctm.simulate_paths(problem, theta, 50, seed=3, threads=1)
    for width, threads, rows, first in ((1, 1, [2, 0], 0), (2, 2, [1], 7), (4, 3, [0, 1, 2], 13), (8, 2, [1, 2], 1)):
        part = ctm.simulate_paths(
            problem, theta[rows], 50 - first, seed=3, first_replicate=first, threads=threads, lockstep=Lockstep(width)
        )
        assert fingerprint(part.values) == fingerprint(whole.values[rows, first:])
