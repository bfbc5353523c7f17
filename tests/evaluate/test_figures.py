"""Pictures of moments: what stands on the axes is what the dataset holds, whatever its source and shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib import colors
from matplotlib.figure import Figure

import ctmoments as ctm
from ctmoments.evaluate.figures import correlation
from ctmoments.evaluate.style import SHADES, signed_colours


@pytest.fixture(scope="module")
def data():
    problem = ctm.load_problem("sir")
    return ctm.simulate_moments(problem, ctm.sample_design(problem, 6, seed=1), 50, seed=1)


def test_rows_are_points_and_panels_hold_the_numbers(data):
    axes = ctm.plot_moments(data, figure=Figure())
    assert axes.shape == (4, 3)
    for row in range(4):
        mean, cov, corr = axes[row]
        np.testing.assert_array_equal(mean.lines[0].get_ydata(), data["mean"][row])
        np.testing.assert_array_equal(cov.images[0].get_array(), data["cov"][row])
        np.testing.assert_allclose(
            corr.images[0].get_array(), np.corrcoef(data["cov"][row]) * 0 + correlation(data["cov"][row].values)
        )
        title = mean.get_title("left").replace("\N{NO-BREAK SPACE}", " ")
        alpha, beta = data["theta"].values[row]
        assert title == f"alpha = {alpha:.4g}, beta = {beta:.4g}" and mean.get_xlabel() == "time"
        assert corr.images[0].get_clim() == (-1, 1)
    band = axes[0, 0].collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx((data["mean"][0] + np.sqrt(np.diagonal(data["cov"][0]))).max().item())


def test_points_are_chosen_by_position(data):
    axes = ctm.plot_moments(data, point=[5, 0], figure=Figure())
    np.testing.assert_array_equal(axes[0, 0].lines[0].get_ydata(), data["mean"][5])
    assert ctm.plot_moments(data, point=2, figure=Figure()).shape == (1, 3)
    with pytest.raises(ValueError, match="position from 0 to 5, got 6"):
        ctm.plot_moments(data, point=6, figure=Figure())


def test_several_components_have_a_line_each_that_differs_without_colour():
    problem = ctm.load_problem("sir-two-patch")
    moments = ctm.simulate_moments(problem, ctm.sample_design(problem, 1, seed=1), 30, seed=1)
    axes = ctm.plot_moments(moments, figure=Figure())
    lines = axes[0, 0].lines[:2]
    assert len({line.get_linestyle() for line in lines}) == 2 and len({line.get_marker() for line in lines}) == 2
    assert [text.get_text() for text in axes[0, 1].get_xticklabels()] == ["I1", "I2"]


def test_one_path_and_failed_points_draw_without_a_warning(data):
    one = ctm.simulate_moments(replace(ctm.load_problem("sir"), times=[5]), [0.5, 0.002], 1)
    failed = data.isel(point=[0]).copy(deep=True)
    for name in ("mean", "cov", "mean_se", "cov_se"):
        failed[name][:] = np.nan
    for moments in (one, failed):
        figure = Figure()
        ctm.plot_moments(moments, figure=figure)
        figure.canvas.draw()
    assert "no moments" in ctm.plot_moments(failed, figure=Figure())[0, 0].texts[0].get_text()


def test_ink_grows_with_size_so_that_grey_prints_can_be_read():
    red, green, blue = colors.to_rgba_array(signed_colours()(np.arange(SHADES)))[:, :3].T
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    assert light[255] == pytest.approx(1)
    assert (np.diff(light[:256]) > 0).all() and (np.diff(light[255:]) < 0).all()


def test_a_correlation_is_nan_where_nothing_varies():
    assert np.isnan(correlation(np.array([[0.0, 0.0], [0.0, 2.0]]))[0]).all()
