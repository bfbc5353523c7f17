"""Blocks: any cut adds up to the same sums, bytes come back, rectangles cover what is missing and nothing twice."""

from __future__ import annotations

import itertools
import random
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctmoments.errors import FileError
from ctmoments.model.library import load_problem
from ctmoments.simulate.blocks import Task, Totals, region_sums
from ctmoments.simulate.coverage import cut_tasks, missing_tasks
from ctmoments.simulate.design import sample_design
from ctmoments.simulate.encode import checksum, pack, unpack
from ctmoments.simulate.lanes import Switch, prepare
from ctmoments.simulate.streams import Purpose
from ctmoments.simulate.sums import Sums

SIR = load_problem("sir")
WHOLE = st.integers(-(2**150), 2**150) | st.sampled_from([0, 127, 128, -128, -129, 2**63 - 1, 2**63, -(2**63)])


def totals(tasks, design, rows):
    result = Totals(rows, 13)
    for task in tasks:
        prepared = prepare(SIR, design[task.row_first : task.row_end], 4, Purpose.PATHS)
        region = region_sums(prepared, task, Switch())
        result.add(np.arange(task.row_first, task.row_end), region.sums, region.statuses, region.events)
    return result


def assert_same(a, b):
    for field in fields(Sums):
        np.testing.assert_array_equal(getattr(a.sums, field.name), getattr(b.sums, field.name), field.name)
    np.testing.assert_array_equal(a.statuses, b.statuses)
    assert a.events == b.events


@pytest.mark.parametrize("cuts", [(1,), (2,), (7,), (8,), (9,), (1, 2, 3), (1, 15, 21), (16, 24), tuple(range(1, 29))])
def test_any_cut_of_replicates_adds_up(cuts):
    """A whole leaf counted twice, or not at all, where a cut goes through it, would show in `leaves`."""
    design = sample_design(SIR, 3, seed=2)
    edges = [0, *cuts, 29]
    tasks = [Task(0, 3, a, b) for a, b in itertools.pairwise(edges)]
    random.Random(1).shuffle(tasks)
    assert_same(totals(tasks, design, 3), totals([Task(0, 3, 0, 29)], design, 3))


def test_one_replicate_is_its_outputs_and_nothing_else():
    sums = totals([Task(0, 2, 0, 1)], sample_design(SIR, 2, seed=2), 2).sums
    assert sums.sum1.any() and not sums.sum2.any() and not sums.leaf1.any()


@given(st.lists(WHOLE, min_size=6, max_size=6))
def test_whole_numbers_come_back(values):
    array = np.array(values, object).reshape(2, 3)
    data = pack([array, np.array([1.5, -0.0])])
    back, reals = unpack(data, [(2, 3), (2,)])
    assert back.tolist() == array.tolist() and reals.tobytes() == np.array([1.5, -0.0]).tobytes()
    if array.max() < 2**63 and array.min() >= -(2**63):
        assert back.dtype == np.int64 and pack([array.astype(np.int64)]) == pack([array])


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b"\x03" + d[1:], lambda d: b""])
def test_bytes_of_another_length_are_refused(damage):
    with pytest.raises(FileError, match="a block must"):
        unpack(damage(pack([np.arange(300)])), [(300,)])


def test_checksum_tells_parts_apart():
    assert len({checksum(b"ab", b"c"), checksum(b"a", b"bc"), checksum(b"abc"), checksum("abc")}) == 4


@given(st.integers(1, 12), st.integers(1, 1300), st.integers(1, 3000), st.randoms(use_true_random=False))
def test_what_is_missing_is_cut_into_tasks_that_cover_it_once(rows, replicates, pace, rng):
    tasks = list(cut_tasks(missing_tasks([], rows, replicates), lambda: rng.randint(1, pace)))
    kept = [task for task in tasks if rng.random() < 0.5]
    again = list(cut_tasks(missing_tasks(kept, rows, replicates), lambda: pace))
    count = np.zeros((rows, replicates), int)
    for task in kept + again:
        count[task.row_first : task.row_end, task.first : task.end] += 1
    assert (count == 1).all()
    assert missing_tasks(kept + again, rows, replicates) == []


def test_overlapping_blocks_are_refused():
    with pytest.raises(FileError, match="blocks must not overlap, got replicate 5 of row 1 twice"):
        missing_tasks([Task(0, 2, 0, 8), Task(1, 3, 5, 9)], 3, 9)
