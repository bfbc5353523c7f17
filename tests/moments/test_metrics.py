from __future__ import annotations

import numpy as np
import pytest
from predict.maps import sir_map

from ctmoments.data import moments_dataset
from ctmoments.errors import InputError
from ctmoments.model.library import load_problem
from ctmoments.model.theta import as_theta
from ctmoments.moments.metrics import score_map


def dataset(mean, cov, mean_se=0.0, cov_se=0.0):
    problem = load_problem("sir")
    theta = as_theta(problem, [[0.2, 0.002], [0.5, 0.003]][: len(mean)])
    return moments_dataset(
        problem, theta, mean, cov, np.full(mean.shape, mean_se), np.full(cov.shape, cov_se), source="exact"
    )


@pytest.fixture
def moments():
    rng = np.random.default_rng(0)
    mean = rng.uniform(1, 10, (2, 13))
    root = rng.normal(size=(2, 13, 13))
    return mean, root @ root.swapaxes(1, 2)


def test_the_papers_errors_by_their_definition(moments):
    mean, cov = moments
    off = np.linspace(-1, 1, 13)
    score = score_map(dataset(mean + off, cov + np.multiply.outer(off, off)), dataset(mean, cov))
    for point in range(2):
        assert score["rrmse"][point] == pytest.approx(np.sqrt((off**2).sum()) / np.sqrt((mean[point] ** 2).sum()))
        assert score["rfe"][point] == pytest.approx((off**2).sum() / np.sqrt((cov[point] ** 2).sum()))
        assert score["mean_relative_error"][point, 0] == pytest.approx(1 / mean[point, 0])
        wanted = abs(off[0] * off[1]) / abs(cov[point, 0, 1])
        assert score["cov_relative_error"][point, 0, 1] == pytest.approx(wanted)
    assert score.attrs["rrmse_mean"] == pytest.approx(float(score["rrmse"].mean()))
    assert score.attrs["rfe_median"] == pytest.approx(float(score["rfe"].median()))
    assert score.attrs["rrmse_p95"] == pytest.approx(float(np.percentile(score["rrmse"], 95)))


def test_shares_above(moments):
    mean, cov = moments
    score = score_map(dataset(mean * [[1.15], [1.25]], cov * 1.05), dataset(mean, cov)).attrs
    assert (score["rrmse_above_10"], score["rrmse_above_20"]) == (1.0, 0.5)
    assert (score["rfe_above_10"], score["rfe_mean"]) == (0.0, pytest.approx(0.05))


def test_a_zero_reference_is_held_by_epsilon(moments):
    mean, cov = moments
    score = score_map(dataset(mean, cov), dataset(mean * 0, cov))
    assert np.isfinite(score["rrmse"]).all() and (score["rrmse"] > 1e12).all()


def test_points_without_moments_are_counted_not_hidden(moments):
    mean, cov = moments
    cov[1] = np.nan
    score = score_map(dataset(mean, cov), dataset(mean, cov)).attrs
    assert (score["points"], score["points_left_out"], score["rfe_mean"]) == (1, 1, 0.0)


def test_the_noise_of_the_reference_is_told_and_enters_coverage(moments):
    mean, cov = moments
    noise = np.random.default_rng(1).normal(size=(2, 13))
    score = score_map(dataset(mean + noise, cov, 1e-9, 1e-9), dataset(mean, cov, 1.0, 1.0)).attrs
    wanted = np.mean(np.sqrt(13) / np.linalg.norm(mean, axis=1))
    assert score["reference_rrmse_noise"] == pytest.approx(wanted)
    assert score["mean_coverage_90"] == pytest.approx(np.mean(np.abs(noise) < 1.6448536))
    assert score["cov_coverage_90"] == 1.0


def test_a_map_is_scored_where_the_reference_is():
    m = sir_map()
    theta = np.array([[0.2, 0.002], [0.5, 0.003]])
    score = score_map(m, m.predict(theta))
    assert score.attrs["rrmse_mean"] == 0.0 and score.attrs["rfe_mean"] == 0.0


def test_references_that_do_not_fit_are_refused(moments):
    mean, cov = moments
    good = dataset(mean, cov)
    with pytest.raises(InputError, match="moments dataset with 'cov'"):
        score_map(good, good.drop_vars("cov"))
    with pytest.raises(InputError, match="same points and outputs"):
        score_map(dataset(mean[:1], cov[:1]), good)
    with pytest.raises(InputError, match="same parameter values"):
        score_map(good.assign(theta=good["theta"] * 1.1), good)
    with pytest.raises(InputError, match="coordinate 'time' differs"):
        score_map(good.assign_coords(time=good["time"] + 1), good)
