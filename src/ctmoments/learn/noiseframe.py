"""The frame of `MomentNet`'s mean: what is known of it and of its noise before training.

In: a problem, or paths. Out: a frozen `NoiseFrame`: a first mean, the size of each output's mean and of its noise,
smooth tables over the box. Networks learn what is missing, in its units. Where the linear noise approximation applies
it gives the tables (841 values of the SIR's: 0.06 s); elsewhere paths do, one size for each output. A frame may be
wrong: it changes the variance of what is learned, never what is aimed at.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from ctmoments.errors import CtmomentsError
from ctmoments.learn.frame import places, tabulate
from ctmoments.learn.indexset import index_set
from ctmoments.model.problem import Problem
from ctmoments.moments.noise import approximate_moments
from ctmoments.predict.chebyshev import Chebyshev
from ctmoments.predict.combine import Exponential
from ctmoments.predict.evaluator import Evaluator

TERMS = 231  # of a table: total degree 20 in two dimensions
LOWEST_SIZE = 1e-3  # of an output's largest size: below it is told as this


@dataclass(frozen=True, eq=False, kw_only=True)
class NoiseFrame:
    """First guesses over the box. `source` is "lna" or "paths"."""

    mean: Evaluator  # (n, output)
    size: Evaluator  # of the mean: (n, output), positive
    deviation: Evaluator  # of the outputs that vary: (n, active), positive
    active: np.ndarray
    source: str

    def noise(self, unit: np.ndarray) -> np.ndarray:
        """The root of the summed variances (n, 1)."""
        return np.linalg.norm(self.deviation.values(unit), axis=1, keepdims=True)

    def relative_noise(self, unit: np.ndarray) -> np.ndarray:
        """Deviation over mean, in norms (n,)."""
        return self.noise(unit)[:, 0] / np.linalg.norm(self.size.values(unit), axis=1)


def noise_frame(problem: Problem, active: np.ndarray, terms: int = TERMS) -> NoiseFrame | None:
    """The frame of the linear noise approximation; None where that does not apply or cannot be."""
    parameters = len(problem.space.parameters)
    unit = places(parameters, terms)
    unit = problem.space.to_unit(problem.space.from_unit(unit))  # whole numbers stay whole
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unphysical values are left out, and most must be physical
            data = approximate_moments(problem, problem.space.from_unit(unit))
    except (CtmomentsError, AttributeError):
        return None
    good = ~data["unphysical"].values
    if good.mean() < 0.9:
        return None
    return frame_of(unit[good], data["mean"].values[good], data["cov"].values[good], active, terms)


def frame_of(unit: np.ndarray, mean: np.ndarray, cov: np.ndarray, active: np.ndarray, terms: int) -> NoiseFrame:
    """Tables of approximate moments at points."""
    index = index_set(unit.shape[1], min(terms, len(unit) // 2))
    cov = cov[:, active[:, None], active]
    deviation = np.sqrt(np.maximum(np.diagonal(cov, axis1=1, axis2=2), 0))
    size = np.sqrt(mean**2 + 1e-300)
    size[:, active] = np.maximum(size[:, active], 0.1 * deviation)
    size, deviation = (np.maximum(x, LOWEST_SIZE * x.max(axis=0)) for x in (size, deviation))
    size[:, size.max(axis=0) < 1e-100] = 1.0
    deviation[:, deviation.max(axis=0) < 1e-100] = 1.0
    return NoiseFrame(
        mean=tabulate(mean, unit, index),
        size=Exponential(inner=tabulate(np.log(size), unit, index)),
        deviation=Exponential(inner=tabulate(np.log(deviation), unit, index)),
        active=active,
        source="lna",
    )


def frame_of_paths(unit: np.ndarray, values: np.ndarray, active: np.ndarray, degree_terms: int = 15) -> NoiseFrame:
    """One number for each output, from paths: residuals about a low polynomial of the parameters."""
    parameters = unit.shape[1]
    constant = np.zeros((1, parameters), int)
    index = index_set(parameters, min(degree_terms, max(1, len(unit) // 10)))
    fitted = tabulate(values, unit, index)
    residual = (values - fitted.values(unit))[:, active]
    size = np.sqrt((values**2).mean(axis=0))
    deviation = np.sqrt((residual**2).mean(axis=0))
    size[size == 0], deviation[deviation == 0] = 1.0, 1.0

    def table(row: np.ndarray) -> Chebyshev:
        return Chebyshev(index=constant, coefficients=row[None])

    return NoiseFrame(
        mean=fitted,
        size=Exponential(inner=table(np.log(size))),
        deviation=Exponential(inner=table(np.log(deviation))),
        active=active,
        source="paths",
    )
