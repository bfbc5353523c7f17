"""Blocks: every replicate once, ranges that start at whole leaves, an error anywhere ends all threads."""

from __future__ import annotations

import time

import numpy as np
import pytest
from helpers import problem_of

import ctmoments as ctm
from ctmoments.simulate.lanes import Pace, cut, run_blocks
from ctmoments.simulate.network import lower
from ctmoments.simulate.sumkernel import LEAF, RANGE


@pytest.mark.parametrize("seed", range(30))
def test_every_replicate_of_every_point_is_cut_once(seed):
    rng = np.random.default_rng(seed)
    points, first, replicates = (int(rng.integers(low, high)) for low, high in ((1, 9), (0, 50), (1, 5000)))
    longest = int(rng.choice([RANGE, 64, LEAF]))
    seen = []
    for ranges in cut(points, first, replicates, longest, lambda: int(rng.integers(1, 3000))):
        assert (ranges.count <= longest).all() and (ranges.count > 0).all()
        assert ((ranges.first - first) % LEAF == 0).all()
        assert (np.diff(ranges.row) >= 0).all()
        for row, start, count in zip(ranges.row, ranges.first, ranges.count, strict=True):
            seen += [(int(row), start + k) for k in range(count)]
    assert sorted(seen) == [(p, r) for p in range(points) for r in range(first, first + replicates)]


def test_an_error_in_one_block_ends_all():
    ended = []

    def work(ranges, switch):
        if ranges.first[0] == 2 * LEAF:
            raise ZeroDivisionError("here")
        until = time.monotonic() + 20
        while not switch.stop[0] and time.monotonic() < until:
            time.sleep(0.001)
        ended.append(bool(switch.stop[0]))

    blocks = cut(1, 0, 10 * LEAF, LEAF, lambda: LEAF)
    with pytest.raises(ZeroDivisionError, match="here"):
        list(run_blocks(work, blocks, 3, None, lambda done: None))
    assert ended and all(ended)


def test_blocks_are_neither_too_small_nor_too_large_for_memory():
    problem = problem_of({"X": 0}, ["0 -> X @ k"], "X", np.arange(1.0, 3001.0), k=(0, 1))
    pace = Pace(lower(problem), 10**9, 2)
    for seconds in (1e-9, 1e-9, 1e-9, 1e-9, 1e9, 1e9):
        pace.learn(pace.paths, seconds)
        assert Pace.FEWEST <= pace.paths <= 4096 and pace.paths * 8 * 3000 < 2**25


def test_the_end_of_a_job_is_cut_small_for_several_threads():
    network = lower(problem_of({"X": 0}, ["0 -> X @ k"], "X", [1.0], k=(0, 1)))
    for threads in (1, 2, 5):
        pace, taken = Pace(network, 100_000, threads), []
        while pace.left:
            pace.learn(pace.paths, 1e-9)  # fast: only memory and the end bound a block
            taken.append(pace.take())
        assert 100_000 <= sum(taken) < 100_000 + Pace.LAST
        assert max(taken) <= pace.most
        assert taken[-1] <= (Pace.LAST if threads > 1 else pace.most)


def test_progress_reaches_the_end(capsys):
    """Reports add up to all paths, whatever the blocks."""
    reports = []
    blocks = cut(3, 0, 100, RANGE, lambda: 50)
    results = list(run_blocks(lambda ranges, switch: ranges.paths, blocks, 2, None, reports.append))
    assert sum(results) == 300 == reports[-1] and reports == sorted(reports)
    ctm.simulate_moments(ctm.load_problem("sir"), [0.5, 0.002], 10)
    assert capsys.readouterr() == ("", "")  # no bar outside a terminal
