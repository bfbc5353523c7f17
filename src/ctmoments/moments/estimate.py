"""`simulate_moments`: means, covariances and their standard errors from streamed exact sums.

In: a problem, parameter values, replicates, a seed. Out: the moments dataset. Both estimators are unbiased (divisor
M - 1). Memory does not grow with the replicates, and one seed gives the same bits for any number of threads, lanes
and blocks, because sums are exact whole numbers (`simulate/sums.py`).

The standard error of a covariance entry uses Var(c_ij) = κ_iijj/M + (c_ii c_jj + c_ij²)/(M - 1). The fourth cumulant κ
follows from the variance of the covariances of whole leaves of 8 replicates, where that holds with M = 8; below 16
replicates it is taken as 0, as for a Gaussian. `cov_se_from` in attrs says which.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ctmoments.data import moments_dataset, require_memory
from ctmoments.errors import InputError, SimulationError, Status
from ctmoments.model.callable import CallableProblem
from ctmoments.model.problem import Problem
from ctmoments.model.theta import as_theta
from ctmoments.progress import progress_bar
from ctmoments.simulate.blocks import Region, Task, Totals, block_sums
from ctmoments.simulate.callables import RealRegion, RealSums, call_block, fold
from ctmoments.simulate.campaign import Where, run_campaign, stored_design, stored_problem
from ctmoments.simulate.lanes import (
    Lockstep,
    Pace,
    Ranges,
    Switch,
    cut,
    prepare,
    run_blocks,
    thread_count,
)
from ctmoments.simulate.merge import merged, require_complete
from ctmoments.simulate.network import LARGEST_EVENTS, MAX_EVENTS, lower, output_scale
from ctmoments.simulate.paths import whole_number
from ctmoments.simulate.status import first_failure
from ctmoments.simulate.store import Store
from ctmoments.simulate.streams import Purpose
from ctmoments.simulate.sumkernel import LEAF, RANGE
from ctmoments.simulate.sums import SAFE, Sums, largest

ON_FAILURE = ("nan", "drop", "raise")


def simulate_moments(
    problem: Problem | CallableProblem,
    theta: Any,
    replicates: int,
    seed: int = 0,
    *,
    device: str = "cpu",
    store: str | Path | None = None,
    resume: bool = False,
    add_times: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    on_failure: str = "nan",
    max_events: int = MAX_EVENTS,
    purpose: Purpose = Purpose.PATHS,
    threads: int | None = None,
    progress: bool | None = None,
    lockstep: Lockstep | None = None,
    block_paths: int | None = None,
) -> xr.Dataset:
    """Mean, covariance and their standard errors at each parameter value from `replicates` exact paths.

    A point with failed paths has NaN moments; `on_failure="drop"` takes the moments of the rest, "raise" raises.

    With `store` the paths are a campaign: blocks of sums go into that file as they are finished. It must not exist,
    unless `resume`: then what is missing is simulated, be it all (no file yet), what an interrupted run left, points
    appended to `theta` (`sample_design(extend=)`), more replicates or, with `add_times`, further output times; a
    finished store is read. A store of another problem, seed or design is refused. `workers` processes of this machine
    or those of a dask `scheduler` simulate instead of threads. Results are the same bits in every case.

    >>> import ctmoments as ctm
    >>> data = ctm.simulate_moments(ctm.load_problem("sir"), [0.5, 0.002], replicates=100, seed=1)
    >>> data["cov"].shape
    (1, 13, 13)
    """
    if device not in ("cpu", "cuda"):
        raise InputError(f"`device` must be 'cpu' or 'cuda', got {device!r}.")
    if device == "cuda":
        warnings.warn("Simulation stays on the CPU: it has no CUDA driver yet.", stacklevel=2)
    if on_failure not in ON_FAILURE:
        raise InputError(f"`on_failure` must be one of {', '.join(ON_FAILURE)}, got {on_failure!r}.")
    theta = as_theta(problem, theta, strict=True)
    count = whole_number("replicates", replicates, 1)
    limit = whole_number("max_events", max_events, 1, LARGEST_EVENTS)
    block_paths = None if block_paths is None else whole_number("block_paths", block_paths, 1)
    # covariance and its error, and three triangles of sums
    require_memory("The moments of these points", 28.0 * len(theta) * len(problem.output_times) ** 2)
    if store is not None:
        where = Where(threads=threads, workers=workers, scheduler=scheduler, block_paths=block_paths)
        run_campaign(problem, theta, count, seed, store=store, resume=resume, add_times=add_times, purpose=purpose,
                     max_events=limit, where=where, progress=progress)  # fmt: skip
        return store_moments(store, on_failure=on_failure, problem=problem)
    for name, value in (("resume", resume), ("add_times", add_times), ("workers", workers), ("scheduler", scheduler)):
        if value:
            raise InputError(f"`{name}` needs a `store`, got {value!r} without one.")
    if isinstance(problem, CallableProblem):
        return _from_callable(problem, theta, count, seed, purpose, on_failure)
    prepared = prepare(problem, theta, seed, purpose, limit)
    points = theta.sizes["point"]
    threads = thread_count(threads)
    pace = Pace(prepared.network, points * count, threads)
    totals = Totals(points, prepared.network.outputs)

    def work(ranges: Ranges, switch: Switch):
        return block_sums(prepared, ranges, switch, lockstep)

    blocks = cut(points, 0, count, RANGE, (lambda: block_paths) if block_paths else pace.take)
    with (
        progress_bar("simulating", points * count, "paths", progress) as report,
        closing(run_blocks(work, blocks, threads, pace, report)) as results,  # ended at once, whoever is interrupted
    ):
        for rows, part, counted, fired in results:
            totals.add(rows, part, counted, fired)
    return moments_from_regions(problem, theta, count, totals.chunks(), seed=seed, purpose=purpose.name.lower(),
                                on_failure=on_failure)  # fmt: skip


def _from_callable(
    problem: CallableProblem, theta: xr.DataArray, count: int, seed: int, purpose: Purpose, on_failure: str
) -> xr.Dataset:
    """Moments of a Python callable, point by point, by the arithmetic of a store."""
    rows, notes = len(theta), []

    def regions():
        for row in range(rows):
            one = slice(row, row + 1)
            labels = theta["point"].values[one]
            pieces, statuses, note, _ = call_block(
                problem, labels, theta.values[one], Task(0, 1, 0, count), seed, purpose
            )
            notes.append(note)
            sums = fold([(Task(0, 1, 0, count), pieces)], 1, len(problem.output_names), count)
            yield row, RealRegion(sums, statuses, 0)

    data = moments_from_regions(problem, theta, count, regions(), seed=seed, purpose=purpose.name.lower(),
                                on_failure=on_failure)  # fmt: skip
    return _with_note(data, next(filter(None, notes), ""))


def _with_note(data: xr.Dataset, note: str) -> xr.Dataset:
    return data.assign_attrs(first_failure=note) if note else data


def store_moments(
    store: str | Path, *, on_failure: str = "nan", problem: Problem | CallableProblem | None = None
) -> xr.Dataset:
    """The moments that a finished campaign store holds. Its problem is read from the store where none is given."""
    with closing(Store(store)) as held:
        design, count = stored_design(held), held.meta("replicates")
        edition, outputs, _ = held.editions()[-1]
        blocks = held.blocks(edition)
        require_complete(held, len(design), count, [block.task for block in blocks])
        identity = held.meta("identity")
        data = moments_from_regions(
            problem or stored_problem(held), design, count,
            merged(held, edition, outputs, len(design)), seed=identity["seed"], purpose=identity["purpose"],
            on_failure=on_failure,
        )  # fmt: skip
        return _with_note(data, first_failure(held, blocks))


def moments_from_regions(
    problem: Problem | CallableProblem,
    theta: xr.DataArray,
    count: int,
    regions: Iterable[tuple[int, Region] | tuple[int, RealRegion]],
    *,
    seed: int,
    purpose: str,
    on_failure: str,
) -> xr.Dataset:
    """The dataset of sums that come in chunks of rows; beyond the result, memory is that of a chunk."""
    points, length = len(theta), len(problem.output_times)
    mean, mean_se = np.empty((2, points, length))
    cov, cov_se = np.empty((points, length, length)), np.empty((points, length, length))
    paths, statuses, events = np.empty(points, np.int64), np.empty((points, len(Status)), np.int64), 0
    real = isinstance(problem, CallableProblem)
    scale = np.ones(length) if real else output_scale(problem)
    for low, region in regions:
        rows = slice(low, low + len(region.statuses))
        mean[rows], cov[rows], mean_se[rows], cov_se[rows] = moments_from_sums(region.sums, scale)
        paths[rows], statuses[rows] = region.sums.paths, region.statuses
        events += region.events
    failures = statuses[:, Status.ABSORBED + 1 :].sum(axis=1)
    if on_failure == "raise" and failures.any():
        raise SimulationError(failure_text(theta, statuses))
    if on_failure == "nan":
        for array in (mean, cov, mean_se, cov_se):
            array[failures > 0] = np.nan
    attrs = {
        "seed": seed,
        "purpose": purpose,
        "paths": points * count,
        "events": events,
        "training_paths": points * count,
        "failed_paths": int(failures.sum()),
        "kernel": "callable" if real else "sparse" if lower(problem).sparse else "direct",
        "cov_se_from": f"aligned ranges of {LEAF} replicates" if count >= 2 * LEAF else "Gaussian formula",
    }
    return moments_dataset(
        problem, theta, mean, cov, mean_se, cov_se, source="simulated", replicates=paths, status_count=statuses,
        attrs=attrs,
    )  # fmt: skip


def failure_text(theta: xr.DataArray, statuses: np.ndarray) -> str:
    """One line: how many paths failed, where first, and why."""
    failed = statuses[:, Status.ABSORBED + 1 :]
    point = int(np.flatnonzero(failed.sum(axis=1))[0])
    status = Status(Status.ABSORBED + 1 + int(failed[point].argmax()))
    values = ", ".join(
        f"{name} = {value:g}" for name, value in zip(theta["parameter"].values, theta.values[point], strict=True)
    )
    return (
        f"{failed.sum()} of {statuses.sum()} paths failed, first at point {int(theta['point'][point])} ({values}):"
        f" {status.text}."
    )


def moments_from_sums(
    sums: Sums | RealSums, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean, covariance and their standard errors, NaN where there are too few paths; outputs times `scale`."""
    length = len(scale)
    i, j = np.tril_indices(length)
    n, k, pairs = sums.paths[:, None], sums.leaves[:, None], LEAF * (LEAF - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        if isinstance(sums, RealSums):
            mean, triangle = np.where(n > 0, sums.mean, np.nan), sums.square / (n - 1)
        else:
            mean = _ratio(sums.sum1, n)
            triangle = _ratio(_centred(n, sums.sum2, sums.sum1[:, i], sums.sum1[:, j]), n * (n - 1))
        leaf_variance = _ratio(_centred(k, sums.leaf2, sums.leaf1, sums.leaf1), k * (k - 1)) / pairs**2
    triangle = np.where(n > 1, triangle, np.nan)
    cov = _square(triangle, i, j, length)
    variance = np.maximum(np.diagonal(cov, axis1=1, axis2=2), 0.0)
    gauss = variance[:, i] * variance[:, j] + triangle**2
    with np.errstate(divide="ignore", invalid="ignore"):
        # Var over leaves = κ/8 + gauss/7; where noise makes the result negative, scale the leaves' variance instead
        from_leaves = LEAF * leaf_variance / n - gauss * (LEAF / (LEAF - 1) / n - 1 / (n - 1))
        from_leaves = np.where(from_leaves > 0, from_leaves, leaf_variance * (LEAF - 1) / (n - 1))
        cov_variance = np.where(k >= 2, from_leaves, gauss / (n - 1))
        mean_se = np.sqrt(variance / n)
    cov_se = _square(np.sqrt(np.where(n > 1, cov_variance, np.nan)), i, j, length)
    outer = np.abs(np.multiply.outer(scale, scale))
    return mean * scale, cov * np.multiply.outer(scale, scale), mean_se * np.abs(scale), cov_se * outer


def _centred(n: np.ndarray, products: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """n Σab - Σa Σb in exact arithmetic."""
    bound = largest(n) * largest(products) + largest(a) * largest(b)
    if bound >= SAFE or products.dtype == object or a.dtype == object:
        n, products, a, b = (part.astype(object) for part in (n, products, a, b))
    return n * products - a * b


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """A quotient of exact whole numbers as float64."""
    return numerator.astype(np.float64) / denominator.astype(np.float64)


def _square(triangle: np.ndarray, i: np.ndarray, j: np.ndarray, length: int) -> np.ndarray:
    """Symmetric matrices from their lower triangles."""
    full = np.empty((len(triangle), length, length))
    full[:, i, j] = triangle
    full[:, j, i] = triangle
    return full
