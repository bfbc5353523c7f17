from __future__ import annotations

import numpy as np
import pytest

from ctmoments.data import moments_dataset
from ctmoments.errors import InputError
from ctmoments.learn.maps import exact_nodes, fit_map, learn_map
from ctmoments.learn.spectral import Spectral
from ctmoments.model.library import load_problem
from ctmoments.model.model import Model
from ctmoments.model.problem import Problem
from ctmoments.model.space import Integer, Log, Space
from ctmoments.moments.estimate import simulate_moments
from ctmoments.moments.metrics import score_map
from ctmoments.predict.mapfile import load_map
from ctmoments.simulate.design import sample_design

DEATH = Model({"X": 40}, ["g"], ["X -> 0 : g*X"])


def death_problem(times=(0, 1, 2)) -> Problem:
    return Problem(DEATH, Space(g=(0.2, 1.5)), "X", times)


def death_moments(problem: Problem, points: int = 50):
    """Binomial thinning in closed form: Cov(X_s, X_t) = 40 p_t (1 - p_s), s <= t."""
    theta = sample_design(problem, points, seed=77)
    p = np.exp(-theta.values * problem.output_times)
    i, j = np.indices((p.shape[1], p.shape[1]))
    cov = 40 * np.minimum(p[:, i], p[:, j]) * (1 - np.maximum(p[:, i], p[:, j]))
    return moments_dataset(problem, theta, 40 * p, cov, 0 * p, 0 * cov, source="exact")


@pytest.fixture(scope="module")
def learned():
    return learn_map(death_problem(), 20_000, seed=1)


def test_a_map_from_paths_is_right_and_says_what_it_cost(learned):
    """Seed fixed. 19,600 paths, some 10 smooth terms: mean 0.15 %, covariance 3 to 6 %."""
    score = score_map(learned, death_moments(learned.problem)).attrs
    assert score["rrmse_mean"] < 0.005 and score["rfe_mean"] < 0.08
    card = learned.card
    assert card["paths"] == 20_000 and 19_500 < card["training_paths"] <= 19_600  # as many at each point
    assert card["events"] > 20_000 and card["failed_paths"] == 0 and card["method"] == "Spectral"
    assert 0.8 < card["validation"]["whitened_variance"] < 1.2


def test_time_zero_has_no_variance(learned):
    pred = learned.predict([0.7])
    assert (pred["cov"].values[0, 0] == 0).all() and (pred["cov_se"].values[0, 0] == 0).all()
    assert pred["mean"].values[0, 0] == pytest.approx(40, rel=1e-4)
    assert (np.diagonal(pred["cov"].values[0])[1:] > 0).all()


def test_same_seed_same_map_whatever_the_threads(learned, tmp_path):
    again = learn_map(death_problem(), 20_000, seed=1, threads=1)
    theta = np.linspace(0.2, 1.5, 7)
    np.testing.assert_array_equal(again.covariance(theta), learned.covariance(theta))
    other = learn_map(death_problem(), 20_000, seed=2)
    assert (other.mean(theta) != learned.mean(theta)).any()
    learned.save(tmp_path / "m.ctm")
    np.testing.assert_array_equal(load_map(tmp_path / "m.ctm").covariance(theta), learned.covariance(theta))


@pytest.mark.parametrize("replicates", [2, 50])
def test_moments_of_replicates_teach_too(replicates):
    problem = death_problem((1, 2))
    theta = sample_design(problem, 10_000 // replicates, seed=3)
    data = simulate_moments(problem, theta, replicates, seed=3)
    m = fit_map(data)
    score = score_map(m, death_moments(problem)).attrs
    assert score["rrmse_mean"] < 0.02 and score["rfe_mean"] < 0.1
    assert m.card["paths"] == 10_000


def test_exact_labels_are_learned_to_rounding():
    problem = death_problem()
    m = learn_map(problem, labels="exact")
    score = score_map(m, death_moments(problem)).attrs
    assert score["rrmse_mean"] < 1e-6 and score["rfe_mean"] < 1e-5
    assert m.card["paths"] == 0 and m.card["labels"] == "exact"


def test_a_design_can_be_given():
    m = learn_map(death_problem((1,)), points=200, replicates=20, seed=1)
    assert m.card["training_paths"] + m.card["validation"]["paths"] >= 4000


def test_nodes_of_whole_numbers_do_not_repeat():
    model = Model({"X": "n"}, ["n", "g"], ["X -> 0 : g*X"])
    problem = Problem(model, Space(n=Integer(1, 5), g=Log(0.1, 1)), "X", [1])
    nodes = exact_nodes(problem, Spectral())
    assert len(np.unique(nodes, axis=0)) == len(nodes) and set(nodes[:, 0]) == {1, 2, 3, 4, 5}


def test_covariances_are_definite_at_corners_and_at_random(learned):
    theta = np.concatenate([[0.2, 1.5], 0.2 + 1.3 * np.random.default_rng(0).random(5000)])
    values = np.linalg.eigvalsh(learned.covariance(theta)[:, 1:, 1:])
    assert values.min() > 0


def test_what_does_not_fit_is_refused():
    problem = death_problem()
    with pytest.raises(InputError, match="`budget` must be given"):
        learn_map(problem)
    with pytest.raises(InputError, match="`budget` must be a whole number from 100"):
        learn_map(problem, 10)
    with pytest.raises(InputError, match="`budget` must cover points \\* replicates = 200"):
        learn_map(problem, 100, points=20, replicates=10)
    with pytest.raises(InputError, match="`labels` must be one of"):
        learn_map(problem, 1000, labels="guess")
    with pytest.raises(InputError, match="`method` must be a method"):
        learn_map(problem, 1000, method="spectral")
    with pytest.raises(InputError, match="`terms` must be a whole number"):
        Spectral(terms=0)
    with pytest.raises(InputError, match="moments dataset with its problem"):
        fit_map(None)
    with pytest.raises(InputError, match="`validation` must be None"):
        fit_map(death_moments(problem), validation=death_moments(problem))


@pytest.mark.slow
def test_the_sir_is_learned_as_well_as_measured(shared_data):
    """Three seeds at 90,000 paths: 0.75 % and 5.2 % measured; the issue asks 0.85 and 6."""
    problem = load_problem("sir")
    with np.load(shared_data / "sir_exact_1000.npz") as file:
        zero = np.zeros_like(file["cov"])
        reference = moments_dataset(
            problem, sample_design(problem, 1000).copy(data=file["theta"]), file["mean"], file["cov"],
            np.zeros_like(file["mean"]), zero, source="exact",
        )  # fmt: skip
    scores = [score_map(learn_map(problem, 90_000, seed=seed), reference).attrs for seed in (1, 2, 3)]
    assert np.mean([score["rrmse_mean"] for score in scores]) < 0.0085
    assert np.mean([score["rfe_mean"] for score in scores]) < 0.06
