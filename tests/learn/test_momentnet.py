"""MomentNet: losses without bias, honest folds, designs, tables; small and fast here, the figures marked."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import ctmoments as ctm
from ctmoments.errors import InputError
from ctmoments.learn.members import product_error, rows_of
from ctmoments.learn.momentnet import MomentNet, fit_momentnet, learn_momentnet, tilted_design
from ctmoments.learn.noiseframe import noise_frame
from ctmoments.predict.mapfile import load_map

TINY = MomentNet(members=2, hidden=(16, 16), steps=150, batch=128)


@pytest.fixture(scope="module")
def sir():
    return ctm.load_problem("sir")


@pytest.fixture(scope="module")
def small(sir):
    return learn_momentnet(sir, 4000, TINY, seed=3)


def test_a_small_map_is_near_the_truth_and_valid(sir, small, shared_data):
    # errors of these settings: mean 4 %, covariance 20 %; twice that would be a defect
    exact = np.load(shared_data / "sir_exact_1000.npz")
    mean, cov = small.mean(exact["theta"]), small.covariance(exact["theta"])
    rrmse = np.linalg.norm(mean - exact["mean"], axis=1) / np.linalg.norm(exact["mean"], axis=1)
    rfe = np.linalg.norm(cov - exact["cov"], axis=(1, 2)) / np.linalg.norm(exact["cov"], axis=(1, 2))
    assert rrmse.mean() < 0.08
    assert rfe.mean() < 0.4
    assert np.linalg.eigvalsh(cov).min() > -1e-9 * np.abs(cov).max()


def test_same_seed_same_bits_and_back_from_a_file(sir, small, tmp_path):
    theta = tilted_design(sir, 20, TINY, None, 1)
    again = learn_momentnet(sir, 4000, TINY, seed=3, threads=1)
    assert np.array_equal(again.mean(theta), small.mean(theta))
    assert np.array_equal(again.covariance(theta), small.covariance(theta))
    small.save(tmp_path / "net.ctm")
    loaded = load_map(tmp_path / "net.ctm")
    assert np.array_equal(loaded.covariance(theta), small.covariance(theta))
    assert np.array_equal(loaded.predict(theta)["cov_se"], small.predict(theta)["cov_se"])


def test_table_and_ensemble_say_the_same(sir, small):
    ensemble = learn_momentnet(sir, 4000, dataclasses.replace(TINY, table=False), seed=3)
    theta = tilted_design(sir, 300, TINY, None, 2)
    one, other = ensemble.predict(theta), small.predict(theta)
    assert small.card["evaluated"] == "table"
    for name in ("mean", "cov"):
        far = np.abs(one[name].values - other[name].values)
        assert np.median(far / one[f"{name}_se"].values) < 0.1
        assert 0.3 < np.median(other[f"{name}_se"].values / one[f"{name}_se"].values) < 3


def test_the_loss_of_the_covariance_is_smallest_at_the_second_moment():
    # ‖C - rrᵀ‖² averaged over paths is smallest at their mean of rrᵀ, exactly
    rng = np.random.default_rng(0)
    root = np.array([[1.0, 0, 0], [0.5, 1, 0], [0.2, -0.3, 0.7]])
    residual = rng.exponential(size=(50, 3)) @ root.T
    best = np.linalg.cholesky(residual.T @ residual / len(residual))
    i, j = np.tril_indices(3)

    def loss(factor: np.ndarray) -> float:
        base = np.broadcast_to(factor[i, j], (50, 6)).astype(np.float32)
        return float(
            product_error(np.zeros((50, 6), np.float32), (residual.astype(np.float32), base, np.ones((50, 1))))
        )

    direct = np.mean([np.sum((best @ best.T - np.outer(r, r)) ** 2) - np.sum(np.outer(r, r) ** 2) for r in residual])
    assert loss(best) == pytest.approx(direct, rel=1e-4)
    for _ in range(20):
        assert loss(best + 0.05 * np.tril(rng.normal(size=(3, 3)))) > loss(best)


def test_replicates_of_a_point_share_a_fold_and_failed_paths_are_left_out(sir):
    paths = ctm.simulate_paths(sir, tilted_design(sir, 30, TINY, None, 1), 4, seed=1)
    paths[3, 2] = np.nan
    rows = rows_of(sir, paths, 5, 0)
    assert len(rows.unit) == 119
    assert all(len(set(rows.fold[(rows.unit == unit).all(axis=1)])) == 1 for unit in rows.unit)
    for fold in range(5):
        assert not (rows.fold[rows.outside(fold)] == fold).any()
    assert len({len(rows.outside(fold)) for fold in range(5)}) == 1


def test_the_design_is_denser_where_paths_are_noisy(sir):
    frame = noise_frame(sir, np.arange(13))
    assert frame is not None
    plain = tilted_design(sir, 2000, dataclasses.replace(TINY, tilt=0.0, edge=0.0), frame, 1)
    tilted = tilted_design(sir, 2000, dataclasses.replace(TINY, tilt=1.0, edge=0.0), frame, 1)
    assert sir.space.contains(tilted).all()
    noise = [frame.relative_noise(sir.space.to_unit(theta)).mean() for theta in (plain, tilted)]
    assert noise[1] > 1.15 * noise[0]
    to_faces = sir.space.to_unit(tilted_design(sir, 2000, dataclasses.replace(TINY, tilt=0.0, edge=1.0), None, 1))
    assert np.mean(to_faces < 0.146447) == pytest.approx(0.25, abs=0.02)  # arcsine: sin²(π/8) is the quartile


def test_without_linear_noise_the_frame_comes_from_paths(sir):
    paths = ctm.simulate_paths(sir, tilted_design(sir, 2000, TINY, None, 1), 1, seed=1)
    fitted = fit_momentnet(sir, paths, dataclasses.replace(TINY, noise=False), seed=1)
    assert fitted.card["frame"] == "paths"
    exact = ctm.approximate_moments(sir, [0.3, 0.0025])["mean"].values
    assert np.linalg.norm(fitted.mean([0.3, 0.0025]) - exact) < 0.2 * np.linalg.norm(exact)


def test_fit_replays_the_paths_that_the_data_name(sir):
    theta = tilted_design(sir, 300, TINY, None, 1)
    data = ctm.simulate_moments(sir, theta, 3, seed=5)
    replayed = TINY.fit(sir, data, 1)
    direct = fit_momentnet(sir, ctm.simulate_paths(sir, theta, 3, seed=5), TINY, 1)
    assert np.array_equal(replayed.mean(theta), direct.mean(theta))
    with pytest.raises(InputError, match="must be simulated"):
        TINY.fit(sir, ctm.approximate_moments(sir, theta), 1)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="`members` must be at least 2"):
        MomentNet(members=1)
    with pytest.raises(InputError, match="`edge` must lie in"):
        MomentNet(edge=2)


def test_a_simulator_of_your_own_is_learned():
    problem = ctm.Problem.from_callable(
        lambda theta, rng: [rng.poisson(theta["k"]), 1.0 + rng.poisson(2 * theta["k"])], ctm.Space(k=(1, 9)), ["X", "Y"]
    )
    fitted = ctm.learn_map(problem, budget=3000, method=dataclasses.replace(TINY, members=4), seed=1)
    assert fitted.card["frame"] == "paths"
    assert fitted.card["paths"] == 3000
    # standard errors about 0.1 and 0.3: these are five of them
    np.testing.assert_allclose(fitted.mean([4.0]), [[4, 9]], atol=0.6)
    np.testing.assert_allclose(fitted.covariance([4.0]), [[[4, 0], [0, 8]]], atol=2.0)


@pytest.mark.parametrize("name", ["sir-two-patch"])
def test_five_parameters_keep_their_ensemble(name: str):
    problem = ctm.load_problem(name)
    fitted = learn_momentnet(problem, 2000, TINY, seed=1)
    theta = tilted_design(problem, 200, TINY, None, 4)
    pred = fitted.predict(theta)
    assert fitted.card["evaluated"] == "ensemble"
    assert np.linalg.eigvalsh(pred["cov"].values).min() > -1e-9 * float(np.abs(pred["cov"]).max())
    assert np.isfinite(pred["cov_se"]).all()


def test_outputs_without_variance_are_exact(sir):
    problem = ctm.Problem(sir.model, sir.space, observe=["I", "S + I + R"], times=[0, 2])
    pred = learn_momentnet(problem, 2000, TINY, seed=1).predict([0.5, 0.002])
    np.testing.assert_allclose(pred["mean"][0, [0, 2, 3]], [3, 766, 766], rtol=1e-6)
    assert not pred["cov"].values[0, [0, 2, 3]].any()
    assert (pred["mean_se"][0, [0, 2, 3]] < 1e-6).all()
