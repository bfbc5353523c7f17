"""From a budget, or from an error that is asked for, to a `Spectral` map.

In: a problem, a budget or a target, a seed. Out: a map whose card tells what was simulated, and how often it grew.
Growing means more paths at the same points: nothing that was simulated is thrown away. With a store a run that was
killed goes on where it was, and ends with the same bits.
"""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ctmoments.errors import InputError
from ctmoments.learn.outputs import deterministic_outputs
from ctmoments.learn.scatter import POINTS_FOR_A_TERM
from ctmoments.learn.sources import Batch, PathSource, Spent, path_source
from ctmoments.learn.spectral import Spectral, density_of, fit_spectral, spectral_map
from ctmoments.learn.validate import MOST, held_out, held_out_paths, judge
from ctmoments.model.problem import Problem
from ctmoments.predict.account import expected_errors
from ctmoments.predict.moment_map import MomentMap
from ctmoments.simulate.paths import whole_number

MOST_PATHS = 10_000_000  # where no other `max_budget` is given
FIRST_REPLICATES = 4  # at each point, where an error is asked for and no budget to begin with
CAUTION = 0.7  # of the growth that the errors seem to need in one step: their account is noisy


@dataclass(frozen=True)
class Target:
    """Relative errors, averaged over the box, that a map is to reach by its own account; and the paths it may take."""

    mean: float
    cov: float
    max_budget: int

    def missing(self, errors: tuple[float, float]) -> float:
        """How many times more paths the errors call for; at most 1 where they are small enough."""
        return max((errors[0] / self.mean) ** 2, (errors[1] / self.cov) ** 2)


def read_target(target_error: Any, max_budget: int | None) -> Target | None:
    """One number is for the mean; two are for mean and covariance."""
    if target_error is None:
        if max_budget is not None:
            raise InputError("`max_budget` must come with `target_error`; without one, `budget` says it all.")
        return None
    try:
        parts = [float(part) for part in np.atleast_1d(np.asarray(target_error, float))]
    except (TypeError, ValueError):
        parts = []
    if len(parts) not in (1, 2) or not all(0 < part < 1 for part in parts):
        raise InputError(
            f"`target_error` must be a share such as 0.01, or two for mean and covariance, got {target_error!r}."
        )
    most = MOST_PATHS if max_budget is None else whole_number("max_budget", max_budget, 1)
    return Target(parts[0], parts[1] if len(parts) == 2 else np.inf, most)


def learn_spectral(
    problem: Problem, budget: int | None, method: Spectral, seed: int, card: dict[str, Any], *,
    target: Target | None = None, store: Path | None = None, threads: int | None = None, progress: bool | None = None,
) -> MomentMap:  # fmt: skip
    """A map from `budget` paths, those kept aside included; from as many as the target needs, where there is one."""
    terms = method.terms_for(len(problem.space.parameters))
    if budget is None:
        budget = FIRST_REPLICATES * POINTS_FOR_A_TERM * terms
    if target is not None:
        budget = min(budget, target.max_budget)
    with tempfile.TemporaryDirectory() as folder:
        if target is not None and store is None:
            store = Path(folder) / "campaign.sqlite"  # what is simulated once need not be simulated twice
        source = path_source(
            problem, budget - held_out_paths(budget), terms, seed, store=store, may_hold_more=target is not None,
            threads=threads, progress=progress,
        )  # fmt: skip
        map_, spent, rounds = _grown(source, method, card, target)
    left = budget - spent.paths if target is None else held_out_paths(spent.paths)
    aside, cost = held_out(problem, min(left, 2 * MOST), seed, threads)
    spent = spent.plus(cost)
    if spent.failed:
        warnings.warn(
            f"{spent.failed} of {spent.paths} paths failed and were left out of the map; see `failed_paths`.",
            stacklevel=3,
        )
    told: dict[str, Any] = {"rounds": rounds} if target is not None else {}
    return map_.with_card(
        {"paths": spent.paths, "events": spent.events, "training_paths": spent.paths - cost.paths,
         "failed_paths": spent.failed, "validation": judge(map_, aside)} | told
    )  # fmt: skip


def _grown(
    source: PathSource, method: Spectral, card: dict[str, Any], target: Target | None
) -> tuple[MomentMap, Spent, list[dict[str, Any]]]:
    """Fit, and take more paths at the same points until the target is reached or paths run out."""
    problem = source.problem
    active = np.flatnonzero(~deterministic_outputs(problem))

    def fit(rows: Batch) -> MomentMap:
        return spectral_map(problem, fit_spectral(rows, active, method), method, card)

    theta, rows, spent = source.rows(lambda pilot: density_of(pilot, active, method))
    rounds: list[dict[str, Any]] = []
    while True:
        map_ = fit(rows)
        if target is None:
            return map_, spent, rounds
        errors = expected_errors(map_)
        rounds.append({"paths": spent.paths, "expected_rrmse": errors[0], "expected_rfe": errors[1]})
        missing = target.missing(errors)
        if not missing > 1:
            return map_, spent, rounds
        doublings = max(1, int(np.log2(CAUTION * missing)))
        replicates = spent.paths // len(theta)
        room = (target.max_budget - held_out_paths(target.max_budget)) / spent.paths
        if room < 2:
            warnings.warn(
                f"`target_error` was not reached with {spent.paths:,} paths, of at most {target.max_budget:,}: the map "
                f"tells errors of {errors[0]:.2g} and {errors[1]:.2g}. Give a larger `max_budget`.",
                stacklevel=4,
            )
            return map_, spent, rounds
        replicates *= 2 ** min(doublings, int(np.log2(room)))
        rows, spent = source.simulate(theta, replicates)
