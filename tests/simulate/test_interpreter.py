"""Kernels agree with the interpreter to the bit: outputs, status and events, at any width and number of groups."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from helpers import problem_of

import ctmoments as ctm
from ctmoments.errors import Status
from ctmoments.simulate.interpreter import interpret_path
from ctmoments.simulate.lanes import Lockstep, Switch, prepare, run_block
from ctmoments.simulate.streams import Purpose
from ctmoments.simulate.sums import Ranges

SEED = 2**64 - 3
ALL = [(width, groups) for width in (1, 2, 4, 8) for groups in range(1, 9)]
SOME = [(1, 1), (2, 3), (4, 5), (8, 4)]
FUNCTIONS = (
    "0 -> X : k*exp(-X/7) + hill(Y, a, 2.5)",
    "X -> Y : log(1 + X)^1.5*X/(X + 1)",
    "Y -> 0 : if(Y > 3 and X >= 2 or not (X != 1), min(Y, k), 0.5*max(Y, floor(Y/2)))",
    "Y -> X : sqrt(abs(Y - 4))*ceil(Y/3)*a^-2",
    "X + Y -> Y : hillr(Y, k, 3)*mm(X, a, 2)*(-0.3)^2",
)
MODELS = {
    "sir": (({"S": 30, "I": 2, "R": 0}, ("S + I -> 2 I : b*S*I", "I -> R : a*I"), ["I", "0.5*S + R"]),
            dict(a=(0, 1), b=(0, 1)), [[0.5, 0.05], [0.9, 0.02], [0.1, 0.1]]),
    "dimerisation": (({"P": 31, "Q": 0}, ("2 P -> Q @ k", "Q -> 2 P @ l"), ["P", "Q"]),
                     dict(k=(0, 1), l=(0, 1)), [[0.01, 0.2], [0.1, 0.9], [1.0, 1e-3]]),
    "functions": (({"X": 5, "Y": 3}, FUNCTIONS, ["X", "Y", "3*X - 2*Y"]),
                  dict(k=(0, 9), a=(0, 9)), [[4.0, 2.0], [8.5, 5.25], [0.7, 1.5]]),
    "jumps": (({"A": 25, "B": 1, "C": 0}, ("5 A -> 3 B : k*A*(A-1)*(A-2)*(A-3)*(A-4)", "3 B + C -> 5 A + C @ l/100",
                                           "B -> B + C @ l", "C -> 0 @ k"), ["A + B", "C"]),
              dict(k=(0, 1), l=(0, 1)), [[1e-5, 0.3], [2e-5, 0.2], [1e-6, 0.05]]),
    "below zero": (({"X": 6, "Y": 0}, ("X -> Y : k", "Y -> X : l*Y"), ["X", "Y"]),
                   dict(k=(0, 9), l=(0, 9)), [[2.0, 0.1], [1.0, 1.0], [0.1, 3.0]]),
    "negative rate": (({"X": 0}, ("0 -> X : k - X", "X -> 0 : l*X"), "X"),
                      dict(k=(0, 9), l=(0, 9)), [[3.5, 0.2], [6.0, 0.5], [-1.0, 1.0]]),
    "nan rate": (({"X": 0}, ("0 -> X : k*sqrt(2.5 - X)", "X -> 0 : l*X"), "X"),
                 dict(k=(0, 9), l=(0, 9)), [[0.9, 0.2], [0.3, 0.5], [2.0, 1.0]]),
    "infinite rate": (({"X": 0}, ("0 -> X : k/(4 - X)", "X -> 0 : l*X"), "X"),
                      dict(k=(0, 9), l=(0, 9)), [[1.9, 0.2], [1.3, 0.5], [0.1, 1.0]]),
    "clock stuck": (({"Y": 1, "X": 0}, ("Y -> 0 : k*Y", "0 -> X : if(Y < 1, l, 1)"), "X"),
                    dict(k=(0, 9), l=(0, 1e20)), [[0.2, 1e18], [1.0, 1e19], [0.1, 1e20]]),
    "absorbed": (({"X": 9, "Y": 1}, ("X -> 0 : k*X", "X -> Y : l*X"), ["X", "Y"]),
                 dict(k=(0, 9), l=(0, 9)), [[0.2, 0.5], [2.0, 3.0], [0.0, 0.0]]),
    "hardly ever": (({"X": 9}, ("X -> 0 : k*X", "0 -> X : exp(-l)"), "X"),
                    dict(k=(0, 9), l=(0, 900)), [[0.0, 730.0], [1e-9, 3.0], [1e-300, 744.0]]),
    "large amounts": (({"X": 2**33 + 5, "Y": 2**52 - 9}, ("X -> 4 Y : k", "Y -> 7 X : l"), ["X", "Y - X"]),
                      dict(k=(0, 9), l=(0, 9)), [[2.0, 5.0], [9.0, 1.0], [0.1, 0.1]]),
}  # fmt: skip
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
