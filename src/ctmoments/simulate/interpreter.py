"""The oracle: one path at an address, in plain Python, by the rules of the kernels.

In: a problem, one parameter value, an address. Out: a `Path`. Same arithmetic (`scalars.Scalars`), same trees
(`rates.RateWriter`), no lanes, no memory layout, no turn of delay: a kernel must agree with it to the bit. About
0.2 ms an event, nearly all of it exact fused multiply-adds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    here = theta.isel(point=[row])
    columns = column_values(problem, network, here.values)[0]
    amounts = start_values(problem, network, here.values)[0]
    state = path_state(seed, purpose, here["point"].values[0], replicate)
    return _run(network, columns.tolist(), amounts.tolist(), tuple(map(int, state)), max_events)


def _run(network: Network, columns: list[float], amounts: list[float], state: tuple, max_events: int) -> Path:
    outputs = np.zeros((len(network.weights), len(network.times)), object)
    time, cursor, events = 0.0, 0, 0
    while True:
        rates = _rates(network, columns, amounts)
        sums = [rates[0]]
        for rate in rates[1:]:
            sums.append(sums[-1] + rate)
        total = sums[-1]
        waiting_word, state = arithmetic.draw(ON, state)
        choice_word, state = arithmetic.draw(ON, state)
        time = time + ON.div(arithmetic.exponential(ON, waiting_word), total)
        failure = _failure(network, amounts, rates, total, time, events > max_events)
        if failure is not None:
            return _path(outputs, failure, min(events, max_events))
        while cursor < len(network.times) and not time < network.times[cursor]:
            for component, weights in enumerate(network.weights):
                outputs[component, cursor] = sum(w * int(x) for w, x in zip(weights, amounts, strict=True))
            cursor += 1
        if cursor == len(network.times):
            return _path(outputs, Status.ABSORBED if total == 0.0 else Status.FINISHED, events)
        chosen = _choose(sums, arithmetic.uniform(ON, choice_word) * total)
        amounts = [x + change for x, change in zip(amounts, network.changes[chosen], strict=True)]
        events += 1


def _rates(network: Network, columns: list[float], amounts: list[float]) -> list[float]:
    values = {species_slot(i).name: amount for i, amount in enumerate(amounts)}
    values |= {column_slot(k).name: column for k, column in enumerate(columns)}
    writer = RateWriter(ON, values)
    return [writer.real(rate) for rate in network.rates] or [0.0]


def _failure(network: Network, amounts, rates, total: float, time: float, too_many: bool) -> Status | None:
    """Why a path cannot go on. The event limit comes first: a kernel notices it late, and must end the same way."""
    if too_many:
        return Status.EVENT_LIMIT
    if any(amounts[i] < 0.0 for i in network.guarded):
        return Status.OUT_OF_RANGE
    if not total < math.inf or any(not rate >= 0.0 for rate in rates):
        return Status.BAD_RATE
    if total * time > CLOCK_LIMIT and time < math.inf:
        return Status.CLOCK_STUCK
    return None


def _choose(sums: list[float], threshold: float) -> int:
    """The first reaction whose cumulated rate is above the threshold."""
    return next(r for r, cumulated in enumerate(sums) if threshold < cumulated)


def _path(outputs: np.ndarray, status: Status, events: int) -> Path:
    return Path(tuple(int(value) for value in outputs.reshape(-1)), status, events)
