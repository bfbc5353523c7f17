"""The box of parameter values: linear, log and integer dimensions, and fixed values.

In: bounds. Out: a frozen `Space` with maps to and from the unit cube, where every design is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from ctmoments.errors import ModelError, ThetaError
from ctmoments.model.checks import MAX_AMOUNT, check_name, check_number, is_number
from ctmoments.model.frozen import FrozenMap


def _check_bounds(dimension: Any) -> None:
    kind = type(dimension).__name__
    for side in ("low", "high"):
        object.__setattr__(dimension, side, check_number(getattr(dimension, side), f"`{side}` of {kind}"))
    if not dimension.low < dimension.high:
        raise ModelError(f"{kind}: `low` must be below `high`, got {dimension.low!r} and {dimension.high!r}.")
    if not np.isfinite(dimension.high - dimension.low):
        raise ModelError(f"{kind}: `high` - `low` must be finite, got {dimension.low!r} and {dimension.high!r}.")


@dataclass(frozen=True)
class Linear:
    """A parameter that varies evenly from low to high."""

    low: float
    high: float

    def __post_init__(self):
        _check_bounds(self)

    def from_unit(self, unit: np.ndarray) -> np.ndarray:
        return np.clip(self.low + unit * (self.high - self.low), self.low, self.high)

    def to_unit(self, values: np.ndarray) -> np.ndarray:
        return (values - self.low) / (self.high - self.low)

    def __repr__(self) -> str:
        return f"({self.low!r}, {self.high!r})"


@dataclass(frozen=True)
class Log:
    """A parameter whose logarithm varies evenly; low must be above 0.

    >>> float(Log(0.01, 1).from_unit(0.5).round(12))
    0.1
    """

    low: float
    high: float

    def __post_init__(self):
        _check_bounds(self)
        if self.low <= 0:
            raise ModelError(f"Log: `low` must be above 0, got {self.low!r}.")

    def from_unit(self, unit: np.ndarray) -> np.ndarray:
        start, stop = np.log(self.low), np.log(self.high)
        return np.clip(np.exp(start + unit * (stop - start)), self.low, self.high)

    def to_unit(self, values: np.ndarray) -> np.ndarray:
        start, stop = np.log(self.low), np.log(self.high)
        with np.errstate(divide="ignore", invalid="ignore"):
            return (np.log(values) - start) / (stop - start)

    def __repr__(self) -> str:
        return f"Log({self.low!r}, {self.high!r})"


@dataclass(frozen=True)
class Integer:
    """A whole number from low to high, both included; each has an equal part of the unit interval.

    >>> Integer(1, 4).from_unit(np.array([0, 0.3, 1])).tolist()
    [1.0, 2.0, 4.0]
    """

    low: int
    high: int

    def __post_init__(self):
        _check_bounds(self)
        for side in ("low", "high"):
            value = getattr(self, side)
            if value != int(value) or abs(value) > MAX_AMOUNT:
                raise ModelError(f"Integer: `{side}` must be a whole number of at most 2^52, got {value!r}.")
            object.__setattr__(self, side, int(value))

    def from_unit(self, unit: np.ndarray) -> np.ndarray:
        return np.clip(self.low + np.floor(unit * (self.high - self.low + 1)), self.low, self.high)

    def to_unit(self, values: np.ndarray) -> np.ndarray:
        return (values - self.low + 0.5) / (self.high - self.low + 1)

    def __repr__(self) -> str:
        return f"Integer({self.low}, {self.high})"


Dimension: TypeAlias = Linear | Log | Integer


@dataclass(frozen=True, init=False, repr=False)
class Space:
    """The box. A pair is linear; `Log(low, high)` and `Integer(low, high)` say so; a number fixes a parameter.

    >>> space = Space(alpha=(0.1, 0.9), beta=Log(0.00125, 0.00325), I0=Integer(1, 20), k=0.3)
    >>> space.parameters, dict(space.fixed)
    (('alpha', 'beta', 'I0'), {'k': 0.3})
    """

    entries: FrozenMap[Dimension | float]

    def __init__(self, /, **entries: Any):
        object.__setattr__(
            self, "entries", FrozenMap({check_name(k, "`Space`"): _entry(k, v) for k, v in entries.items()})
        )
        if not self.dimensions:
            raise ModelError(
                "`Space` must have at least one parameter that varies, got none. Give it a pair of bounds."
            )

    @cached_property
    def dimensions(self) -> Mapping[str, Dimension]:
        """The dimension of each parameter that varies, in order."""
        return FrozenMap(
            {name: entry for name, entry in self.entries.items() if isinstance(entry, Linear | Log | Integer)}
        )

    @cached_property
    def fixed(self) -> Mapping[str, float]:
        """The value of each parameter that does not vary."""
        return FrozenMap({name: entry for name, entry in self.entries.items() if isinstance(entry, float)})

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that vary, in order: the `parameter` axis."""
        return tuple(self.dimensions)

    @property
    def low(self) -> np.ndarray:
        """Lower bounds (parameter,)."""
        return np.array([dimension.low for dimension in self.dimensions.values()], np.float64)

    @property
    def high(self) -> np.ndarray:
        """Upper bounds (parameter,)."""
        return np.array([dimension.high for dimension in self.dimensions.values()], np.float64)

    def from_unit(self, unit: Any) -> np.ndarray:
        """Values (point, parameter) from unit coordinates in [0, 1]."""
        unit = self._columns(unit, "unit coordinates")
        if not ((unit >= 0) & (unit <= 1)).all():
            raise ThetaError(f"unit coordinates must lie in [0, 1], got {unit.min()!r} to {unit.max()!r}.")
        columns = zip(self.dimensions.values(), unit.T, strict=True)
        return np.stack([dimension.from_unit(column) for dimension, column in columns], axis=1)

    def to_unit(self, theta: Any) -> np.ndarray:
        """Unit coordinates (point, parameter) of values; outside [0, 1] where a value is outside the box."""
        columns = zip(self.dimensions.values(), self._columns(theta, "values").T, strict=True)
        return np.stack([dimension.to_unit(column) for dimension, column in columns], axis=1)

    def contains(self, theta: Any) -> np.ndarray:
        """Whether each point lies in the box, bounds included, whole where it must be: bool (point,)."""
        theta = self._columns(theta, "values")
        inside = (self.low <= theta) & (theta <= self.high)
        integer = [isinstance(dimension, Integer) for dimension in self.dimensions.values()]
        inside[:, integer] &= theta[:, integer] == np.round(theta[:, integer])
        return inside.all(axis=1)

    def _columns(self, values: Any, what: str) -> np.ndarray:
        values = np.asarray(values, np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.dimensions):
            raise ThetaError(f"{what} must have shape (points, {len(self.dimensions)}), got {values.shape}.")
        return values

    def __repr__(self) -> str:
        return f"Space({', '.join(f'{name}={entry!r}' for name, entry in self.entries.items())})"


def _entry(name: str, entry: Any) -> Dimension | float:
    place = f"parameter {name!r}"
    if isinstance(entry, Linear | Log | Integer):
        return entry
    if is_number(entry):
        return check_number(entry, place)
    if isinstance(entry, tuple | list) and len(entry) == 2:
        try:
            return Linear(*entry)
        except ModelError as error:
            raise ModelError(f"{place}: {error}") from None
    raise ModelError(f"{place} must be a pair (low, high), Log(...), Integer(...) or a fixed number, got {entry!r}.")
