"""Covariances that are positive semidefinite whatever their regressors say.

In: regressors of lower triangles, row by row. Out: matrices (point, outputs, outputs) and their factors.

- `MatrixCovariance`: C = D B R Bᵀ D with R regressed entry by entry, D a diagonal of sizes, B a smooth lower triangle
  that makes R nearly the identity. Linear in R, hence unbiased; where an eigenvalue of R falls below a floor it is
  raised to that. `floored` says where.
- `FactorCovariance`: C = L Lᵀ with L = base * T and T regressed: valid by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ctmoments.errors import InputError
from ctmoments.predict.evaluator import Evaluator, triangle_outputs

FLOOR = 1e-9  # of the mean eigenvalue: a Cholesky factorisation in doubles still succeeds up to 1,000 outputs
FEW = 32  # matrices up to which LAPACK's all-or-nothing factorisation is tried first: 0.01 ms against 0.2


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


def cholesky_columns(matrices: np.ndarray, floor: float = FLOOR) -> tuple[np.ndarray, np.ndarray]:
    """Lower factors, and whether every pivot passed `floor` of the mean diagonal, for all points at once.

    numpy.linalg.cholesky gives up on a whole stack where one matrix fails; this one says which.
    """
    count = matrices.shape[1]
    work = np.array(np.moveaxis(matrices, 0, -1), order="C")  # points run fastest
    factor = np.zeros_like(work)
    least = floor * work[np.arange(count), np.arange(count)].mean(axis=0)
    good = least > 0
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for j in range(count):
            good &= work[j, j] > least
            column = np.divide(work[j:, j], np.sqrt(work[j, j]), out=factor[j:, j])
            for i in range(j + 1, count):  # what remains, row by row: contiguous, no temporaries of the whole
                work[i, j + 1 : i + 1] -= column[i - j] * column[1 : i - j + 1]
    return np.moveaxis(factor, -1, 0), good


def floor_eigenvalues(matrices: np.ndarray, floor: float = FLOOR) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric matrices with eigenvalues of at least `floor` of their mean size, and which ones were raised."""
    values, vectors = np.linalg.eigh(matrices)
    tiny = np.finfo(float).tiny ** 0.5
    least = np.maximum(floor * np.abs(values).mean(axis=1, keepdims=True), tiny)
    raised = values[:, 0] < least[:, 0]
    matrices = np.array(matrices)
    high = np.maximum(values[raised], least[raised])
    matrices[raised] = (vectors[raised] * high[:, None, :]) @ np.swapaxes(vectors[raised], 1, 2)
    return matrices, raised


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
    """size_i size_j (B R Bᵀ)_ij: R regressed as a lower triangle, B the lower triangle `base` (the identity if None).

    Eigenvalues of R below `floor` of their mean size are raised to it.
    """

    kind: ClassVar[str] = "matrix-covariance"

    inner: Evaluator
    size: Evaluator
    base: Evaluator | None = None
    floor: float = FLOOR

    def __post_init__(self):
        if self.size.outputs not in (1, triangle_outputs(self.inner.outputs)):
            raise InputError(f"`size` must have 1 or {self.outputs} outputs, got {self.size.outputs}.")
        if self.base is not None and self.base.outputs != self.inner.outputs:
            raise InputError(f"`base` must have {self.inner.outputs} outputs, got {self.base.outputs}.")
        if not FLOOR <= self.floor < 1:
            raise InputError(f"`floor` must lie in [{FLOOR}, 1), got {self.floor!r}.")

    @property
    def outputs(self) -> int:
        return triangle_outputs(self.inner.outputs)

    def _frame(self, unit: np.ndarray) -> np.ndarray:
        """diag(size) B: lower triangular (point, outputs, outputs)."""
        sizes = np.broadcast_to(self.size.values(unit), (len(unit), self.outputs))[:, :, None]
        base = np.eye(self.outputs) if self.base is None else lower(self.base.values(unit))
        return sizes * base

    def _floored(self, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """R where it is valid, floored where not; and which were raised."""
        matrices = symmetric(self.inner.values(unit))
        raised = ~_surely_above(matrices, self.floor)
        if raised.any():
            matrices[raised], raised[raised] = floor_eigenvalues(matrices[raised], self.floor)
        return matrices, raised

    def floored(self, unit: np.ndarray) -> np.ndarray:
        """Whether an eigenvalue had to be raised: bool (point,)."""
        return self._floored(unit)[1]

    def values(self, unit: np.ndarray) -> np.ndarray:
        matrices, frame = self._floored(unit)[0], self._frame(unit)
        matrices = frame @ matrices @ np.swapaxes(frame, 1, 2)
        return (matrices + np.swapaxes(matrices, 1, 2)) / 2

    def factor(self, unit: np.ndarray) -> np.ndarray:
        return self._frame(unit) @ factor_of(self._floored(unit)[0])

    def transform(self, unit: np.ndarray, triangle: np.ndarray) -> np.ndarray:
        """Lower triangles in the place of R, as covariances."""
        frame = self._frame(unit)
        return frame @ symmetric(triangle) @ np.swapaxes(frame, 1, 2)

    def transform_variance(self, unit: np.ndarray, triangle: np.ndarray) -> np.ndarray:
        """Variances of the entries of R, as those of the covariances; entries of R taken as independent."""
        frame, variance = self._frame(unit), symmetric(triangle)
        squares = frame**2
        result = squares @ variance @ np.swapaxes(squares, 1, 2)
        # an entry of R stands twice in C_ab, times F_ai F_bj and F_aj F_bi: the square has their product twice
        diagonal = np.arange(self.outputs)
        variance[:, diagonal, diagonal] = 0.0
        for a in range(self.outputs):  # row by row: the whole would take outputs⁴ numbers
            both = frame[:, a : a + 1] * frame
            result[:, a] += ((both @ variance) * both).sum(axis=2)
        return result

    def se(self, unit: np.ndarray) -> np.ndarray:
        """Entries of R taken as independent."""
        return np.sqrt(self.transform_variance(unit, self.inner.se(unit) ** 2))

    def gradient(self, unit: np.ndarray) -> np.ndarray:
        """Of the regressed matrix: where it is floored the gradient is that without the floor."""
        frame, inner = self._frame(unit), symmetric(self.inner.values(unit))
        sizes = np.broadcast_to(self.size.values(unit), (len(unit), self.outputs))
        growth = np.broadcast_to(self.size.gradient(unit), (*sizes.shape, unit.shape[1])) / sizes[..., None]
        slope = growth[:, :, None] * frame[..., None]
        if self.base is not None:
            slope = slope + sizes[:, :, None, None] * lower(self.base.gradient(unit))
        half = np.einsum("niap,nab,njb->nijp", slope, inner, frame, optimize=True)
        middle = np.einsum("nia,nabp,njb->nijp", frame, symmetric(self.inner.gradient(unit)), frame, optimize=True)
        return half + np.swapaxes(half, 1, 2) + middle


def _surely_above(matrices: np.ndarray, floor: float) -> np.ndarray:
    """Whether all eigenvalues pass `floor` of their mean size: a Cholesky factorisation of what remains succeeds."""
    count = matrices.shape[1]
    shifted = matrices.copy()
    diagonal = np.arange(count)
    shifted[:, diagonal, diagonal] -= floor * matrices[:, diagonal, diagonal].mean(axis=1)[:, None]
    if len(shifted) < FEW:
        try:
            np.linalg.cholesky(shifted)
            return np.ones(len(shifted), bool)
        except np.linalg.LinAlgError:
            pass  # somewhere: the loop below says where
    return cholesky_columns(shifted)[1]


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
