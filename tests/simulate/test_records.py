"""Records along paths: the same paths, cut where the rule says, each step's M and Q as defined, martingales."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_mean_close, problem_of
from simulate.kinds import MODELS

import ctmoments as ctm
from ctmoments.errors import Status
from ctmoments.simulate.interpreter import walk
from ctmoments.simulate.lanes import Lockstep, Switch, prepare, run_block
from ctmoments.simulate.records import Cutting, record_block
from ctmoments.simulate.streams import Purpose
from ctmoments.simulate.sums import Ranges

SEED = 11
TIMES = (0, 0.25, 0.5, 1, 2.5, 2.5001, 4.75)
CUTTING = Cutting(reach=0.3, grid=(0.0, 0.1, 0.25, 2.0, 3.5, 7.0))
RANGES = Ranges(np.array([0, 1, 2]), np.array([0, 3, 9]), np.array([9, 14, 6]))
LIMIT = 10**6


def case(name: str):
    model, space, values = MODELS[name]
    problem = problem_of(*model, times=TIMES, **space)
    theta = ctm.as_theta(problem, np.array(values))
    return problem, theta, prepare(problem, theta, SEED, Purpose.PATHS, LIMIT)


def weights_of(changes, amounts) -> list[float]:
    """w of each reaction by its definition."""
    return [max((abs(v) / (x + 1) for v, x in zip(row, amounts, strict=True) if v), default=0.0) for row in changes]


def steps_of(problem, theta, row: int, replicate: int, network, cutting: Cutting) -> list[tuple]:
    """The steps of a path by their definition: (time, amounts, M, Q) of each in which something could fire."""
    marks = sorted({*network.times, *(t for t in cutting.grid if 0 < t < network.times[-1])})
    steps, moved = [], 0.0

    def begin(time, amounts):
        return time, list(amounts), np.zeros(len(network.rates)), np.zeros(len(network.rates))

    def close(step):
        if step[3].sum() > 0:
            steps.append(step)

    step = None
    for event in walk(problem, theta, row, replicate, SEED):
        step = step or begin(0.0, event.amounts)
        weights = np.array(weights_of(network.changes, event.amounts))
        at = event.began
        while marks and marks[0] <= event.time:
            mark = marks.pop(0)
            step[2][:] -= weights * event.rates * (mark - at)
            step[3][:] += weights**2 * event.rates * (mark - at)
            close(step)
            step, at = begin(mark, event.amounts), mark
        if not marks:
            return steps
        step[2][:] -= weights * event.rates * (event.time - at)
        step[3][:] += weights**2 * event.rates * (event.time - at)
        weight = weights[event.chosen]
        step[2][event.chosen] += weight
        moved += weight**2
        if moved >= cutting.reach:
            close(step)
            after = [x + change for x, change in zip(event.amounts, network.changes[event.chosen], strict=True)]
            step, moved = begin(event.time, after), 0.0
    raise AssertionError


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize(("width", "groups"), [(1, 1), (4, 3)])
def test_recorded_paths_are_the_paths(name, width, groups):
    _, _, prepared = case(name)
    record = record_block(prepared, RANGES, CUTTING, Switch(), Lockstep(width, groups))
    plain = run_block(prepared, RANGES, Switch(), Lockstep(width, groups))
    good = plain.status <= Status.ABSORBED
    assert np.array_equal(record.block.status, plain.status) and np.array_equal(record.block.events, plain.events)
    assert np.array_equal(record.block.outputs[good], plain.outputs[good])


@pytest.mark.parametrize("name", ["sir", "dimerisation", "functions", "jumps", "absorbed"])
@pytest.mark.parametrize(("width", "groups"), [(1, 1), (4, 3)])
def test_steps_are_cut_and_filled_as_defined(name, width, groups):
    problem, theta, prepared = case(name)
    record = record_block(prepared, RANGES, CUTTING, Switch(), Lockstep(width, groups))
    paths = [(row, first + k) for row, first, count in zip(RANGES.row, RANGES.first, RANGES.count, strict=True)
             for k in range(count)]  # fmt: skip
    assert (np.diff(record.steps.path) >= 0).all()
    for number, (row, replicate) in enumerate(paths):
        mine = record.steps.path == number
        wanted = steps_of(problem, theta, row, replicate, prepared.network, CUTTING)
        assert mine.sum() == len(wanted)
        if wanted:
            time, amounts, compensated, variation = (np.array(part) for part in zip(*wanted, strict=True))
            np.testing.assert_allclose(record.steps.time[mine], time, rtol=1e-12)
            assert np.array_equal(record.steps.amounts[mine], amounts)
            np.testing.assert_allclose(record.steps.compensated[mine], compensated, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(record.steps.variation[mine], variation, rtol=1e-9, atol=1e-9)


def test_too_little_room_changes_nothing(monkeypatch):
    _, _, prepared = case("sir")
    whole = record_block(prepared, RANGES, CUTTING, Switch())
    monkeypatch.setattr("ctmoments.simulate.records.ROOM", 1)
    again = record_block(prepared, RANGES, CUTTING, Switch())
    assert len(whole.steps.path) > RANGES.paths
    for name in ("path", "time", "amounts", "compensated", "variation"):
        assert np.array_equal(getattr(whole.steps, name), getattr(again.steps, name))


@pytest.mark.parametrize("name", ["sir", "schlogl", "telegraph", "lotka-volterra", "toggle-switch"])
def test_integrals_of_anything_known_have_mean_zero_and_the_variance_that_q_tells(name):
    """ΣM g and (ΣM g)² - ΣQ g² for an integrand g that steps know; 20,000 paths find 5.6 % of a standard deviation."""
    problem = ctm.load_problem(name)
    theta = ctm.sample_design(problem, 20_000, seed=3)
    prepared = prepare(problem, theta, SEED, Purpose.PATHS)
    count = len(theta)
    ranges = Ranges(np.arange(count), np.zeros(count, int), np.ones(count, int))
    steps = record_block(prepared, ranges, Cutting(0.05, tuple(np.linspace(0, problem.times[-1], 20))), Switch()).steps
    g = np.cos(steps.time)[:, None] * np.log1p(steps.amounts.sum(axis=1))[:, None] / 5
    reactions = steps.compensated.shape[1]
    integral, variation = np.zeros((2, count, reactions))
    np.add.at(integral, steps.path, steps.compensated * g)
    np.add.at(variation, steps.path, steps.variation * g**2)
    assert_mean_close(np.hstack([integral, integral**2 - variation]), np.zeros(2 * reactions))
