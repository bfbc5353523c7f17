"""Covariances that are positive semidefinite whatever their regressors say.

In: regressors of lower triangles, row by row. Out: matrices (point, outputs, outputs) and their factors.

- `MatrixCovariance`: C = D R D with R regressed entry by entry and D a diagonal of sizes. Linear, hence unbiased; where
  an eigenvalue of R falls below `FLOOR` of the largest, it is raised to that. `floored` says where.
- `FactorCovariance`: C = L Lᵀ with L = base * T and T regressed: valid by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ctmoments.errors import InputError
from ctmoments.predict.evaluator import Evaluator, triangle_outputs

FLOOR = 1e-9  # of the largest eigenvalue: a Cholesky factorisation in doubles still succeeds up to 1,000 outputs


def lower(triangle: np.ndarray) -> np.ndarray:
    """Lower triangular matrices from (point, triangle, ...)."""
    count = triangle_outputs(triangle.shape[1])
    i, j = np.tril_indices(count)
    full = np.zeros((len(triangle), count, count, *triangle.shape[2:]))
    full[:, i, j] = triangle
    return full


def symmetric(triangle: np.ndarray) -> np.ndarray:
    """Symmetric matrices from (point, triangle, ...)."""
    count = triangle_outputs(triangle.shape[1])
    i, j = np.tril_indices(count)
    place = np.empty((count, count), np.int64)
    place[i, j] = place[j, i] = np.arange(len(i))
    return triangle[:, place.ravel()].reshape(len(triangle), count, count, *triangle.shape[2:])


def cholesky_columns(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower factors and whether every pivot was safely positive, for all points at once.

    numpy.linalg.cholesky gives up on a whole stack where one matrix fails; this one says which.
    """
    count = matrices.shape[1]
    work = np.ascontiguousarray(np.moveaxis(matrices, 0, -1))  # points run fastest
    factor = np.zeros_like(work)
    largest = work[np.arange(count), np.arange(count)].max(axis=0)
    good = largest > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        for j in range(count):
            column = work[j:, j]
            if j:
                column = column - np.einsum("ikn,kn->in", factor[j:, :j], factor[j, :j])
            good &= column[0] > FLOOR * largest
            factor[j:, j] = column / np.sqrt(column[0])
    return np.moveaxis(factor, -1, 0), good


def floor_eigenvalues(matrices: np.ndarray) -> np.ndarray:
    """The nearest symmetric matrices whose eigenvalues are at least `FLOOR` of their largest."""
    values, vectors = np.linalg.eigh(matrices)
    least = FLOOR * matrices.shape[1] * np.maximum(values[:, -1:], np.finfo(float).tiny ** 0.5)
    return (vectors * np.maximum(values, least)[:, None, :]) @ np.swapaxes(vectors, 1, 2)


def factor_of(matrices: np.ndarray) -> np.ndarray:
    """Lower factors of positive semidefinite matrices; those at the limit of rounding are floored first."""
    factor, good = cholesky_columns(matrices)
    if not good.all():
        bad = np.flatnonzero(~good)
        values, vectors = np.linalg.eigh(matrices[bad])
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        upper = np.linalg.qr(np.swapaxes(roots, 1, 2), mode="r")  # roots rootsᵀ = upperᵀ upper
        signs = np.where(np.diagonal(upper, axis1=1, axis2=2) < 0, -1.0, 1.0)
        factor[bad] = np.swapaxes(upper * signs[:, :, None], 1, 2)
    return factor


