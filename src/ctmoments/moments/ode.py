"""Integrating one system at thousands of parameter values at once, each at its own pace.

In: a `System`, starts and parameters (a column for each point), output times. Out: core and flow at the outputs, NaN
where a point failed. All points march in lock-step, but each has its own clock, step and error control, so none waits
for the stiffest, and finished points leave. The explicit method goes first; a point on which stability, not accuracy,
limits its step (Hairer, Norsett and Wanner, Solving ODEs II, IV.2) is handed, where it stands, to the implicit one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from ctmoments.moments.steps import Attempt, allowed_errors, bind_explicit, bind_implicit
from ctmoments.moments.system import System

MAX_EXPLICIT_STEPS = 5_000
MAX_STEPS = 100_000
STIFF_PULL = 6.1  # where DOP853 stops being stable
STIFF_SIGNS = 15  # steps that reach it before a point counts as stiff
SMALLEST_STEP = 1e-14  # of the whole time; a solution that needs less has blown up
CHUNK_NUMBERS = 1 << 25  # held at once by the work space of one chunk of points


@dataclass(frozen=True, eq=False)
class Course:
    """What an integration leaves; NaN from where a point failed."""

    core: np.ndarray  # (time, c, point)
    flow: np.ndarray  # since the output before: (time, n, n, point)


@dataclass(frozen=True, eq=False)
class _March:
    """The points on their way; `point` is the last axis everywhere."""

    index: np.ndarray  # which point this is
    state: np.ndarray
    parameters: np.ndarray
    gaps: np.ndarray  # time to each output from the one before
    output: np.ndarray  # the output it is heading for
    elapsed: np.ndarray  # since the output before
    step: np.ndarray  # proposed
    taken: np.ndarray  # steps tried
    stiff: np.ndarray  # signs of stiffness in the latest steps

    def __len__(self) -> int:
        return len(self.index)

    def keep(self, chosen: np.ndarray) -> _March:
        return _March(*(np.ascontiguousarray(getattr(self, entry.name)[..., chosen]) for entry in fields(self)))


def integrate(
    system: System,
    start: np.ndarray,
    parameters: np.ndarray,
    output_times: np.ndarray,
    tolerance: float,
    report: Callable[[int], object] = lambda done: None,
) -> Course:
    """The course of a system from `start` (core, point), at `output_times` (time,) or (time, point) after it.

    `report` hears how many outputs, over all points, are reached.
    """
    points = start.shape[1]
    gaps = np.diff(output_times.reshape(len(output_times), -1), axis=0, prepend=0.0)
    gaps = np.broadcast_to(gaps, (len(gaps), points))
    chunk = max(1, CHUNK_NUMBERS // (32 * system.size + 4 * len(system.core) ** 2))  # stages; Jacobians if stiff
    parts = [slice(first, first + chunk) for first in range(0, points, chunk)]
    courses = []
    for p in parts:
        before = gaps.shape[0] * p.start
        courses.append(
            _integrate(
                system,
                start[:, p],
                parameters[:, p],
                gaps[:, p],
                tolerance,
                lambda n, before=before: report(before + n),
            )
        )
    return Course(*(np.concatenate([getattr(c, e.name) for c in courses], axis=-1) for e in fields(Course)))


@np.errstate(all="ignore")
def _integrate(
    system: System,
    start: np.ndarray,
    parameters: np.ndarray,
    gaps: np.ndarray,
    tolerance: float,
    report: Callable[[int], object],
) -> Course:
    outputs, points = gaps.shape
    course = np.full((outputs, system.size, points), np.nan)
    state = np.vstack([start, _identity(system, points)])
    count = np.zeros(points, int)
    step = _first_step(system, state, parameters, gaps, tolerance)
    march = _March(np.arange(points), state, parameters, gaps, count, np.zeros(points), step, count, count)
    stiff = _run(system, march, course, bind_explicit, 1 / 8, tolerance, MAX_EXPLICIT_STEPS, report)
    _run(system, stiff, course, bind_implicit, 1 / 5, tolerance, MAX_STEPS, report)
    core = course[:, : len(system.core)]
    flow = course[:, len(system.core) :].reshape(outputs, system.width, system.width, points)
    return Course(core, flow)


def _identity(system: System, points: int) -> np.ndarray:
    return np.repeat(np.eye(system.width).reshape(-1, 1), points, axis=1)


def _first_step(
    system: System, state: np.ndarray, parameters: np.ndarray, gaps: np.ndarray, tolerance: float
) -> np.ndarray:
    """A hundredth of the time in which some number would change by itself; a bad guess costs a few rejections."""
    slope = np.empty_like(state)
    system.bind(state.shape[1])(state, parameters, slope)
    speed = np.abs(slope / allowed_errors(system, state, state, 1.0)).max(axis=0)
    return np.minimum(gaps.sum(axis=0), 0.01 / np.maximum(speed, 1e-300))


def _run(
    system: System,
    march: _March,
    course: np.ndarray,
    bind: Callable[[System, int], Attempt],
    power: float,
    tolerance: float,
    max_steps: int,
    report: Callable[[int], object],
) -> _March:
    """March until every point has finished, failed or left as stiff; the stiff ones are returned."""
    handed = [march.keep(np.zeros(len(march), bool))]
    attempt, bound = None, -1
    while len(march):
        if attempt is None or bound != len(march):
            attempt, bound = bind(system, len(march)), len(march)
        march, arrived = _one_step(march, attempt, power, tolerance)
        if arrived.any():
            march = _record(system, march, arrived, course)
            report(int(np.isfinite(course[:, 0]).sum()))
        slow = (march.stiff >= STIFF_SIGNS) | (march.taken >= max_steps)
        stuck = ~(march.step >= SMALLEST_STEP * march.gaps.sum(axis=0))
        if (slow | stuck).any():
            handed.append(march.keep(slow & ~stuck))
            march = march.keep(~(slow | stuck))
    stiff = _March(*(np.concatenate([getattr(m, e.name) for m in handed], axis=-1) for e in fields(_March)))
    return replace(stiff, taken=0 * stiff.taken, stiff=0 * stiff.stiff)


def _one_step(march: _March, attempt: Attempt, power: float, tolerance: float) -> tuple[_March, np.ndarray]:
    """Every point one step on, or back to a smaller one; and which points arrived at their output."""
    remaining = march.gaps[march.output, np.arange(len(march))] - march.elapsed
    last = march.step >= remaining
    h = np.where(last, remaining, np.minimum(march.step, remaining / 2))  # no sliver is left before an output
    trial = attempt(march.state, march.parameters, h, tolerance)
    accepted = trial.error <= 1
    factor = np.clip(0.9 * np.maximum(trial.error, 1e-10) ** -power, 0.2, 6.0)
    factor = np.where(np.isfinite(trial.error), factor, 0.2)
    # a step cut short to meet an output says little about the next one: the longer proposal stays
    longer = np.maximum(factor * h, np.where(h < march.step, march.step, 0.0))
    signs = np.where(trial.pull > STIFF_PULL, march.stiff + 1, np.maximum(march.stiff - 2, 0))
    moved = replace(
        march,
        state=np.where(accepted, trial.state, march.state),
        elapsed=np.where(accepted, march.elapsed + h, march.elapsed),
        step=np.where(accepted, longer, np.minimum(factor, 0.9) * h),
        taken=march.taken + 1,
        stiff=np.where(accepted, signs, march.stiff),
    )
    return moved, accepted & last


def _record(system: System, march: _March, arrived: np.ndarray, course: np.ndarray) -> _March:
    """Store the points that are at an output, restart their flow, let the finished ones go."""
    at = np.flatnonzero(arrived)
    course[march.output[at], :, march.index[at]] = march.state[:, at].T
    march.state[len(system.core) :, at] = _identity(system, len(at))
    march = replace(march, output=march.output + arrived, elapsed=np.where(arrived, 0.0, march.elapsed))
    going = march.output < len(course)
    return march if going.all() else march.keep(going)
