"""Kernels agree with the interpreter to the bit: outputs, status and events, at any width and number of groups."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from helpers import problem_of
from simulate.kinds import MODELS

import ctmoments as ctm
from ctmoments.errors import Status
from ctmoments.simulate.interpreter import interpret_path
from ctmoments.simulate.lanes import Lockstep, Switch, prepare, run_block
from ctmoments.simulate.streams import Purpose
from ctmoments.simulate.sums import Ranges

SEED = 2**64 - 3
ALL = [(width, groups) for width in (1, 2, 4, 8) for groups in range(1, 9)]
SOME = [(1, 1), (2, 3), (4, 5), (8, 4)]
TIMES = (0, 0.25, 0.5, 1, 2.5, 2.5001, 4.75)
FEW_EVENTS = {"negative rate": 9, "nan rate": 6, "sir": 35}  # limits that some paths pass, some just before failing
RANGES = Ranges(np.array([0, 1, 2]), np.array([0, 7, 2**40]), np.array([11, 40, 20]))


def _theta(name: str):
    model, space, values = MODELS[name]
    problem = problem_of(*model, times=TIMES, **space)
    return problem, ctm.as_theta(problem, np.array(values)).assign_coords(point=[0, 5, 2**40])


@cache
def _interpreted(name: str, limit: int) -> tuple:
    problem, theta = _theta(name)
    return tuple(
        interpret_path(problem, theta, row, replicate, SEED, max_events=limit)
        for row, first, count in zip(RANGES.row, RANGES.first, RANGES.count, strict=True)
        for replicate in range(first, first + count)
    )


def _assert_equal(name: str, width: int, groups: int, limit: int = 10**6) -> None:
    problem, theta = _theta(name)
    prepared = prepare(problem, theta, SEED, Purpose.PATHS, limit)
    block = run_block(prepared, RANGES, Switch(), Lockstep(width, groups))
    wanted = _interpreted(name, limit)
    assert block.status.tolist() == [path.status for path in wanted]
    assert block.events.tolist() == [path.events for path in wanted]
    rows = block.outputs[:, : prepared.network.outputs].tolist()
    for got, path in zip(rows, wanted, strict=True):  # what a failed path leaves behind is never shown
        assert path.status.failed or tuple(got) == path.outputs


@pytest.mark.parametrize(("width", "groups"), ALL)
def test_every_width_and_number_of_groups(width, groups):
    _assert_equal("sir", width, groups)


@pytest.mark.parametrize("name", list(MODELS)[1:])
def test_every_kind_of_model(name):
    for width, groups in SOME:
        _assert_equal(name, width, groups)


@pytest.mark.parametrize("name", FEW_EVENTS)
def test_event_limit_overrules_whatever_happens_after_it(name):
    for width, groups in SOME:
        _assert_equal(name, width, groups, FEW_EVENTS[name])
    ends = {path.status for path in _interpreted(name, FEW_EVENTS[name])}
    assert Status.EVENT_LIMIT in ends and len(ends) > 1


def test_the_models_end_in_every_way():
    """Without this the comparison above could miss a status altogether."""
    ends = {path.status for name in MODELS for path in _interpreted(name, 10**6)}
    assert ends == set(Status) - {Status.EVENT_LIMIT, Status.CALL_FAILED}  # the last is of Python callables


def test_a_network_without_anything_to_fire_stays_where_it_is():
    problem = problem_of({"X": 4}, ["X -> X + X : 0*X"], "X", [0, 1e300])
    paths = ctm.simulate_paths(problem, [0.5], replicates=20)
    assert (paths.values == 4).all() and (paths["status"].values == Status.ABSORBED).all()
