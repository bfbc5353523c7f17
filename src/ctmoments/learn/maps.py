"""`learn_map`: from a budget of paths to a map in one call. `fit_map`: from moments that exist.

In: a problem and a budget, or a moments dataset. Out: a `MomentMap` whose card tells what was done, why, at what cost,
and how paths that were kept aside look after whitening.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict
from typing import Any, Protocol, runtime_checkable

import numpy as np
import xarray as xr

from ctmoments.errors import InputError, SizeError
from ctmoments.learn.indexset import index_set
from ctmoments.learn.outputs import deterministic_outputs
from ctmoments.learn.sources import DataSource, PathSource, Tally
from ctmoments.learn.spectral import Spectral, fit_spectral
from ctmoments.learn.validate import held_out, judge
from ctmoments.model.problem import Problem
from ctmoments.model.space import Integer
from ctmoments.moments.estimate import simulate_moments
from ctmoments.moments.exact import exact_moments
from ctmoments.predict.moment_map import MomentMap
from ctmoments.progress import progress_bar
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
    labels: str = "simulate",
    method: Any = None,
    seed: int = 0,
    device: str = "cpu",
    threads: int | None = None,
    progress: bool | None = None,
) -> MomentMap:
    """Learn mean and covariance over the whole box from `budget` paths, validation included; or from exact labels.

    Without `points` and `replicates` the design is one path at each of as many points as there are paths.

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
    budget = _check_budget(budget, points, replicates)
    method, why = (method, "asked for") if method is not None else choose_method(problem, budget)
    if not isinstance(method, Spectral):
        if not isinstance(method, TrainedMethod):
            raise InputError(f"`method` must be a method such as Spectral(), got {method!r}.")
        return method.learn(
            problem, budget, seed, points=points, replicates=replicates, device=device, threads=threads,
            progress=progress,
        )  # fmt: skip
    paths, status = held_out(problem, budget, seed, threads)
    training = budget - len(paths)
    with progress_bar("learning", training, "paths", progress) as report:
        if points is None and replicates is None:
            source = PathSource(problem=problem, paths=training, seed=seed, threads=threads, report=report)
        else:
            source = _grouped(problem, training, points, replicates, seed, threads)
        map_ = _fit(problem, source, method, {"why": why, "seed": seed, "labels": labels})
    tally = source.tally
    tally.failed += status.failed
    if tally.failed:
        warnings.warn(
            f"{tally.failed} of {budget} paths failed and were left out of the map; see `failed_paths`.", stacklevel=2
        )
    card = dict(map_.card) | {
        "paths": budget, "events": tally.events + status.events, "training_paths": tally.paths,
        "failed_paths": tally.failed, "seconds": round(time.perf_counter() - begin, 3),
        "validation": judge(map_, paths),
    }  # fmt: skip
    return _with_card(map_, card)


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
    return _fit(problem, DataSource(problem=problem, data=data), method, card)


def choose_method(problem: Problem, budget: int) -> tuple[Any, str]:
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


def _grouped(
    problem: Problem, training: int, points: int | None, replicates: int | None, seed: int, threads: int | None
) -> DataSource:
    """Moments of `replicates` paths at each of `points` values."""
    if replicates is None:
        replicates = training // whole_number("points", points, 2, training)
    if points is None:
        points = training // whole_number("replicates", replicates, 1, training // 2)
    theta = sample_design(problem, points, seed=seed)
    data = simulate_moments(problem, theta, replicates, seed, on_failure="drop", threads=threads, progress=False)
    tally = Tally(int(data.attrs["paths"]), int(data.attrs["events"]), int(data.attrs["failed_paths"]))
    return DataSource(problem=problem, data=data, tally=tally)


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
    map_ = _fit(problem, DataSource(problem=problem, data=data), method, card)
    return _with_card(map_, dict(map_.card) | {"seconds": round(time.perf_counter() - begin, 3)})


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


def _fit(problem: Problem, source: PathSource | DataSource, method: Spectral, card: dict[str, Any]) -> MomentMap:
    fixed = deterministic_outputs(problem)
    parts = fit_spectral(source, np.flatnonzero(~fixed), method)
    return MomentMap(
        problem=problem, mean_part=parts.mean, cov_part=parts.cov, deterministic=fixed,
        card={"method": "Spectral", "settings": asdict(method)} | card | parts.report | {"versions": versions()},
    )  # fmt: skip


def versions() -> dict[str, str]:
    """What made the map."""
    from ctmoments import __version__

    return {"ctmoments": __version__, "numpy": np.__version__}


def _with_card(map_: MomentMap, card: dict[str, Any]) -> MomentMap:
    return MomentMap(
        problem=map_.problem, mean_part=map_.mean_part, cov_part=map_.cov_part, deterministic=map_.deterministic,
        card=card,
    )  # fmt: skip
