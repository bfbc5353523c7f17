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
from ctmoments.learn.frame import TEMPER, Frame, chunks, pilot_frame, places, tabulate
from ctmoments.learn.indexset import index_set
from ctmoments.learn.regress import NormalEquations, Solution, solve
from ctmoments.learn.sources import Batch, DataSource, PathSource
from ctmoments.predict.chebyshev import Chebyshev
from ctmoments.predict.combine import Scaled
from ctmoments.predict.covariance import FLOOR, FactorCovariance, MatrixCovariance
from ctmoments.predict.evaluator import Covariance, Evaluator

FLOOR_IN_FRAME = 0.01  # least eigenvalue of the covariance in the frame, where their mean is 1
SE_TERMS = 45  # of the logarithm of standard errors
SOME = 400  # points where the halves are compared as covariances
NORMAL_90 = 1.6448536269514722


@dataclass(frozen=True, kw_only=True)
class Spectral:
    """Settings. `terms`: Chebyshev products at most; `size_terms`, `base_terms`: those of sizes and of the frame.

    `terms=None` takes 240 for one and two varying parameters (degree 20: 0.0002 % of the SIR's mean is left out), 500
    for three, 1,000 for more (sir-two-patch, 100,000 paths: 3.6 % of the mean against 6.0 with 211).
    """

    terms: int | None = None
    size_terms: int = 30
    base_terms: int = 15

    def __post_init__(self):
        for name, value in asdict(self).items():
            if value is None and name == "terms":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 5000:
                raise InputError(f"`{name}` must be a whole number from 1 to 5000, got {value!r}.")

    def terms_for(self, parameters: int) -> int:
        """Chebyshev products at most for so many varying parameters."""
        return self.terms or {1: 240, 2: 240, 3: 500}.get(parameters, 1000)


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
    index = index_set(parameters, min(settings.terms_for(parameters), max(source.rows // (1 if exact else 4), 1)))
    frame = pilot_frame(pilot, active, index, settings.size_terms, settings.base_terms)

    sums = Halves.empty(index, outputs, len(active))
    early = NormalEquations.empty(index, outputs)
    early.add(pilot.unit, *frame.mean_rows(pilot))
    current, fitted_on = solve(early), len(pilot.unit)
    for batch in batches:
        sums.fold(batch, frame, current)
        if sums.rows >= 2 * fitted_on:
            current, fitted_on = solve(sums.mean[0].plus(sums.mean[1])), sums.rows
    if sums.rows:
        current = solve(sums.mean[0].plus(sums.mean[1]))
    sums.fold(pilot, frame, current)
    return _assemble(frame, sums, exact)


@dataclass(eq=False)
class Halves:
    """Sums over two halves of the rows, chunk by chunk in turn: together the fit, apart how sure it is."""

    mean: tuple[NormalEquations, NormalEquations]
    cov: tuple[NormalEquations, NormalEquations]
    turn: int = 0

    @classmethod
    def empty(cls, index: np.ndarray, outputs: int, active: int) -> Halves:
        """Nothing folded in yet."""
        triangle = active * (active + 1) // 2
        first, second = (
            (NormalEquations.empty(index, outputs), NormalEquations.empty(index, triangle)) for _ in range(2)
        )
        return cls((first[0], second[0]), (first[1], second[1]))

    @property
    def rows(self) -> int:
        """Rows folded in so far."""
        return self.mean[0].rows + self.mean[1].rows

    def fold(self, batch: Batch, frame: Frame, mean: Solution) -> None:
        """Fold a batch in; its residuals are taken from `mean`."""
        for part in chunks(batch, len(frame.active)):
            if len(frame.active):
                self.cov[self.turn].add(part.unit, *frame.cov_rows(part, frame.mean_of(mean, part.unit)))
            self.mean[self.turn].add(part.unit, *frame.mean_rows(part))
            self.turn = 1 - self.turn


def _assemble(frame: Frame, sums: Halves, exact: bool) -> SpectralParts:
    """Evaluators with their standard errors."""
    mean = solve(sums.mean[0].plus(sums.mean[1]))
    parameters = mean.index.shape[1]
    unit = places(parameters, SE_TERMS)
    report: dict[str, Any] = {"terms": len(mean.index)}
    noise = mean.noise * _local(frame.mean_noise, unit)
    factor = 1.0 if exact else _calibrate(*mean.disagreement(unit, sums.mean), noise)
    mean_part = Scaled(inner=_expansion(mean, factor**2 * noise, unit), size=frame.size)
    if not len(frame.active):
        none = Chebyshev(index=mean.index[:1], coefficients=np.ones((1, 1)))
        return SpectralParts(mean=mean_part, cov=FactorCovariance(inner=none), report=report)
    cov = solve(sums.cov[0].plus(sums.cov[1]))
    noise = cov.noise * _local(frame.cov_noise, unit)
    floor = FLOOR if exact else FLOOR_IN_FRAME
    parts = {"size": frame.spread, "base": frame.base, "floor": floor}
    plain = MatrixCovariance(inner=Chebyshev(index=cov.index, coefficients=cov.coefficients), **parts)
    if not exact:
        some = unit[:SOME]
        seen, expected = cov.disagreement(some, sums.cov)
        seen, expected = plain.transform(some, seen), plain.transform_variance(some, expected * noise[:SOME])
        factor = _calibrate(seen, expected, np.ones(1))
    cov_part = MatrixCovariance(inner=_expansion(cov, factor**2 * noise, unit), **parts)
    report["floored_share"] = float(cov_part.floored(unit).mean())
    return SpectralParts(mean=mean_part, cov=cov_part, report=report)


def _local(noise: Evaluator, unit: np.ndarray) -> np.ndarray:
    """Local over average noise of weighted targets: weights are variance^-TEMPER, so they keep variance^(1-TEMPER)."""
    local = noise.values(unit)
    return (local / local.mean()) ** (1.0 - TEMPER)


def _calibrate(seen: np.ndarray, expected: np.ndarray, noise: np.ndarray) -> float:
    """What standard errors must be multiplied by, so that 90 % of the halves' differences lie within 90 % bands."""
    expected = expected * noise
    known = expected > 0
    if not known.any():
        return 1.0
    ratio = np.abs(seen[known]) / np.sqrt(expected[known])
    return float(np.clip(np.quantile(ratio, 0.9) / NORMAL_90, 0.5, 3.0))


def _expansion(solution: Solution, noise: np.ndarray, unit: np.ndarray) -> Chebyshev:
    """A solution as an evaluator, its standard errors tabulated."""
    variance = np.maximum(noise * solution.spread(unit), np.finfo(float).tiny)
    log_se = tabulate(0.5 * np.log(variance), unit, index_set(unit.shape[1], SE_TERMS))
    return Chebyshev(index=solution.index, coefficients=solution.coefficients, log_se=log_se)
