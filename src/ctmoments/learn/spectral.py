"""`Spectral`: the maps in closed form, from sums at points.

In: rows of targets (`sources.py`). Out: the parts of a `MomentMap`. Everything is linear least squares on Chebyshev
polynomials (`regress.py`) in a frame (`pilot.py`) that makes targets smooth, evenly noisy and nearly uncorrelated.
Paths are simulated, many at each of some thousand points, and leave sums: time grows with the terms, not the budget.

Regressing B⁻¹ e eᵀ B⁻ᵀ instead of e eᵀ costs nothing in the Frobenius norm (SIR, 90,000 paths: 5.1 % against 5.2) and
makes the small eigenvalues right: the Kullback-Leibler distance of the Gaussians is 0.11 against 10, and 1 % of the
box is floored against 57 %. An eigenvalue below the noise is noise: raised to it, the whitened variance of fresh paths
falls from 1.9 to 1.06 (seir) and from 2.2 to 0.99 (sir-two-patch), and the Frobenius error stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ctmoments.errors import InputError
from ctmoments.learn.frame import TEMPER, Frame, chunks, places, tabulate, without_leverage
from ctmoments.learn.indexset import index_set
from ctmoments.learn.outputs import deterministic_outputs
from ctmoments.learn.pilot import pilot_frame
from ctmoments.learn.regress import NormalEquations, Solution, find_stretch, solve
from ctmoments.learn.sources import Batch, Density
from ctmoments.model.problem import Problem
from ctmoments.predict.chebyshev import Chebyshev
from ctmoments.predict.combine import Scaled
from ctmoments.predict.covariance import FactorCovariance, MatrixCovariance
from ctmoments.predict.evaluator import Covariance, Evaluator
from ctmoments.predict.moment_map import MomentMap

FEW = 120, 200  # terms of the regressions on the way to the frame: for two parameters, for more
PLAIN = 10  # terms of sizes in a pilot
FLOORS = (0.01, 0.2)  # least eigenvalues in the frame, where their mean is 1: as large as the noise, within these
SE_TERMS = 45  # of the logarithm of standard errors
SOME = 400  # points where the halves are compared as covariances
INFLATION = 1.15  # of standard errors: a prior that is one for the whole box is too sure where a function bends most
NORMAL_90 = 1.6448536269514722

Block = tuple[np.ndarray, np.ndarray, np.ndarray]  # unit coordinates, targets, weights of rows


@dataclass(frozen=True, kw_only=True)
class Spectral:
    """Settings. `terms`: Chebyshev products at most; `size_terms`, `base_terms`: those of sizes and of the frame.

    `terms=None` takes 240 for one and two varying parameters (degree 20: 0.0002 % of the SIR's mean is left out), 500
    for three, 1,000 for more (sir-two-patch, 100,000 paths: 3.6 % of the mean against 6.0 with 211).
    """

    terms: int | None = None
    size_terms: int = 250
    base_terms: int = 28

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


def fit_spectral(rows: Batch, active: np.ndarray, settings: Spectral) -> SpectralParts:
    """The mean of all outputs and the covariance of the `active` ones."""
    parameters = rows.unit.shape[1]
    few = _few(rows)
    terms = min(settings.terms_for(parameters), max(len(rows.unit) // (1 if rows.exact else 2), 1))
    frame = pilot_frame(rows, active, few, settings.size_terms, settings.base_terms)

    def regressed(blocks: Callable[[], Iterable[Block]]) -> Fit:
        stretch = None if rows.exact else find_stretch(Halves.of(blocks(), few).whole)
        halves = Halves.of(blocks(), index_set(parameters, terms, stretch))
        return Fit(halves, solve(halves.whole, find_stretch(halves.whole)))

    mean = regressed(lambda: [(rows.unit, *frame.mean_rows(rows))])
    if not len(active):
        return assemble(frame, mean, None, rows.exact)
    fitted = without_leverage(rows, mean.solution, frame.size, frame.mean_rows(rows)[1])
    cov = regressed(lambda: product_blocks(rows, frame, fitted))
    return assemble(frame, mean, cov, rows.exact)


def density_of(pilot: Batch, active: np.ndarray, settings: Spectral) -> Density:
    """Where further points are worth most: the cube root of the variance, that of mean and covariance alike."""
    frame = pilot_frame(pilot, active, _few(pilot), min(PLAIN, settings.size_terms), settings.base_terms)
    return lambda unit: (frame.mean_noise.values(unit) * frame.cov_noise.values(unit))[:, 0] ** (1 / 6)


def _few(rows: Batch) -> np.ndarray:
    """Terms of the regressions on the way."""
    parameters = rows.unit.shape[1]
    return index_set(parameters, min(FEW[parameters > 2], max(len(rows.unit) // 2, 1)))


def product_blocks(rows: Batch, frame: Frame, fitted: np.ndarray) -> Iterator[Block]:
    """Targets of the covariance about fitted means (n, output), some rows at a time."""
    begin = 0
    for part in chunks(rows, len(frame.active)):
        end = begin + len(part.unit)
        yield (part.unit, *frame.cov_rows(part, fitted[begin:end]))
        begin = end


@dataclass(frozen=True, eq=False)
class Halves:
    """Normal equations of every other row, and of the rows between: together the fit, apart how sure it is."""

    parts: tuple[NormalEquations, NormalEquations]

    @classmethod
    def of(cls, blocks: Iterable[Block], index: np.ndarray) -> Halves:
        """All rows of the blocks."""
        parts: list[NormalEquations] = []
        for unit, targets, weights in blocks:
            parts = parts or [NormalEquations.empty(index, targets.shape[1]) for _ in range(2)]
            for half, equations in enumerate(parts):
                equations.add(unit[half::2], targets[half::2], weights[half::2])
        return cls((parts[0], parts[1]))

    @property
    def whole(self) -> NormalEquations:
        """Those of all rows."""
        return self.parts[0].plus(self.parts[1])


@dataclass(frozen=True, eq=False)
class Fit:
    """A regression and the sums that it comes from."""

    halves: Halves
    solution: Solution


def assemble(frame: Frame, mean: Fit, cov: Fit | None, exact: bool) -> SpectralParts:
    """Evaluators with their standard errors."""
    halves, solution = mean.halves, mean.solution
    unit = places(solution.index.shape[1], SE_TERMS)
    report: dict[str, Any] = {"terms": len(solution.index)}
    noise = solution.noise * _local(frame.mean_noise, unit)
    factor = 1.0 if exact else _calibrate(*solution.disagreement(unit, halves.parts), noise)
    mean_part = Scaled(inner=_expansion(solution, factor**2 * noise, unit), size=frame.size)
    if cov is None:
        none = Chebyshev(index=solution.index[:1], coefficients=np.ones((1, 1)))
        return SpectralParts(mean=mean_part, cov=FactorCovariance(inner=none), report=report)
    halves, solution = cov.halves, cov.solution
    noise = solution.noise * _local(frame.cov_noise, unit)
    plain = Chebyshev(index=solution.index, coefficients=solution.coefficients)
    covariance = MatrixCovariance(inner=plain, size=frame.spread, base=frame.base)
    if frame.base_spread is None:
        cov_part = replace(covariance, inner=_expansion(solution, noise, unit))
    else:
        some = unit[:SOME]
        seen, expected = solution.disagreement(some, halves.parts)
        seen, expected = covariance.transform(some, seen), covariance.transform_variance(some, expected * noise[:SOME])
        least = frame.base_spread.values(unit) * frame.cov_noise.values(unit) ** TEMPER
        inner = _expansion(solution, _calibrate(seen, expected, np.ones(1)) ** 2 * noise, unit, least)
        floor = float(np.clip(np.median(inner.se(unit)), *FLOORS))
        cov_part = replace(covariance, inner=inner, floor=floor)
        report["floor"] = floor
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
    return INFLATION * float(np.clip(np.quantile(ratio, 0.9) / NORMAL_90, 0.7, 3.0))


def _expansion(solution: Solution, noise: np.ndarray, unit: np.ndarray, least: np.ndarray | float = 0.0) -> Chebyshev:
    """A solution as an evaluator, its standard errors tabulated."""
    variance = np.maximum(noise * np.maximum(solution.spread(unit), least), np.finfo(float).tiny)
    log_se = tabulate(0.5 * np.log(variance), unit, index_set(unit.shape[1], SE_TERMS))
    return Chebyshev(index=solution.index, coefficients=solution.coefficients, log_se=log_se)


def spectral_map(problem: Problem, parts: SpectralParts, settings: Spectral, card: dict[str, Any]) -> MomentMap:
    """The parts as a map."""
    return MomentMap(
        problem=problem, mean_part=parts.mean, cov_part=parts.cov, deterministic=deterministic_outputs(problem),
        card={"method": "Spectral", "settings": asdict(settings)} | card | parts.report | {"versions": versions()},
    )  # fmt: skip


def versions() -> dict[str, str]:
    """What made the map."""
    from ctmoments import __version__

    return {"ctmoments": __version__, "numpy": np.__version__}
