from __future__ import annotations

import numpy as np
import pytest
from predict.maps import expansion

from ctmoments.learn.frame import chunks, forward, framed_covariance, without_leverage
from ctmoments.learn.indexset import index_set
from ctmoments.learn.pilot import pilot_frame
from ctmoments.learn.regress import equations_of, solve
from ctmoments.learn.sources import Batch
from ctmoments.predict.covariance import lower


def test_forward_substitution_is_the_inverse():
    rng = np.random.default_rng(0)
    triangle = rng.uniform(0.5, 1.5, (5, 10))
    e = rng.normal(size=(5, 4))
    wanted = np.linalg.solve(lower(triangle), e[:, :, None])[:, :, 0]
    np.testing.assert_allclose(forward(triangle, e), wanted)


@pytest.mark.parametrize("replicates", [1, 2, 7])
def test_targets_of_the_covariance_are_unbiased(replicates):
    """20,000 rows with the true mean as fitted: standard error 1 %; a divisor M instead of M - 1 is 14 % at M = 7."""
    rng = np.random.default_rng(1)
    root = np.tril(rng.normal(size=(3, 3))) + 2 * np.eye(3)
    paths = rng.normal(size=(20_000, replicates, 3)) @ root.T
    mean = paths.mean(axis=1)
    deviation = paths - mean[:, None]
    cov = None if replicates == 1 else np.einsum("nri,nrj->nij", deviation, deviation) / (replicates - 1)
    batch = Batch(rng.random((20_000, 2)), mean, cov, np.full(20_000, float(replicates)))
    one = expansion(1, 0, offset=1.0)
    base = expansion(6, 0, seed=3, offset=np.array([1.0, 0.2, 1.1, 0.1, 0.3, 0.9]))
    b = lower(base.values(batch.unit[:1]))[0]
    size = one.values(batch.unit[:1])[0, 0]
    targets = framed_covariance(batch, 0 * mean, np.arange(3), one, base)
    inverse = np.linalg.inv(b) / size
    wanted = (inverse @ root @ root.T @ inverse.T)[np.tril_indices(3)]
    np.testing.assert_allclose(targets.mean(axis=0), wanted, atol=0.06 * np.abs(wanted).max())


def test_the_frame_makes_the_covariance_nearly_the_identity():
    """Correlation from -0.9 to 0.9 over the box; 8,000 paths: in the frame the correlation is within 0.25 of none."""
    rng = np.random.default_rng(2)
    unit = rng.random((8000, 2))
    z = rng.normal(size=(8000, 2))
    rho = 1.8 * unit[:, 0] - 0.9
    paths = 10 + np.stack([z[:, 0], rho * z[:, 0] + np.sqrt(1 - rho**2) * z[:, 1]], axis=1)
    batch = Batch(unit, paths, None, np.ones(8000))
    frame = pilot_frame(batch, np.arange(2), index_set(2, 60), 15, 15)
    targets, weights = frame.cov_rows(batch, np.full((8000, 2), 10.0))
    for side in (unit[:, 0] < 0.2, unit[:, 0] > 0.8):
        xx, xy, yy = np.average(targets[side], axis=0, weights=weights[side])
        assert abs(xy / np.sqrt(xx * yy)) < 0.25
    assert sum(len(part.unit) for part in chunks(batch, 2)) == 8000


def test_residuals_without_leverage_are_as_noisy_as_the_rows():
    """40 terms through 120 rows of unit variance: residuals alone have about 0.7; 300 fits, standard error 0.005."""
    index, one = index_set(2, 40), expansion(1, 0, offset=0.0, seed=9)
    one = type(one)(
        index=one.index, coefficients=np.zeros_like(one.coefficients) + (np.arange(len(one.index)) == 0)[:, None]
    )
    plain, corrected = [], []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        unit = rng.random((120, 2))
        truth = 3 * np.cos(3 * unit[:, :1] + 2 * unit[:, 1:])
        rows = Batch(unit, truth + rng.normal(size=(120, 1)), None, np.ones(120))
        solution = solve(equations_of(unit, rows.mean, rows.weights, index))
        plain.append(((rows.mean - solution.values(unit)) ** 2).mean())
        corrected.append(((rows.mean - without_leverage(rows, solution, one, rows.weights)) ** 2).mean())
    assert np.mean(plain) < 0.93
    assert abs(np.mean(corrected) - 1) < 0.04
