"""The paper's designs: its power laws, and validation on fresh values.

In: a budget or a dataset. Out: points and replicates; moments at values that were not trained on.
"""

from __future__ import annotations

import xarray as xr

from ctmoments.errors import InputError
from ctmoments.model.problem import Problem
from ctmoments.moments.estimate import simulate_moments
from ctmoments.simulate.design import sample_design
from ctmoments.simulate.streams import Purpose

CASE_MEAN, CASE_COVARIANCE = "mean", "covariance"
TRAINING = {
    CASE_MEAN: (Purpose.DESIGN, Purpose.PATHS),
    CASE_COVARIANCE: (Purpose.COVARIANCE_DESIGN, Purpose.COVARIANCE_PATHS),
}
VALIDATION = {
    CASE_MEAN: (Purpose.VALIDATION_DESIGN, Purpose.VALIDATION_PATHS),
    CASE_COVARIANCE: (Purpose.COVARIANCE_VALIDATION_DESIGN, Purpose.COVARIANCE_VALIDATION_PATHS),
}
MEAN_LAW, COVARIANCE_LAW = (0.21, 0.42), (1.15, 0.48)  # the paper's M = c B^k
SHARE = 5  # one validation value for five training values


def fresh_validation(
    problem: Problem,
    data: xr.Dataset,
    seed: int,
    threads: int | None = None,
    progress: bool | None = None,
    case: str = CASE_MEAN,
) -> xr.Dataset:
    """N/5 fresh values, with as many replicates as `data` has at each."""
    points = max(1, data.sizes["point"] // SHARE)
    design, paths = VALIDATION[case]
    theta = sample_design(problem, points, seed=seed, purpose=design)
    replicates = int(data["replicates"].max())
    return simulate_moments(
        problem, theta, replicates, seed=seed, purpose=paths, threads=threads, progress=progress, on_failure="nan"
    )


def split_budget(budget: int, law: tuple[float, float], points: int | None, replicates: int | None) -> tuple[int, int]:
    """Points and replicates of one design whose training and validation paths together fit into `budget`.

    >>> split_budget(108_000, MEAN_LAW, None, None)
    (3600, 25)
    """
    training = budget * SHARE / (SHARE + 1)
    if replicates is None:
        replicates = max(2, round(law[0] * training ** law[1] if points is None else training / points))
    if points is None:
        points = int(training // replicates)
    if points < SHARE:
        raise InputError(f"`budget` must pay for {SHARE} values with {replicates} paths, got {budget} for this design.")
    return points, replicates
