"""`Spectral`: the maps in closed form, streamed.

In: batches of targets (`sources.py`). Out: a `MomentMap`. Everything is linear least squares on Chebyshev polynomials
(`regress.py`) in a frame that a pilot fixed (`frame.py`), so paths are folded into sums and forgotten: time grows with
the budget, memory does not.

A row's residual is taken from a mean fitted on earlier rows only, so products of residuals are unbiased up to the
squared error of that mean (terms/rows of a variance). The mean is fitted anew whenever the rows have doubled; at the
end the pilot's own residuals are taken from the mean of all the rest.

Regressing B⁻¹ e eᵀ B⁻ᵀ instead of e eᵀ costs nothing in the Frobenius norm (SIR, 90,000 paths: 5.1 % against 5.2) and
makes the small eigenvalues right: the Kullback-Leibler distance of the Gaussians is 0.11 against 10, and 1 % of the
box is floored against 57 %.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ctmoments.errors import InputError
from ctmoments.learn.frame import Frame, chunks, pilot_frame, places, tabulate
from ctmoments.learn.indexset import index_set
from ctmoments.learn.regress import NormalEquations, Solution, solve
from ctmoments.learn.sources import Batch, DataSource, PathSource
from ctmoments.predict.chebyshev import Chebyshev
from ctmoments.predict.combine import Scaled
from ctmoments.predict.covariance import FLOOR, FactorCovariance, MatrixCovariance
from ctmoments.predict.evaluator import Covariance, Evaluator

FLOOR_IN_FRAME = 0.01  # least eigenvalue of the covariance in the frame, where their mean is 1
SE_TERMS = 45  # of the logarithm of standard errors
CHECK = 4096  # points where flooring is looked for


@dataclass(frozen=True, kw_only=True)
class Spectral:
    """Settings. `terms`: Chebyshev products at most; `size_terms`, `base_terms`: those of sizes and of the frame."""

    terms: int = 240
    size_terms: int = 30
    base_terms: int = 15

    def __post_init__(self):
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 5000:
                raise InputError(f"`{name}` must be a whole number from 1 to 5000, got {value!r}.")


@dataclass(frozen=True, eq=False, kw_only=True)
class SpectralParts:
    """The two parts of a map, and what the card says about them."""

    mean: Evaluator
    cov: Covariance
    report: dict[str, Any]


def fit_spectral(source: PathSource | DataSource, active: np.ndarray, settings: Spectral) -> SpectralParts:
    """The mean of all outputs and the covariance of the `active` ones."""
    batches = source.batches()
    pilot = next(batches)
    parameters, outputs = pilot.unit.shape[1], pilot.mean.shape[1]
    exact = bool((pilot.replicates == 0).all())
    index = index_set(parameters, min(settings.terms, max(source.rows // (1 if exact else 4), 1)))
    frame = pilot_frame(pilot, active, index, settings.size_terms, settings.base_terms)

    mean_sums = NormalEquations.empty(index, outputs)
    cov_sums = NormalEquations.empty(index, len(active) * (len(active) + 1) // 2)
    early = NormalEquations.empty(index, outputs)
    early.add(pilot.unit, *frame.mean_rows(pilot))
    current, fitted_on = solve(early), len(pilot.unit)
    for batch in batches:
        _fold(batch, frame, current, mean_sums, cov_sums)
        if mean_sums.rows >= 2 * fitted_on:
            current, fitted_on = solve(mean_sums), mean_sums.rows
    if mean_sums.rows:
        current = solve(mean_sums)
    _fold(pilot, frame, current, mean_sums, cov_sums)
    return _assemble(frame, solve(mean_sums), solve(cov_sums) if len(active) else None, exact)


def _fold(batch: Batch, frame: Frame, mean: Solution, mean_sums: NormalEquations, cov_sums: NormalEquations) -> None:
    """Fold a batch into the sums; its residuals are taken from `mean`."""
    for part in chunks(batch, len(frame.active)):
        if len(frame.active):
            cov_sums.add(part.unit, *frame.cov_rows(part, frame.mean_of(mean, part.unit)))
        mean_sums.add(part.unit, *frame.mean_rows(part))


def _assemble(frame: Frame, mean: Solution, cov: Solution | None, exact: bool) -> SpectralParts:
    """Evaluators with their standard errors."""
    parameters = mean.index.shape[1]
    unit = places(parameters, SE_TERMS)
    if cov is None:
        mean_part = Scaled(inner=_expansion(mean, mean.noise * np.ones((len(unit), 1)), unit), size=frame.size)
        none = Chebyshev(index=mean.index[:1], coefficients=np.ones((1, 1)))
        return SpectralParts(mean=mean_part, cov=FactorCovariance(inner=none), report={"terms": len(mean.index)})
    # weights are noise^-TEMPER, so that a target of local variance v has variance v * weight in the sums
    local = frame.cov_noise.values(unit)
    cov_noise = cov.noise * (local / local.mean()) ** 0.5
    cov_part = MatrixCovariance(
        inner=_expansion(cov, cov_noise, unit), size=frame.spread, base=frame.base,
        floor=FLOOR if exact else FLOOR_IN_FRAME,
    )  # fmt: skip
    local = frame.mean_noise.values(unit)
    mean_noise = mean.noise * (local / local.mean()) ** 0.5
    mean_part = Scaled(inner=_expansion(mean, mean_noise, unit), size=frame.size)
    share = float(cov_part.floored(places(parameters, SE_TERMS)[:CHECK]).mean())
    return SpectralParts(mean=mean_part, cov=cov_part, report={"terms": len(mean.index), "floored_share": share})


def _expansion(solution: Solution, noise: np.ndarray, unit: np.ndarray) -> Chebyshev:
    """A solution as an evaluator, its standard errors tabulated."""
    variance = np.maximum(noise * solution.spread(unit), np.finfo(float).tiny)
    log_se = tabulate(0.5 * np.log(variance), unit, index_set(unit.shape[1], SE_TERMS))
    return Chebyshev(index=solution.index, coefficients=solution.coefficients, log_se=log_se)
