"""Tables instead of ensembles: one Chebyshev expansion that says the same as many networks, and faster.

In: the mean and covariance parts of an ensemble. Out: parts of the same values (one matrix product instead of dozens),
with standard errors that are smooth in the parameters, and the error of the table in units of the standard error.
An ensemble of 8 gives standard errors that scatter by a quarter; smoothing them over the box takes most of that away.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ctmoments.learn.frame import places, tabulate
from ctmoments.learn.indexset import index_set
from ctmoments.predict.chebyshev import Chebyshev
from ctmoments.predict.combine import Scaled
from ctmoments.predict.evaluator import Evaluator
from ctmoments.predict.network import Network, SizedFactor
from ctmoments.simulate.streams import Purpose, generator

TERMS = {1: 60, 2: 300, 3: 600}  # of the table, by the number of parameters; more parameters keep their ensemble
ERROR_TERMS = 28  # of the logarithm of a standard error
WORST = 0.3  # of the standard error: a table that errs more is not used


def tabulated(mean: Scaled, cov: SizedFactor, parameters: int) -> tuple[Evaluator, SizedFactor, dict[str, Any]]:
    """The parts as tables where that loses little, else as they are; and what to say about it."""
    if parameters not in TERMS:
        return mean, cov, {"evaluated": "ensemble"}
    index = index_set(parameters, TERMS[parameters])
    unit = places(parameters, len(index))
    new_mean, new_cov = tabulated_mean(mean, unit, index), tabulated_cov(cov, unit, index)
    fresh = generator(0, Purpose.REPLAY, 2).random((400, parameters))
    error = max(discrepancy(mean, new_mean, fresh), discrepancy(cov, new_cov, fresh))
    if error > WORST:
        return mean, cov, {"evaluated": "ensemble", "table_error": error}
    return new_mean, new_cov, {"evaluated": "table", "table_error": error}


def discrepancy(one: Evaluator, other: Evaluator, unit: np.ndarray) -> float:
    """The 95th percentile over points of the distance of values, in units of the first one's standard errors."""
    far = (one.values(unit) - other.values(unit)).reshape(len(unit), -1)
    se = one.se(unit).reshape(len(unit), -1)
    return float(np.quantile(np.linalg.norm(far, axis=1) / np.linalg.norm(se, axis=1), 0.95))


def log_errors(se: np.ndarray, unit: np.ndarray, members: int) -> Chebyshev:
    """A smooth table of the logarithm of standard errors that `members` estimate."""
    from scipy.special import digamma

    freedom = members - 1
    low = (digamma(freedom / 2) - np.log(freedom / 2)) / 2  # E log of √(χ²/freedom)
    logs = np.log(np.maximum(se, 1e-12 * se.max(axis=0) + 1e-300)) - low
    return tabulate(logs, unit, index_set(unit.shape[1], ERROR_TERMS))


def tabulated_mean(mean: Scaled, unit: np.ndarray, index: np.ndarray) -> Scaled:
    """(mean part) / size as a table."""
    assert isinstance(mean.inner, Network)
    size = mean.size.values(unit)
    table = tabulate(mean.values(unit) / size, unit, index)
    log_se = log_errors(mean.inner.se(unit), unit, len(mean.inner.weights[0]))
    return Scaled(inner=Chebyshev(index=index, coefficients=table.coefficients, log_se=log_se), size=mean.size)


def tabulated_cov(cov: SizedFactor, unit: np.ndarray, index: np.ndarray) -> SizedFactor:
    """The whole factor in the size of each output as a table."""
    assert isinstance(cov.inner, Network)
    base = 0.0 if cov.base is None else cov.base.values(unit)
    table = tabulate(cov.inner.values(unit) + base, unit, index)
    size = cov.size.values(unit)
    i, j = np.tril_indices(cov.outputs)
    se = cov.se(unit)[:, i, j] / (size[:, i] * size[:, j])
    return SizedFactor(inner=table, size=cov.size, log_se=log_errors(se, unit, len(cov.inner.weights[0])))
