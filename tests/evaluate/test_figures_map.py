"""Pictures of maps, scores and whitening hold the numbers they are about."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot
from matplotlib.figure import Figure

import ctmoments as ctm
from ctmoments.evaluate.figures_map import own_errors, plot_map, plot_whitening


@pytest.fixture(scope="module")
def map_():
    return ctm.learn_map(ctm.load_problem("birth-death"), budget=1500, seed=1)


def test_a_map_shows_its_moments_and_its_own_errors(map_):
    theta = ctm.sample_design(map_.problem, 2, seed=1)
    axes = plot_map(map_, theta, figure=Figure())
    assert axes.shape == (3, 3)
    np.testing.assert_array_equal(axes[1, 0].lines[0].get_ydata(), map_.mean(theta)[1])
    shown = axes[2, 0].collections[0].get_array()
    corner = np.array([[low for low, _ in ((d.low, d.high) for d in map_.problem.space.dimensions.values())]])
    assert np.ravel(shown)[0] == pytest.approx(100 * own_errors(map_, corner)[0][0])
    assert "Spectral" in axes[2, 2].texts[0].get_text()


def test_own_errors_are_relative_standard_errors(map_):
    theta = ctm.sample_design(map_.problem, 4, seed=1)
    pred = map_.predict(theta)
    mean_error, cov_error = own_errors(map_, theta.values)
    expected = np.sqrt((pred["mean_se"] ** 2).sum("output")) / np.sqrt((pred["mean"] ** 2).sum("output"))
    np.testing.assert_allclose(mean_error, expected)
    assert cov_error.shape == (4,) and (cov_error > 0).all()


def test_a_map_draws_itself(map_):
    assert map_.plot().shape == (4, 3)
    pyplot.close("all")


def test_one_parameter_is_a_line():
    problem = ctm.load_problem("birth-death")
    one = ctm.Problem(problem.model, ctm.Space(birth=10, death=(0.2, 0.6)), problem.observe, problem.times)
    axes = plot_map(ctm.learn_map(one, budget=500, seed=1), figure=Figure())
    assert axes[3, 0].get_xlabel() == "death" and len(axes[3, 0].lines) == 1


def test_errors_stand_on_the_axes_in_percent(map_):
    theta = ctm.sample_design(map_.problem, 7, seed=3)
    score = ctm.score_map(map_, ctm.simulate_moments(map_.problem, theta, 200, seed=3))
    axes = ctm.plot_errors(score, figure=Figure())
    np.testing.assert_allclose(axes[1].collections[0].get_array(), 100 * score["rrmse"])
    np.testing.assert_allclose(axes[2].collections[0].get_array(), 100 * score["rfe"])
    with pytest.raises(ValueError, match="rrmse"):
        ctm.plot_errors(xr.Dataset())


def test_whitening_shows_both_correlations(map_):
    theta = ctm.sample_design(map_.problem, 2, seed=1)
    paths = ctm.simulate_paths(map_.problem, theta, 50, seed=1)
    z = ctm.whiten(paths, map_.predict(theta))
    before = np.eye(len(z["output"]))
    axes = plot_whitening(before, z, figure=Figure())
    np.testing.assert_array_equal(axes[0].images[0].get_array(), before)
    np.testing.assert_allclose(np.diag(axes[1].images[0].get_array()), 1)
