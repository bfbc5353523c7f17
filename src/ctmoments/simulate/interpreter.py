"""The oracle: one path at an address, in plain Python, by the rules of the kernels.

In: a problem, one parameter value, an address. Out: a `Path`. Same arithmetic (`scalars.Scalars`), same trees
(`rates.RateWriter`), no lanes, no memory layout, no turn of delay: a kernel must agree with it to the bit. About
0.2 ms an event, nearly all of it exact fused multiply-adds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import xarray as xr

from ctmoments.errors import Status
from ctmoments.model.problem import Problem
from ctmoments.simulate import arithmetic
from ctmoments.simulate.context import CLOCK_LIMIT
from ctmoments.simulate.network import (
    MAX_EVENTS,
    Network,
    column_slot,
    column_values,
    lower,
    species_slot,
    start_values,
)
from ctmoments.simulate.rates import RateWriter
from ctmoments.simulate.scalars import Scalars
from ctmoments.simulate.streams import Purpose, path_state

ON = Scalars()


@dataclass(frozen=True)
class Path:
    """What a kernel writes for a path: whole-number outputs (0 where it failed before), how it ended, its events."""

    outputs: tuple[int, ...]
    status: Status
    events: int


class Event(NamedTuple):
    """What a path draws in some state: the time at which it would jump, and where."""

    began: float
    amounts: list[float]
    rates: list[float]
    time: float
    threshold: float

    @property
    def chosen(self) -> int:
        """The first reaction whose cumulated rate is above the threshold."""
        return next(r for r, cumulated in enumerate(accumulate(self.rates)) if self.threshold < cumulated)


def interpret_path(
    problem: Problem,
    theta: xr.DataArray,
    row: int,
    replicate: int,
    seed: int,
    purpose: Purpose = Purpose.PATHS,
    max_events: int = MAX_EVENTS,
) -> Path:
    """The path of replicate `replicate` at row `row` of `theta` (point, parameter), as `as_theta` returns it."""
    network = lower(problem)
    outputs = np.zeros((len(network.weights), len(network.times)), object)
    cursor = 0
    for number, event in enumerate(walk(problem, theta, row, replicate, seed, purpose)):
        *_, total = accumulate(event.rates)
        failure = _failure(network, event, total, number > max_events)
        if failure is not None:
            return _path(outputs, failure, min(number, max_events))
        while cursor < len(network.times) and not event.time < network.times[cursor]:
            for component, weights in enumerate(network.weights):
                outputs[component, cursor] = sum(w * int(x) for w, x in zip(weights, event.amounts, strict=True))
            cursor += 1
        if cursor == len(network.times):
            return _path(outputs, Status.ABSORBED if total == 0.0 else Status.FINISHED, number)
    raise AssertionError("a walk has no end of its own")


def walk(
    problem: Problem, theta: xr.DataArray, row: int, replicate: int, seed: int, purpose: Purpose = Purpose.PATHS
) -> Iterator[Event]:
    """The events of a path, without end: who looks at them says when it is over."""
    network = lower(problem)
    here = theta.isel(point=[row])
    columns = column_values(problem, network, here.values)[0].tolist()
    amounts = start_values(problem, network, here.values)[0].tolist()
    state = tuple(map(int, path_state(seed, purpose, here["point"].values[0], replicate)))
    time = 0.0
    while True:
        rates = _rates(network, columns, amounts)
        *_, total = accumulate(rates)
        waiting_word, state = arithmetic.draw(ON, state)
        choice_word, state = arithmetic.draw(ON, state)
        began, time = time, time + ON.div(arithmetic.exponential(ON, waiting_word), total)
        event = Event(began, amounts, rates, time, arithmetic.uniform(ON, choice_word) * total)
        yield event
        amounts = [x + change for x, change in zip(amounts, network.changes[event.chosen], strict=True)]


def _rates(network: Network, columns: list[float], amounts: list[float]) -> list[float]:
    values = {species_slot(i).name: amount for i, amount in enumerate(amounts)}
    values |= {column_slot(k).name: column for k, column in enumerate(columns)}
    writer = RateWriter(ON, values)
    return [writer.real(rate) for rate in network.rates] or [0.0]


def _failure(network: Network, event: Event, total: float, too_many: bool) -> Status | None:
    """Why a path cannot go on. The event limit comes first: a kernel notices it late, and must end the same way."""
    if too_many:
        return Status.EVENT_LIMIT
    if any(event.amounts[i] < 0.0 for i in network.guarded):
        return Status.OUT_OF_RANGE
    if not total < math.inf or any(not rate >= 0.0 for rate in event.rates):
        return Status.BAD_RATE
    if total * event.time > CLOCK_LIMIT and event.time < math.inf:
        return Status.CLOCK_STUCK
    return None


def _path(outputs: np.ndarray, status: Status, events: int) -> Path:
    return Path(tuple(int(value) for value in outputs.reshape(-1)), status, events)
