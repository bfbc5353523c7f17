"""`MomentMap`: from a parameter value to the mean and the covariance of every output, with NumPy alone.

In: parameter values. Out: the moments dataset (`predict`), or plain arrays for loops that count microseconds (`mean`,
`covariance`, `factor`, `gradient`), always with the points first. Outside the box a map answers with the nearest
value inside, and its standard errors grow with the distance.
"""

from __future__ import annotations

import importlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from ctmoments.data import moments_dataset
from ctmoments.errors import InputError, ThetaError
from ctmoments.model.problem import Problem
from ctmoments.model.space import Integer, Log
from ctmoments.model.theta import as_theta
from ctmoments.predict.evaluator import Covariance, Evaluator

ON_OUTSIDE = ("warn", "raise", "nan")
CHUNK = 512  # points evaluated at once: tables of a few hundred terms stay in cache
MOST_THREADS = 8
GROWTH = 4.0  # outside the box standard errors grow by this factor for each width of the box


class Gradient(NamedTuple):
    """Derivatives by the parameters."""

    mean: np.ndarray  # (point, output, parameter)
    cov: np.ndarray  # (point, output, output, parameter)


@dataclass(frozen=True, eq=False, kw_only=True)
class MomentMap:
    """The mean and the covariance at every parameter value of the box, with their own standard errors.

    `mean_part` has one output for each output of the problem; `cov_part` one for each that is not `deterministic`.
    `card` tells how the map was made: method, settings, seeds, budget, validation.
    """

    problem: Problem
    mean_part: Evaluator
    cov_part: Covariance
    deterministic: np.ndarray
    card: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        deterministic = np.array(self.deterministic, bool)
        deterministic.flags.writeable = False
        object.__setattr__(self, "deterministic", deterministic)
        outputs = len(self.problem.output_components)
        wanted = {"deterministic": outputs, "mean_part": outputs, "cov_part": outputs - int(deterministic.sum())}
        got = {
            "deterministic": deterministic.shape[0] if deterministic.ndim == 1 else -1,
            "mean_part": self.mean_part.outputs,
            "cov_part": self.cov_part.outputs,
        }
        for name, count in wanted.items():
            if got[name] != count and not (name == "cov_part" and count == 0):
                raise InputError(f"`{name}` must have {count} outputs, got {got[name]}.")

    @property
    def outputs(self) -> int:
        """Outputs of the problem."""
        return len(self.deterministic)

    def predict(self, theta: Any, on_outside: str = "warn") -> xr.Dataset:
        """The moments dataset at these values; `on_outside`: "warn", "raise", or "nan" for values outside the box."""
        if on_outside not in ON_OUTSIDE:
            raise InputError(f"`on_outside` must be one of {', '.join(ON_OUTSIDE)}, got {on_outside!r}.")
        theta = as_theta(self.problem, theta)
        inside = self.problem.space.contains(theta.values)
        if not inside.all() and on_outside != "nan":
            _tell_outside(self.problem, theta, inside, on_outside)
        unit, excess = self._unit(theta.values)
        mean, cov = self._evaluate(unit, self._mean), self._evaluate(unit, self._cov)
        mean_se, cov_se = self._evaluate(unit, self._mean_se), self._evaluate(unit, self._cov_se)
        growth = 1.0 + GROWTH * excess
        mean_se *= growth[:, None]
        cov_se *= growth[:, None, None]
        if on_outside == "nan":
            for array in (mean, cov, mean_se, cov_se):
                array[~inside] = np.nan
        return moments_dataset(
            self.problem, theta, mean, cov, mean_se, cov_se, source="predicted", in_domain=inside, attrs=self._attrs
        )

    def mean(self, theta: Any) -> np.ndarray:
        """Means (point, output)."""
        return self._evaluate(self._plain(theta), self._mean)

    def covariance(self, theta: Any) -> np.ndarray:
        """Covariances (point, output, output)."""
        return self._evaluate(self._plain(theta), self._cov)

    def factor(self, theta: Any) -> np.ndarray:
        """Lower Cholesky factors of the covariances; rows of deterministic outputs are zero."""
        return self._evaluate(self._plain(theta), self._factor)

    def gradient(self, theta: Any) -> Gradient:
        """Derivatives of mean and covariance by the parameters; zero along those that lie outside the box."""
        values = self._values(theta)
        unit, _ = self._unit(values)
        slopes = _unit_slopes(self.problem, values, unit)
        mean = self._evaluate(unit, self.mean_part.gradient)
        cov = self._evaluate(unit, lambda part: self._embed(self.cov_part.gradient(part)))
        return Gradient(mean * slopes[:, None], cov * slopes[:, None, None])

    def save(self, path: str | Path) -> None:
        """Write the map to one file that needs nothing else; `load_map` reads it."""
        from ctmoments.predict.mapfile import save_map

        save_map(self, path)

    def with_card(self, more: Mapping[str, Any]) -> MomentMap:
        """The same map, its card saying more."""
        return replace(self, card=dict(self.card) | dict(more))

    def plot(self, theta: Any = None) -> np.ndarray:
        """Draw moments at a few values, and the map's own error over the box; matplotlib axes (values + 1, 3)."""
        # the one call to the right of this room, by name and late: nothing here depends on it
        return importlib.import_module("ctmoments.evaluate.figures_map").plot_map(self, theta)

    def _values(self, theta: Any) -> np.ndarray:
        """Parameter values (point, parameter). Arrays of the right shape pass without the 0.1 ms of the full gate."""
        count = len(self.problem.space.parameters)
        if isinstance(theta, np.ndarray) and theta.dtype == np.float64 and theta.shape[-1:] == (count,):
            values = theta.reshape(-1, count) if theta.ndim <= 2 else theta
            if values.ndim == 2 and len(values) and np.isfinite(values).all():
                return values
        return as_theta(self.problem, theta).values

    def _plain(self, theta: Any) -> np.ndarray:
        return np.clip(self.problem.space.to_unit(self._values(theta)), 0.0, 1.0)

    def _unit(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Unit coordinates inside the box, and how far outside each point lies, in widths of the box."""
        unit = self.problem.space.to_unit(values)
        unit = np.where(np.isnan(unit), 0.0, unit)  # the logarithm of a value below 0: beyond the lower bound
        inside = np.clip(unit, 0.0, 1.0)
        distance = np.abs(np.where(np.isinf(unit), 1.0, unit - inside))
        return inside, distance.sum(axis=1)

    def _evaluate(self, unit: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        if len(unit) <= CHUNK:
            return np.array(function(unit))
        first = function(unit[:CHUNK])
        result = np.empty((len(unit), *first.shape[1:]))
        result[:CHUNK] = first

        def fill(part: slice) -> None:
            result[part] = function(unit[part])

        with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS)) as pool:
            list(pool.map(fill, _chunks(CHUNK, len(unit))))
        return result

    def _mean(self, unit: np.ndarray) -> np.ndarray:
        return self.mean_part.values(unit)

    def _mean_se(self, unit: np.ndarray) -> np.ndarray:
        return self.mean_part.se(unit)

    def _cov(self, unit: np.ndarray) -> np.ndarray:
        return self._embed(self.cov_part.values(unit))

    def _cov_se(self, unit: np.ndarray) -> np.ndarray:
        return self._embed(self.cov_part.se(unit))

    def _factor(self, unit: np.ndarray) -> np.ndarray:
        factor = self.cov_part.factor(unit)
        signs = np.where(np.diagonal(factor, axis1=1, axis2=2) < 0, -1.0, 1.0)
        return self._embed(factor * signs[:, None, :])

    @cached_property
    def _active(self) -> np.ndarray:
        return np.flatnonzero(~self.deterministic)

    def _embed(self, matrices: np.ndarray) -> np.ndarray:
        """Matrices of the outputs that vary, among those that do not."""
        if len(self._active) == self.outputs:
            return matrices
        full = np.zeros((len(matrices), self.outputs, self.outputs, *matrices.shape[3:]))
        if len(self._active):
            full[:, self._active[:, None], self._active] = matrices
        return full

    @cached_property
    def _attrs(self) -> dict[str, Any]:
        return {key: value for key, value in self.card.items() if isinstance(value, (str, int, float, bool))}

    def __str__(self) -> str:
        lines = [f"map of {self.problem.name or 'a problem'}: {self.outputs} outputs over "
                 f"{', '.join(self.problem.space.parameters)}"]  # fmt: skip
        for key, value in self.card.items():
            text = value if isinstance(value, str) else json.dumps(value)
            lines.append(f"  {key}: {text if len(text) <= 100 else text[:97] + '...'}")
        return "\n".join(lines)

    __repr__ = __str__


def _chunks(start: int, stop: int) -> Iterator[slice]:
    for begin in range(start, stop, CHUNK):
        yield slice(begin, min(begin + CHUNK, stop))


def _tell_outside(problem: Problem, theta: xr.DataArray, inside: np.ndarray, on_outside: str) -> None:
    row = int(np.argmin(inside))
    values = dict(zip(problem.space.parameters, theta.values[row].tolist(), strict=True))
    text = f"{(~inside).sum()} of {len(inside)} values lie outside the box, first {values} at point {row}"
    if on_outside == "raise":
        raise ThetaError(f"{text}; every value must lie in {problem.space!r}.")
    warnings.warn(f"{text}; the map answers with the nearest value inside, see `in_domain`.", stacklevel=3)


def _unit_slopes(problem: Problem, values: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Derivatives of the clipped unit coordinates by the parameters (point, parameter)."""
    slopes = np.empty_like(unit)
    for column, dimension in enumerate(problem.space.dimensions.values()):
        if isinstance(dimension, Log):
            slopes[:, column] = 1.0 / (np.abs(values[:, column]) * np.log(dimension.high / dimension.low))
        else:
            slopes[:, column] = 1.0 / (dimension.high - dimension.low + isinstance(dimension, Integer))
    outside = problem.space.to_unit(values) != unit
    slopes[outside] = 0.0
    return slopes
