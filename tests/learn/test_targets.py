"""Targets: each step against a formula or its inverse; the bias against simulated Gaussian covariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctmoments.errors import InputError
from ctmoments.learn.targets import (
    cholesky_targets,
    covariances,
    factor_bias,
    factor_to_cov,
    triangle_length,
    triangle_to_vector,
    vector_to_triangle,
)


def random_covs(seed: int, points: int, length: int, paths: int) -> np.ndarray:
    samples = np.random.default_rng(seed).normal(size=(points, paths, length))
    samples = samples - samples.mean(axis=1, keepdims=True)
    return samples.swapaxes(1, 2) @ samples / (paths - 1)


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 14))
def test_targets_and_back(seed: int, length: int, paths: int):
    covs = random_covs(seed, 5, length, paths + 1)
    np.testing.assert_allclose(covariances(cholesky_targets(covs)), covs, atol=1e-12)


def test_rows_of_the_triangle_come_one_after_the_other():
    factor = np.array([[1.0, 0, 0], [2, 3, 0], [4, 5, 6]])
    assert triangle_to_vector(factor).tolist() == [1, 2, 3, 4, 5, 6]
    assert vector_to_triangle(np.arange(1.0, 7)).tolist() == factor.tolist()


def test_a_definite_matrix_is_not_loaded():
    assert cholesky_targets(random_covs(1, 20, 5, 50)).loading.tolist() == [0.0] * 20


def test_a_singular_matrix_is_loaded_with_the_first_step_that_works():
    indefinite = np.diag([1.0, 1.0, -3e-8])
    targets = cholesky_targets(np.stack([np.eye(3), indefinite]))
    mean_diagonal = (2 - 3e-8) / 3
    assert targets.loading[0] == 0.0
    assert targets.loading[1] == pytest.approx(1e-7 * mean_diagonal, rel=1e-12)  # 1e-8 of it is 0.7e-8: too little


def test_a_matrix_without_variance_is_its_own_factor():
    targets = cholesky_targets(np.zeros((1, 3, 3)))
    assert not targets.values.any()
    assert targets.loading.tolist() == [0.0]


def test_an_unsymmetric_matrix_is_symmetrised():
    assert factor_to_cov(vector_to_triangle(cholesky_targets(np.array([[[2.0, 1.0], [0.0, 2.0]]])).values))[
        0, 0, 1
    ] == pytest.approx(0.5)


def test_not_finite_is_refused_with_its_place():
    covs = np.stack([np.eye(2), np.full((2, 2), np.nan)])
    with pytest.raises(InputError, match="at 1 points, first at row 1"):
        cholesky_targets(covs)


def test_a_number_that_is_no_triangle_is_refused():
    assert triangle_length(91) == 13
    with pytest.raises(InputError, match="got 5"):
        triangle_length(5)


def test_the_bias_of_two_paths_is_that_of_the_half_normal():
    # M = 2, T = 1: L̂ = |x1 - x2|/√2, whose mean is √(2/π)
    assert factor_bias(np.array([2]), 1)[0, 0] == pytest.approx(np.sqrt(2 / np.pi), rel=1e-12)


def test_the_correction_removes_the_bias_of_gaussian_samples():
    # 40,000 covariances of 12 paths: the last diagonal is 20 % low. Each entry's error is below 0.7/√40,000 = 0.0035;
    # 10 entries at |z| < 6: false alarms below 1e-7; a bias of 3 % of one entry would be seen.
    covs = random_covs(3, 40_000, 4, 12)
    root = np.linalg.cholesky(np.array([[4, 1, 0, 0], [1, 3, 1, 0], [0, 1, 2, 0.5], [0, 0, 0.5, 1]]))
    covs = root @ covs @ root.T
    plain = cholesky_targets(covs).values
    corrected = cholesky_targets(covs, np.full(len(covs), 12), correct_bias=True).values
    truth = triangle_to_vector(root)
    error = corrected.std(axis=0) / np.sqrt(len(covs))
    assert (np.abs(corrected.mean(axis=0) - truth) < 6 * error).all()
    assert plain[:, -1].mean() < 0.87 * truth[-1]


def test_the_correction_needs_more_paths_than_outputs():
    with pytest.raises(InputError, match="more than 3 replicates, got 3"):
        cholesky_targets(np.eye(3)[None], np.array([3]), correct_bias=True)
    with pytest.raises(InputError, match="needs `replicates`"):
        cholesky_targets(np.eye(3)[None], correct_bias=True)
