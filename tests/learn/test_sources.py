"""Layouts, designs, rows: what a fit is given; stores that a killed run goes on from."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ctmoments as ctm
from ctmoments.errors import FileError, InputError
from ctmoments.learn.scatter import lay_out, scatter
from ctmoments.learn.sources import path_source
from ctmoments.model.space import Integer, Space

SPACE = Space(a=(0, 1), b=(2, 3))


@pytest.mark.parametrize("paths", [100, 1500, 98_000, 10_000_000])
@pytest.mark.parametrize(("terms", "outputs"), [(41, 1), (231, 13), (231, 100), (1000, 20)])
def test_layouts_spend_what_there_is_and_never_more(paths, terms, outputs):
    points, replicates = lay_out(paths, terms, outputs)
    assert points >= 2 and replicates >= 2
    assert paths - replicates < points * replicates <= paths
    if paths > 1_000_000:
        assert points >= 4 * terms  # a regression needs that many places, however wide its rows


def test_a_design_is_denser_at_the_faces_and_where_asked():
    plain = SPACE.to_unit(scatter(SPACE, 4000, 1, 0, edge=0.0))
    edged = SPACE.to_unit(scatter(SPACE, 4000, 1, 0, edge=1.0))
    assert np.mean(plain < 0.146447) == pytest.approx(0.146, abs=0.01)
    assert np.mean(edged < 0.146447) == pytest.approx(0.25, abs=0.01)  # arcsine: sin²(π/8) is the quartile
    left = SPACE.to_unit(scatter(SPACE, 4000, 1, 0, lambda unit: np.where(unit[:, 0] < 0.5, 2.0, 1.0), edge=0.0))
    assert np.mean(left[:, 0] < 0.5) == pytest.approx(2 / 3, abs=0.03)
    assert np.array_equal(scatter(SPACE, 50, 1, 0), scatter(SPACE, 50, 1, 0))
    assert not np.array_equal(scatter(SPACE, 50, 1, 0), scatter(SPACE, 50, 2, 0))


def test_halves_of_a_design_cover_the_box_alike():
    """A Sobol sequence in its own order has its even points on one side."""
    unit = SPACE.to_unit(scatter(SPACE, 1000, 3, 0))
    assert abs(unit[::2].mean(axis=0) - unit[1::2].mean(axis=0)).max() < 0.08  # three standard errors


def test_whole_numbers_stay_whole():
    values = scatter(Space(n=Integer(1, 5), g=(0, 1)), 200, 1, 0)
    assert set(values[:, 0]) == {1, 2, 3, 4, 5}


def test_rows_do_not_depend_on_a_store(tmp_path):
    problem = ctm.load_problem("birth-death")

    def flat(_):
        return lambda unit: 1.0 + unit[:, 0]

    plain = path_source(problem, 3000, 40, seed=1)
    theta, rows, spent = plain.rows(flat)
    stored = path_source(problem, 3000, 40, seed=1, store=tmp_path / "s.sqlite")
    for _ in range(2):  # made, then read
        other, same, cost = stored.rows(flat)
        assert np.array_equal(other.values, theta.values) and cost == spent
        assert np.array_equal(same.mean, rows.mean) and np.array_equal(same.cov, rows.cov)
    more, cost = stored.simulate(theta, 2 * stored.replicates)
    assert cost.paths == 2 * spent.paths and (more.replicates == 2 * rows.replicates).all()
    with pytest.raises(FileError, match="holds replicates"):
        stored.rows(flat)
    with pytest.raises(FileError, match="Take another store"):
        path_source(problem, 9000, 400, seed=1, store=tmp_path / "s.sqlite").rows(flat)


def test_the_budget_grows_to_the_error_that_is_asked_for(tmp_path):
    problem = ctm.load_problem("birth-death")
    method = ctm.Spectral(terms=40)
    m = ctm.learn_map(problem, budget=2000, target_error=0.02, method=method, seed=1, store=tmp_path / "s.sqlite")
    rounds = m.card["rounds"]
    assert len(rounds) > 1 and rounds[0]["expected_rrmse"] > 0.02 >= rounds[-1]["expected_rrmse"]
    assert all(later["paths"] % early["paths"] == 0 for early, later in itertools.pairwise(rounds))
    again = ctm.learn_map(problem, budget=2000, target_error=0.02, method=method, seed=1)  # without a store
    theta = ctm.sample_design(problem, 9, seed=2)
    assert np.array_equal(again.mean(theta), m.mean(theta)) and again.card["rounds"] == rounds
    resumed = ctm.learn_map(problem, budget=2000, target_error=0.02, method=method, seed=1, store=tmp_path / "s.sqlite")
    assert np.array_equal(resumed.covariance(theta), m.covariance(theta))
    assert resumed.card["rounds"] == rounds[-1:] and resumed.card["paths"] == m.card["paths"]


def test_an_error_out_of_reach_is_told():
    problem = ctm.load_problem("birth-death")
    with pytest.warns(UserWarning, match="`target_error` was not reached with .* of at most 3,000"):
        m = ctm.learn_map(problem, target_error=(0.001, 0.01), max_budget=3000, method=ctm.Spectral(terms=40), seed=1)
    assert m.card["paths"] <= 3000
    for wrong in (0, 2, "much", (0.1, 0.1, 0.1)):
        with pytest.raises(InputError, match="`target_error` must be a share"):
            ctm.learn_map(problem, target_error=wrong)
    with pytest.raises(InputError, match="`max_budget` must come with"):
        ctm.learn_map(problem, budget=1000, max_budget=3000)
    with pytest.raises(InputError, match="`target_error` needs Spectral"):
        ctm.learn_map(problem, budget=1000, target_error=0.1, method=ctm.MomentNet())
    with pytest.raises(InputError, match="`store` needs Spectral"):
        ctm.learn_map(problem, points=20, replicates=20, store="x.sqlite")
