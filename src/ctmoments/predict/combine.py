"""Evaluators made of others: exponentials, sizes and shifts, averages.

In: evaluators. Out: an evaluator whose values, standard errors and gradients follow from theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ctmoments.errors import InputError
from ctmoments.predict.evaluator import Evaluator


@dataclass(frozen=True, eq=False, kw_only=True)
class Exponential:
    """exp(inner): sizes and standard deviations that stay positive."""

    kind: ClassVar[str] = "exponential"

    inner: Evaluator

    @property
    def outputs(self) -> int:
        return self.inner.outputs

    def values(self, unit: np.ndarray) -> np.ndarray:
        return np.exp(self.inner.values(unit))

    def se(self, unit: np.ndarray) -> np.ndarray:
        return self.values(unit) * self.inner.se(unit)

    def gradient(self, unit: np.ndarray) -> np.ndarray:
        return self.values(unit)[..., None] * self.inner.gradient(unit)


@dataclass(frozen=True, eq=False, kw_only=True)
class Scaled:
    """shift + size * inner; `size` has as many outputs as `inner` or one; `shift` and `size` count as exact."""

    kind: ClassVar[str] = "scaled"

    inner: Evaluator
    size: Evaluator
    shift: Evaluator | None = None

    def __post_init__(self):
        if self.size.outputs not in (1, self.inner.outputs):
            raise InputError(f"`size` must have 1 or {self.inner.outputs} outputs, got {self.size.outputs}.")
        if self.shift is not None and self.shift.outputs != self.inner.outputs:
            raise InputError(f"`shift` must have {self.inner.outputs} outputs, got {self.shift.outputs}.")

    @property
    def outputs(self) -> int:
        return self.inner.outputs

    def values(self, unit: np.ndarray) -> np.ndarray:
        values = self.size.values(unit) * self.inner.values(unit)
        return values if self.shift is None else self.shift.values(unit) + values

    def se(self, unit: np.ndarray) -> np.ndarray:
        return self.size.values(unit) * self.inner.se(unit)

    def gradient(self, unit: np.ndarray) -> np.ndarray:
        gradient = self.size.values(unit)[..., None] * self.inner.gradient(unit)
        gradient += self.size.gradient(unit) * self.inner.values(unit)[..., None]
        return gradient if self.shift is None else gradient + self.shift.gradient(unit)


@dataclass(frozen=True, eq=False, kw_only=True)
class Average:
    """The mean of members; its standard error is `spread` times their standard deviation."""

    kind: ClassVar[str] = "average"

    members: tuple[Evaluator, ...]
    spread: float | None = None

    def __post_init__(self):
        if not self.members or len({member.outputs for member in self.members}) > 1:
            raise InputError("`members` must be evaluators of equal outputs, at least one.")
        if self.spread is not None and not (0 <= self.spread < np.inf):
            raise InputError(f"`spread` must be a number from 0 on, or None, got {self.spread!r}.")

    @property
    def outputs(self) -> int:
        return self.members[0].outputs

    def values(self, unit: np.ndarray) -> np.ndarray:
        return np.mean([member.values(unit) for member in self.members], axis=0)

    def se(self, unit: np.ndarray) -> np.ndarray:
        values = np.stack([member.values(unit) for member in self.members])
        if self.spread is None or len(self.members) < 2:
            return np.full(values.shape[1:], np.nan)
        return self.spread * values.std(axis=0, ddof=1)

    def gradient(self, unit: np.ndarray) -> np.ndarray:
        return np.mean([member.gradient(unit) for member in self.members], axis=0)

    def factor(self, unit: np.ndarray) -> np.ndarray:
        """For members that are covariances: the factor of their mean."""
        from ctmoments.predict.covariance import factor_of

        return factor_of(self.values(unit))
