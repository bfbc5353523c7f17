"""`learn_map`: from a budget of paths to a map in one call. `fit_map`: from moments that exist.

In: a problem and a budget, or a moments dataset. Out: a `MomentMap` whose card tells what was done, why, at what cost,
and how paths that were kept aside look after whitening.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import xarray as xr

from ctmoments.errors import InputError, SizeError
from ctmoments.learn.budget import learn_spectral, read_target
from ctmoments.learn.indexset import index_set
from ctmoments.learn.outputs import deterministic_outputs
from ctmoments.learn.sources import data_rows
from ctmoments.learn.spectral import Spectral, fit_spectral, spectral_map
from ctmoments.learn.validate import held_out, held_out_paths, judge
from ctmoments.model.problem import Problem
from ctmoments.model.space import Integer
from ctmoments.moments.estimate import simulate_moments
from ctmoments.moments.exact import exact_moments
from ctmoments.predict.moment_map import MomentMap
from ctmoments.simulate.design import sample_design
from ctmoments.simulate.paths import whole_number
from ctmoments.simulate.streams import Purpose, check_seed, generator

LABELS = ("simulate", "exact")
LEAST = 100  # paths: below, neither a mean nor a covariance over a box can be told from noise
ALONG = {1: 60, 2: 16}  # exact labels along each of one or two parameters: 256 leave the SIR 0.0008 and 0.03 % of error
LABEL_TOLERANCE = 1e-6  # of exact labels: far below what interpolation leaves, in half the time of 1e-8
SCATTERED = 2.5  # exact labels for each term in more dimensions


@runtime_checkable
class TrainedMethod(Protocol):
    """Frozen settings of a method that is trained: it knows its own designs and how it validates."""

    def learn(
        self, problem: Problem, budget: int, seed: int, *, points: int | None, replicates: int | None, device: str,
        threads: int | None, progress: bool | None,
    ) -> MomentMap:  # fmt: skip
        """A map from `budget` paths, simulated here."""
        ...

    def fit(
        self, problem: Problem, data: xr.Dataset, seed: int, *, validation: xr.Dataset | None, device: str,
        threads: int | None, progress: bool | None,
    ) -> MomentMap:  # fmt: skip
        """A map from moments that exist."""
        ...


def learn_map(
    problem: Problem,
    budget: int | None = None,
    *,
    points: int | None = None,
    replicates: int | None = None,
    target_error: Any = None,
    max_budget: int | None = None,
    labels: str = "simulate",
    method: Any = None,
    seed: int = 0,
    device: str = "cpu",
    store: str | Path | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> MomentMap:
    """Learn mean and covariance over the whole box from `budget` paths, validation included; or from exact labels.

    Without `points` and `replicates` the method lays the design out. With `target_error` (a share such as 0.01, or two
    for mean and covariance) the budget grows until the map tells errors below it, up to `max_budget` paths (10^7). With
    `store` every path counts once: a run that was killed goes on from that file, and ends with the same map.

    >>> import ctmoments as ctm
    >>> m = learn_map(ctm.load_problem("sir"), budget=2000, seed=1)
    >>> m.mean([0.5, 0.002]).shape
    (1, 13)
    """
    check_seed(seed)
    if labels not in LABELS:
        raise InputError(f"`labels` must be one of {', '.join(LABELS)}, got {labels!r}.")
    begin = time.perf_counter()
    if labels == "exact":
        return _learn_exact(problem, points, method, seed, threads, progress, begin)
    target = read_target(target_error, max_budget)
    if target is None or budget is not None:
        budget = _check_budget(budget, points, replicates)
    method, why = (method, "asked for") if method is not None else choose_method(problem, budget)
    if not isinstance(method, Spectral | TrainedMethod):
        raise InputError(f"`method` must be a method such as Spectral(), got {method!r}.")
    grouped = points is not None or replicates is not None
    if grouped or not isinstance(method, Spectral):
        for name, value in (("target_error", target_error), ("store", store)):
            if value is not None:
                raise InputError(f"`{name}` needs Spectral(), without `points` and `replicates`.")
    assert budget is not None or target is not None
    if not isinstance(method, Spectral):
        assert budget is not None
        return method.learn(
            problem, budget, seed, points=points, replicates=replicates, device=device, threads=threads,
            progress=progress,
        )  # fmt: skip
    card = {"why": why, "seed": seed, "labels": labels}
    if grouped:
        assert budget is not None
        map_ = _learn_grouped(problem, budget, points, replicates, method, seed, card, threads)
    else:
        map_ = learn_spectral(
            problem, budget, method, seed, card, target=target, store=None if store is None else Path(store),
            threads=threads, progress=progress,
        )  # fmt: skip
    return map_.with_card({"seconds": round(time.perf_counter() - begin, 3)})


def fit_map(
    data: xr.Dataset,
    *,
    method: Any = None,
    validation: xr.Dataset | None = None,
    seed: int = 0,
    device: str = "cpu",
    threads: int | None = None,
    progress: bool | None = None,
) -> MomentMap:
    """A map from a moments dataset: simulated, exact or approximate. The problem stands in its attrs.

    `validation` is for methods that are trained; `Spectral` needs none and refuses it.
    """
    from ctmoments.model.toml import problem_from_toml

    check_seed(seed)
    if not isinstance(data, xr.Dataset) or "problem" not in data.attrs:
        raise InputError("`data` must be a moments dataset with its problem in attrs, got something else.")
    problem = problem_from_toml(data.attrs["problem"], "`data`")
    method = Spectral() if method is None else method
    if not isinstance(method, Spectral):
        if not isinstance(method, TrainedMethod):
            raise InputError(f"`method` must be a method such as Spectral(), got {method!r}.")
        return method.fit(
            problem, data, seed, validation=validation, device=device, threads=threads, progress=progress
        )  # fmt: skip
    if validation is not None:
        raise InputError("`validation` must be None for Spectral: it chooses by the evidence and needs none.")
    spent = {name: int(data.attrs[name]) for name in ("paths", "events", "training_paths") if name in data.attrs}
    card = {"seed": seed, "labels": str(data.attrs.get("source", "unknown"))} | spent
    return _fit(problem, data, method, card)


def choose_method(problem: Problem, budget: int | None) -> tuple[Any, str]:
    """The method for this problem and budget, and the reason in words."""
    parameters = len(problem.space.parameters)
    return Spectral(), f"closed form: seconds for {budget} paths and {parameters} varying parameters"


def _check_budget(budget: int | None, points: int | None, replicates: int | None) -> int:
    if points is not None and replicates is not None:
        product = whole_number("points", points, 2) * whole_number("replicates", replicates, 1)
        if budget is not None and budget < product:
            raise InputError(f"`budget` must cover points * replicates = {product}, got {budget}.")
        return whole_number("budget", product if budget is None else budget, LEAST)
    if budget is None:
        raise InputError("`budget` must be given, or `points` and `replicates`, or labels='exact'.")
    return whole_number("budget", budget, LEAST)


def _learn_grouped(
    problem, budget: int, points: int | None, replicates: int | None, method: Spectral, seed: int, card: dict, threads
) -> MomentMap:
    """A map from `replicates` paths at each of `points` values, and a few that are kept aside."""
    aside, spent = held_out(problem, held_out_paths(budget), seed, threads)
    training = budget - len(aside)
    if replicates is None:
        replicates = training // whole_number("points", points, 2, training)
    if points is None:
        points = training // whole_number("replicates", replicates, 1, training // 2)
    theta = sample_design(problem, points, seed=seed)
    data = simulate_moments(problem, theta, replicates, seed, on_failure="drop", threads=threads, progress=False)
    failed = int(data.attrs["failed_paths"]) + spent.failed
    if failed:
        warnings.warn(f"{failed} of {budget} paths failed and were left out; see `failed_paths`.", stacklevel=3)
    map_ = _fit(problem, data, method, card)
    paths = int(data.attrs["paths"])
    return map_.with_card(
        {"paths": paths + len(aside), "events": int(data.attrs["events"]) + spent.events, "training_paths": paths,
         "failed_paths": failed, "validation": judge(map_, aside)}
    )  # fmt: skip


def _learn_exact(problem, points, method, seed, threads, progress, begin: float) -> MomentMap:
    """Exact labels on nodes that suit Chebyshev polynomials."""
    method = Spectral() if method is None else method
    if not isinstance(method, Spectral):
        raise InputError(f"`method` must be Spectral for labels='exact', got {type(method).__name__}.")
    theta = exact_nodes(problem, method, points)
    try:
        data = exact_moments(problem, theta, tolerance=LABEL_TOLERANCE, threads=threads, progress=progress)
    except SizeError as error:
        raise SizeError(f"{error} Exact labels do not fit this problem; learn it with labels='simulate'.") from None
    solved = time.perf_counter() - begin
    card = {"why": "exact labels are smooth", "seed": seed, "labels": "exact", "label_seconds": round(solved, 3)}
    card |= {"paths": 0, "events": 0, "training_paths": 0}
    return _fit(problem, data, method, card).with_card({"seconds": round(time.perf_counter() - begin, 3)})


def exact_nodes(problem: Problem, method: Spectral, points: int | None = None) -> np.ndarray:
    """Parameter values for exact labels: Chebyshev nodes in one and two dimensions, points of their density in more."""
    space, parameters = problem.space, len(problem.space.parameters)
    if points is None and parameters in ALONG:
        along = ALONG[parameters]
        line = (1.0 - np.cos(np.pi * (np.arange(along) + 0.5) / along)) / 2.0
        unit = np.stack(np.meshgrid(*[line] * parameters, indexing="ij"), axis=-1).reshape(-1, parameters)
    else:
        count = int(SCATTERED * len(index_set(parameters, method.terms_for(parameters)))) if points is None else points
        draws = generator(0, Purpose.DESIGN, 1).random((whole_number("points", count, 4), parameters))
        unit = (1.0 - np.cos(np.pi * draws)) / 2.0
    theta = space.from_unit(np.clip(unit, 0.0, 1.0))
    whole = any(isinstance(dimension, Integer) for dimension in space.dimensions.values())
    return np.unique(theta, axis=0) if whole else theta


def _fit(problem: Problem, data: xr.Dataset, method: Spectral, card: dict[str, Any]) -> MomentMap:
    active = np.flatnonzero(~deterministic_outputs(problem))
    return spectral_map(problem, fit_spectral(data_rows(problem, data), active, method), method, card)