@dataclass(frozen=True, eq=False, kw_only=True)
class MatrixCovariance:
    """size_i size_j R_ij, R regressed as a lower triangle; eigenvalues of R are floored where they must be."""

    kind: ClassVar[str] = "matrix-covariance"

    inner: Evaluator
    size: Evaluator

    def __post_init__(self):
        if self.size.outputs not in (1, triangle_outputs(self.inner.outputs)):
            raise InputError(f"`size` must have 1 or {self.outputs} outputs, got {self.size.outputs}.")

    @property
    def outputs(self) -> int:
        return triangle_outputs(self.inner.outputs)

    def _sizes(self, unit: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self.size.values(unit), (len(unit), self.outputs))

    def _scaled(self, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """R where it is valid, floored where not; and where it was valid."""
        triangle = self.inner.values(unit)
        matrices = symmetric(triangle)
        _, good = cholesky_columns(matrices)
        if not good.all():
            matrices[~good] = floor_eigenvalues(matrices[~good])
        return matrices, good

    def floored(self, unit: np.ndarray) -> np.ndarray:
        """Whether an eigenvalue had to be raised: bool (point,)."""
        return ~cholesky_columns(symmetric(self.inner.values(unit)))[1]

    def values(self, unit: np.ndarray) -> np.ndarray:
        matrices, _ = self._scaled(unit)
        sizes = self._sizes(unit)
        matrices *= sizes[:, :, None]
        matrices *= sizes[:, None, :]
        return matrices

    def factor(self, unit: np.ndarray) -> np.ndarray:
        return factor_of(self._scaled(unit)[0]) * self._sizes(unit)[:, :, None]

    def se(self, unit: np.ndarray) -> np.ndarray:
        sizes = self._sizes(unit)
        return symmetric(self.inner.se(unit)) * sizes[:, :, None] * sizes[:, None, :]

    def gradient(self, unit: np.ndarray) -> np.ndarray:
        """Of the regressed matrix: where it is floored the gradient is that without the floor."""
        sizes = self._sizes(unit)
        slopes = np.broadcast_to(self.size.gradient(unit), (*sizes.shape, unit.shape[1]))
        inner = symmetric(self.inner.values(unit))[..., None]
        both = slopes[:, :, None] * sizes[:, None, :, None] + sizes[:, :, None, None] * slopes[:, None, :]
        return symmetric(self.inner.gradient(unit)) * (sizes[:, :, None] * sizes[:, None, :])[..., None] + both * inner


@dataclass(frozen=True, eq=False, kw_only=True)
class FactorCovariance:
    """L Lᵀ with L = base T: T regressed as a lower triangle, base (a lower triangle too) where one is given."""

    kind: ClassVar[str] = "factor-covariance"

    inner: Evaluator
    base: Evaluator | None = None

    def __post_init__(self):
        triangle_outputs(self.inner.outputs)
        if self.base is not None and self.base.outputs != self.inner.outputs:
            raise InputError(f"`base` must have {self.inner.outputs} outputs, got {self.base.outputs}.")

    @property
    def outputs(self) -> int:
        return triangle_outputs(self.inner.outputs)

    def factor(self, unit: np.ndarray) -> np.ndarray:
        """L as it is: its diagonal may be negative where the regressor says so."""
        factor = lower(self.inner.values(unit))
        return factor if self.base is None else lower(self.base.values(unit)) @ factor

    def values(self, unit: np.ndarray) -> np.ndarray:
        factor = self.factor(unit)
        return factor @ np.swapaxes(factor, 1, 2)

    def se(self, unit: np.ndarray) -> np.ndarray:
        """To first order, entries of T taken as independent."""
        factor, base = self.factor(unit), None if self.base is None else lower(self.base.values(unit))
        variance = lower(self.inner.se(unit) ** 2)
        if base is not None:
            variance = base**2 @ variance
        half = variance @ np.swapaxes(factor**2, 1, 2)
        return np.sqrt(half + np.swapaxes(half, 1, 2))

    def gradient(self, unit: np.ndarray) -> np.ndarray:
        factor = lower(self.inner.values(unit))
        slope = lower(self.inner.gradient(unit))
        if self.base is not None:
            base = lower(self.base.values(unit))
            base_slope = lower(self.base.gradient(unit))
            slope = np.einsum("nij,njkp->nikp", base, slope) + np.einsum("nijp,njk->nikp", base_slope, factor)
            factor = base @ factor
        half = np.einsum("nijp,nkj->nikp", slope, factor)
        return half + np.swapaxes(half, 1, 2)
