from __future__ import annotations

import numpy as np
import pytest

from ctmoments.data import moments_dataset, paths_array
from ctmoments.errors import InputError
from ctmoments.model.library import load_problem
from ctmoments.model.theta import as_theta
from ctmoments.moments.whiten import correlation, largest_correlation, whiten


def made(cov, mean=None, replicates=20_000, seed=0):
    """Gaussian paths of known moments, and those moments."""
    problem = load_problem("sir")
    theta = as_theta(problem, [[0.2, 0.002], [0.5, 0.003]])
    outputs = len(problem.output_components)
    mean = np.arange(2.0 * outputs).reshape(2, outputs) if mean is None else mean
    root = np.linalg.cholesky(cov + 1e-12 * np.eye(outputs))
    z = np.random.default_rng(seed).normal(size=(2, replicates, outputs))
    values = mean[:, None] + z @ root.swapaxes(1, 2)
    paths = paths_array(problem, theta, values, np.zeros((2, replicates), np.int8), first_replicate=0)
    return paths, moments_dataset(problem, theta, mean, cov, 0 * mean, 0 * cov, source="exact")


@pytest.fixture
def cov():
    root = np.random.default_rng(1).normal(size=(2, 13, 13))
    return root @ root.swapaxes(1, 2) + 0.1 * np.eye(13)


@pytest.mark.parametrize("kind", ["symmetric", "cholesky"])
def test_whitened_gaussians_have_the_identity(cov, kind):
    """169 entries at 2 points; standard error 1/√20,000 = 0.007 (diagonal 0.01): 0.06 is six of them, P < 1e-6."""
    z = whiten(*made(cov), kind=kind)
    for point in range(2):
        np.testing.assert_allclose(np.cov(z.values[point], rowvar=False), np.eye(13), atol=0.06)
    np.testing.assert_allclose(z.mean(dim=("point", "replicate")), 0, atol=0.03)
    assert z.attrs["correlation_after"] < 0.04 and z.attrs["correlation_before"] > 0.3


def test_the_symmetric_root_is_symmetric_and_the_other_triangular(cov):
    paths, moments = made(cov, replicates=50)
    x = paths.values - moments["mean"].values[:, None]
    for kind in ("symmetric", "cholesky"):
        root = np.linalg.lstsq(x[0], whiten(paths, moments, kind=kind).values[0], rcond=None)[0].T
        np.testing.assert_allclose(root @ cov[0] @ root.T, np.eye(13), atol=1e-9)
        np.testing.assert_allclose(root, root.T if kind == "symmetric" else np.tril(root), atol=1e-9)


def test_deterministic_outputs_are_left_out(cov):
    cov[:, 3, :] = cov[:, :, 3] = 0
    z = whiten(*made(cov, replicates=100))
    assert z.sizes["output"] == 12 and 4.0 not in z["time"] and z.attrs["outputs_left_out"] == 1


def test_what_does_not_fit_is_refused(cov):
    paths, moments = made(cov, replicates=5)
    with pytest.raises(InputError, match="`kind` must be one of"):
        whiten(paths, moments, kind="pca")
    with pytest.raises(InputError, match="at the points of `paths`"):
        whiten(paths, moments.isel(point=[0]))
    with pytest.raises(InputError, match="positive definite"):
        whiten(paths, moments.assign(cov=moments["cov"] - 2 * np.eye(13)))
    with pytest.raises(InputError, match="finite covariance"):
        whiten(paths, moments.assign(cov=moments["cov"] * np.nan))


def test_correlation_leaves_failed_paths_out():
    values = np.random.default_rng(0).normal(size=(1, 30, 3))
    values[0, 4] = np.nan
    wanted = np.corrcoef(np.delete(values[0], 4, axis=0), rowvar=False)
    np.testing.assert_allclose(correlation(values), wanted)
    assert largest_correlation(values[..., :1]) == 0.0
