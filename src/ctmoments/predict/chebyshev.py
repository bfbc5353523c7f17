"""Chebyshev expansions over the box, on any (sparse) set of degrees.

In: unit coordinates u; each becomes x = 2u - 1. Out: values Σ_j c_j Π_d T_{k_jd}(x_d), with `index` the degrees k_j
(term, parameter) and `coefficients` c (term, output). Standard errors come from a second, smaller expansion of their
logarithm, where one is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from ctmoments.errors import InputError
from ctmoments.predict.evaluator import Evaluator, check_shape, unknown

HIGHEST = 1000  # degree in a file
MANY = 64  # points from which a loop over terms pays


def chebyshev_table(unit: np.ndarray, highest: int) -> np.ndarray:
    """T_0 .. T_highest of one coordinate: (highest + 1, point), by the recurrence."""
    x = 2.0 * unit - 1.0
    table = np.empty((highest + 1, len(unit)))
    table[0] = 1.0
    if highest:
        table[1] = x
        twice = 2.0 * x
    for k in range(2, highest + 1):
        np.multiply(twice, table[k - 1], out=table[k])
        table[k] -= table[k - 2]
    return table


def slope_table(unit: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The derivatives of `table` by the unit coordinate (twice those by x): T_k' = k U_{k-1}."""
    x = 2.0 * unit - 1.0
    slopes = np.zeros_like(table)
    before, second = np.zeros_like(x), np.ones_like(x)  # U_{k-2}, U_{k-1}
    for k in range(1, len(table)):
        slopes[k] = 2.0 * k * second
        before, second = second, 2.0 * x * second - before
    return slopes


def basis(unit: np.ndarray, index: np.ndarray, slope: int | None = None) -> np.ndarray:
    """Products of Chebyshev polynomials (term, point); `slope` names a coordinate to differentiate by."""
    tables = []
    for d in range(index.shape[1]):
        table = chebyshev_table(unit[:, d], int(index[:, d].max()))
        tables.append(slope_table(unit[:, d], table) if d == slope else table)
    if len(unit) < MANY:
        product = tables[0][index[:, 0]]
        for d in range(1, len(tables)):
            product = product * tables[d][index[:, d]]
        return product
    # a row at a time: gathers of whole tables take 20 times as long (231 terms, 512 points: 7.6 against 0.4 us a point)
    product = np.empty((len(index), len(unit)))
    for row, degrees in zip(product, index.tolist(), strict=True):
        factors = [tables[d][k] for d, k in enumerate(degrees) if k or d == slope]
        if len(factors) >= 2:
            np.multiply(factors[0], factors[1], out=row)
            for factor in factors[2:]:
                row *= factor
        else:
            row[:] = factors[0] if factors else 1.0
    return product


@dataclass(frozen=True, eq=False, kw_only=True)
class Chebyshev:
    """Σ_j c_j Π_d T_{k_jd}(2 u_d - 1); `log_se`, where given, expands the logarithm of the standard errors."""

    kind: ClassVar[str] = "chebyshev"

    index: np.ndarray
    coefficients: np.ndarray
    log_se: Evaluator | None = None

    def __post_init__(self):
        index = np.array(self.index, np.int64)
        if index.ndim != 2 or index.size == 0 or index.min() < 0 or index.max() > HIGHEST:
            raise InputError(f"`index` must be degrees from 0 to {HIGHEST}, (term, parameter), got {index.shape}.")
        index.flags.writeable = False
        object.__setattr__(self, "index", index)
        coefficients = check_shape("coefficients", self.coefficients, (len(index), None))
        object.__setattr__(self, "coefficients", coefficients)
        if self.log_se is not None and self.log_se.outputs != self.outputs:
            raise InputError(f"`log_se` must have {self.outputs} outputs, got {self.log_se.outputs}.")

    @property
    def outputs(self) -> int:
        return self.coefficients.shape[1]

    @cached_property
    def _transposed(self) -> np.ndarray:
        return np.ascontiguousarray(self.coefficients.T)

    def values(self, unit: np.ndarray) -> np.ndarray:
        return (self._transposed @ basis(unit, self.index)).T

    def se(self, unit: np.ndarray) -> np.ndarray:
        if self.log_se is None:
            return unknown(np.empty((len(unit), self.outputs)))
        return np.exp(self.log_se.values(unit))

    def gradient(self, unit: np.ndarray) -> np.ndarray:
        slopes = [(self._transposed @ basis(unit, self.index, slope=d)).T for d in range(self.index.shape[1])]
        return np.stack(slopes, axis=-1)
