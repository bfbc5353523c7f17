"""Targets: how sample covariances become numbers that a network can regress, and back.

In: sample covariances (point, T, T). Out: the lower triangle of their Cholesky factors, row by row, (point, T(T+1)/2),
and how far each diagonal had to be loaded. Every step has its inverse.

The target is biased: for M Gaussian paths (M-1) Σ̂ = L A Aᵀ Lᵀ with A lower triangular (Bartlett 1933), A_jj² chi-square
with M-j degrees of freedom and the rest of mean zero, so that E[L̂] = L diag(E χ_{M-j} / √(M-1)). The paper lets
it stand; `correct_bias` divides it out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ctmoments.errors import InputError

FIRST_LOADING = 1e-10  # of the mean diagonal, then tenfold


@dataclass(frozen=True)
class CholeskyTargets:
    """Lower triangles (point, T(T+1)/2) and the λ that each diagonal was loaded with, in its own units."""

    values: np.ndarray
    loading: np.ndarray


def symmetrise(cov: np.ndarray) -> np.ndarray:
    """(A + Aᵀ)/2 for each matrix."""
    return (cov + np.swapaxes(cov, -1, -2)) / 2


def load_diagonal(cov: np.ndarray, loading: np.ndarray) -> np.ndarray:
    """A + λI for each matrix; its inverse is the same with -λ."""
    return cov + np.asarray(loading)[..., None, None] * np.eye(cov.shape[-1])


def factorise(cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cholesky factors (point, T, T) of symmetric matrices, with the smallest λ of 0, 1e-10, 1e-9, … that allows it.

    λ counts in the mean diagonal. A matrix without any positive variance is its own factor: zero.
    """
    if not np.isfinite(cov).all():
        bad = np.flatnonzero(~np.isfinite(cov).all(axis=(-1, -2)))
        raise InputError(
            f"`cov` must be finite, but is not at {len(bad)} points, first at row {bad[0]}. Leave them out."
        )
    loading = np.zeros(len(cov))
    try:
        return np.linalg.cholesky(cov), loading
    except np.linalg.LinAlgError:
        factors = np.zeros_like(cov)
        for row, matrix in enumerate(cov):
            factors[row], loading[row] = _factorise_one(matrix)
        return factors, loading


def _factorise_one(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    size = float(np.trace(matrix)) / len(matrix)
    if size <= 0:
        return np.zeros_like(matrix), 0.0
    relative = 0.0
    while True:
        try:
            return np.linalg.cholesky(load_diagonal(matrix, np.array(relative * size))), relative * size
        except np.linalg.LinAlgError:
            relative = 10 * relative or FIRST_LOADING


def triangle_to_vector(factor: np.ndarray) -> np.ndarray:
    """The lower triangle row by row: (…, T, T) to (…, T(T+1)/2)."""
    rows, columns = np.tril_indices(factor.shape[-1])
    return factor[..., rows, columns]


def vector_to_triangle(vector: np.ndarray) -> np.ndarray:
    """Lower triangular matrices from their triangles row by row: (…, T(T+1)/2) to (…, T, T)."""
    length = triangle_length(vector.shape[-1])
    rows, columns = np.tril_indices(length)
    factor = np.zeros((*vector.shape[:-1], length, length), vector.dtype)
    factor[..., rows, columns] = vector
    return factor


def triangle_length(entries: int) -> int:
    """T from T(T+1)/2."""
    length = int((np.sqrt(8 * entries + 1) - 1) / 2 + 0.5)
    if length * (length + 1) // 2 != entries:
        raise InputError(f"a triangle must have T(T+1)/2 entries, got {entries}.")
    return length


def factor_to_cov(factor: np.ndarray) -> np.ndarray:
    """Σ = L Lᵀ."""
    return factor @ np.swapaxes(factor, -1, -2)


def factor_bias(replicates: np.ndarray, length: int) -> np.ndarray:
    """E[L̂_jj]/L_jj of Gaussian samples: (point, T), each E χ_{M-j} / √(M-1) for j = 1, …, T."""
    from scipy.special import gammaln

    replicates = np.asarray(replicates, np.float64)[..., None]
    if (replicates <= length).any():
        raise InputError(
            f"the bias of the Cholesky target is known for more than {length} replicates, got {replicates.min():.0f}."
        )
    freedom = replicates - np.arange(1, length + 1)
    chi = np.sqrt(2) * np.exp(gammaln((freedom + 1) / 2) - gammaln(freedom / 2))
    return chi / np.sqrt(replicates - 1)


def cholesky_targets(
    cov: np.ndarray, replicates: np.ndarray | None = None, correct_bias: bool = False
) -> CholeskyTargets:
    """Symmetrise, load, factorise, vectorise.

    `correct_bias` divides out the leading bias and needs the replicates of each point, (point,).

    >>> cholesky_targets(np.array([[[4.0, 2.0], [2.0, 10.0]]])).values.tolist()
    [[2.0, 1.0, 3.0]]
    """
    factors, loading = factorise(symmetrise(np.asarray(cov, np.float64)))
    if correct_bias:
        if replicates is None:
            raise InputError("`correct_bias` needs `replicates`, the paths at each point.")
        factors = factors / factor_bias(replicates, factors.shape[-1])[:, None, :]
    return CholeskyTargets(triangle_to_vector(factors), loading)


def covariances(targets: CholeskyTargets) -> np.ndarray:
    """What the targets came from (point, T, T): the inverse of `cholesky_targets` without correction."""
    return load_diagonal(factor_to_cov(vector_to_triangle(targets.values)), -targets.loading)
