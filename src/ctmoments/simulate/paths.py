"""`simulate_paths`: outputs of exact paths, one by one.

In: a problem, parameter values, replicates, a seed. Out: a DataArray (point, replicate, output) with the status of
every path as a coordinate; failed paths are NaN. A path depends on its address (seed, purpose, point, replicate) alone.
"""

from __future__ import annotations

import operator
from contextlib import closing
from typing import Any

import numpy as np
import xarray as xr

from ctmoments.data import paths_array, require_memory
from ctmoments.errors import InputError, Status
from ctmoments.model.callable import CallableProblem
from ctmoments.model.problem import Problem
from ctmoments.model.theta import as_theta
from ctmoments.progress import progress_bar
from ctmoments.simulate.callables import call_paths
from ctmoments.simulate.lanes import (
    Lockstep,
    Pace,
    Ranges,
    Switch,
    cut,
    prepare,
    run_block,
    run_blocks,
    thread_count,
)
from ctmoments.simulate.network import LARGEST_EVENTS, MAX_EVENTS, output_scale
from ctmoments.simulate.streams import Purpose
from ctmoments.simulate.sumkernel import RANGE


def whole_number(name: str, value: Any, least: int, most: int = 2**62) -> int:
    """A whole number within bounds, or an error that names it."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, (bool, np.bool_)) or not least <= number <= most:
        raise InputError(f"`{name}` must be a whole number from {least} to {most}, got {value!r}.")
    return number


def simulate_paths(
    problem: Problem | CallableProblem,
    theta: Any,
    replicates: int,
    seed: int = 0,
    *,
    first_replicate: int = 0,
    max_events: int = MAX_EVENTS,
    purpose: Purpose = Purpose.PATHS,
    threads: int | None = None,
    progress: bool | None = None,
    lockstep: Lockstep | None = None,
) -> xr.DataArray:
    """Outputs of exact paths: (point, replicate, output), NaN where a path failed; see `status`.

    >>> import ctmoments as ctm
    >>> paths = ctm.simulate_paths(ctm.load_problem("sir"), [0.5, 0.002], replicates=3, seed=1)
    >>> dict(paths.sizes)
    {'point': 1, 'replicate': 3, 'output': 13}
    """
    theta = as_theta(problem, theta, strict=True)
    count = whole_number("replicates", replicates, 1)
    first = whole_number("first_replicate", first_replicate, 0)
    limit = whole_number("max_events", max_events, 1, LARGEST_EVENTS)
    require_memory("These paths", 8.0 * len(theta) * count * len(problem.output_times))
    if isinstance(problem, CallableProblem):
        values, status, note = call_paths(
            problem, theta["point"].values, theta.values, first, first + count, seed, purpose
        )
        attrs = {"seed": seed, "purpose": purpose.name.lower(), "paths": len(theta) * count, "events": 0}
        attrs |= {"first_failure": note} if note else {}
        return paths_array(problem, theta, values, status, first_replicate=first, attrs=attrs)
    prepared = prepare(problem, theta, seed, purpose, limit)
    points, length = theta.sizes["point"], prepared.network.outputs
    values = np.empty((points, count, length))
    status = np.empty((points, count), np.int8)
    scale = output_scale(problem)
    events = 0

    def work(ranges: Ranges, switch: Switch):
        return run_block(prepared, ranges, switch, lockstep)

    threads = thread_count(threads)
    pace = Pace(prepared.network, points * count, threads)
    blocks = cut(points, first, count, RANGE, pace.take)
    with (
        progress_bar("simulating", points * count, "paths", progress) as report,
        closing(run_blocks(work, blocks, threads, pace, report)) as results,  # ended at once, whoever is interrupted
    ):
        for block in results:
            at = np.repeat(block.ranges.row * count - first, block.ranges.count) + np.concatenate(
                [np.arange(f, f + n) for f, n in zip(block.ranges.first, block.ranges.count, strict=True)]
            )
            values.reshape(-1, length)[at] = block.outputs[:, :length] * scale
            status.reshape(-1)[at] = block.status
            events += int(block.events.sum())
    values[status > Status.ABSORBED] = np.nan
    attrs = {"seed": seed, "purpose": purpose.name.lower(), "paths": points * count, "events": events}
    return paths_array(problem, theta, values, status, first_replicate=first, attrs=attrs)
