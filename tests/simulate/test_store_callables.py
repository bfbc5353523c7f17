"""Python callables as sources of paths: the same store, bits that no cut changes, failures that stay at their path."""

from __future__ import annotations

import numpy as np
import pytest

import ctmoments as ctm
from ctmoments.errors import FileError, InputError, ModelError
from ctmoments.model.toml import problem_from_toml
from ctmoments.moments.estimate import simulate_moments, store_moments
from ctmoments.simulate.campaign import campaign_design
from ctmoments.simulate.design import sample_design
from ctmoments.simulate.merge import store_hash
from ctmoments.simulate.paths import simulate_paths
from ctmoments.simulate.status import campaign_status, verify_store
from ctmoments.simulate.streams import Purpose, generator

SPACE = ctm.Space(mean=(1e6, 1e6 + 1), spread=(0.5, 2), shift=3)


def normal(theta, rng):
    """Two correlated normal outputs, far from 0: sums of squares would lose nine digits."""
    a, b = rng.normal(size=2)
    return [theta["mean"] + theta["shift"] + theta["spread"] * a, theta["mean"] + theta["spread"] * (a + b)]


def normal_rows(theta, seeds):
    assert theta.shape == (len(seeds), 2) and seeds.dtype == np.uint64
    draws = np.stack([np.random.default_rng(seed).normal(size=2) for seed in seeds.tolist()])
    return theta[:, :1] + theta[:, 1:] * draws


def fails_sometimes(theta, rng):
    u = rng.random()
    if u < 0.1:
        raise ValueError("too small")
    return [u, np.nan] if u > 0.9 else [u] if u > 0.8 else [u, u]


PROBLEM = ctm.Problem.from_callable(normal, SPACE, ["a", "b"])
ROWS = ctm.Problem.from_callable(normal_rows, SPACE, {"a": [1, 2]}, vectorised=True)
DESIGN = sample_design(PROBLEM, 4, seed=1)


def simulate(path, problem=PROBLEM, theta=DESIGN, replicates=150, **settings):
    return simulate_moments(problem, theta, replicates, seed=5, store=path, **({"block_paths": 70} | settings))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "campaign.sqlite"


def test_moments_are_those_of_the_paths():
    data = simulate_moments(PROBLEM, DESIGN, 150, seed=5)
    paths = simulate_paths(PROBLEM, DESIGN, 150, seed=5).values
    np.testing.assert_allclose(data["mean"], paths.mean(axis=1), rtol=1e-14)
    for row in range(4):
        np.testing.assert_allclose(data["cov"][row], np.cov(paths[row].T), rtol=1e-8)
    assert (
        data.attrs["kernel"] == "callable" and data["status_count"].sel(status="finished").values.tolist() == [150] * 4
    )
    one = simulate_paths(PROBLEM, DESIGN[2:3], 1, seed=5, first_replicate=149)
    assert one.values[0, 0].tolist() == paths[2, 149].tolist()
    theta = {"mean": float(DESIGN[2, 0]), "spread": float(DESIGN[2, 1]), "shift": 3.0}
    assert paths[2, 149].tolist() == normal(theta, generator(5, Purpose.PATHS, 2, 149))


def test_standard_errors_are_those_of_normal_outputs():
    """Mean of 400 points; relative error of a wrong formula would be 10 % or more, false alarm below 1e-6."""
    theta = np.tile([1e6, 1.0], (300, 1))
    data = simulate_moments(ROWS, theta, 64, seed=5)
    spread = data["cov"][:, 0, 0].values.std(ddof=1)
    assert np.sqrt((data["cov_se"][:, 0, 0].values ** 2).mean()) == pytest.approx(spread, rel=0.2)
    assert spread == pytest.approx(np.sqrt(2 / 63), rel=0.2)


@pytest.mark.parametrize("problem", [PROBLEM, ROWS])
@pytest.mark.parametrize("replicates", [1, 5, 64, 150])
def test_a_store_gives_the_bits_of_memory(problem, replicates, path):
    data = simulate(path, problem, replicates=replicates)
    assert data.identical(simulate_moments(problem, DESIGN, replicates, seed=5))
    assert verify_store(path, problem=problem).ok


def test_bits_do_not_depend_on_cuts_or_extensions(tmp_path):
    hashes = set()
    for block_paths in (1, 70, 200, None):
        simulate(tmp_path / f"{block_paths}.sqlite", block_paths=block_paths, replicates=1200)
        hashes.add(store_hash(tmp_path / f"{block_paths}.sqlite"))
    path = tmp_path / "extended.sqlite"
    for theta, replicates in ((DESIGN[:2], 3), (DESIGN[:2], 70), (DESIGN, 100), (DESIGN, 1200)):
        theta = theta.drop_attrs() if len(theta) < 4 else DESIGN
        simulate(path, theta=theta, replicates=replicates, resume=True)
    hashes.add(store_hash(path))
    assert len(hashes) == 1


def test_failures_are_counted_at_their_point_and_the_first_traceback_is_kept(path):
    problem = ctm.Problem.from_callable(fails_sometimes, SPACE, ["a", "b"])
    data = simulate(path, problem, on_failure="drop")
    assert data.identical(simulate_moments(problem, DESIGN, 150, seed=5, on_failure="drop"))
    draws = np.array([[generator(5, Purpose.PATHS, p, r).random() for r in range(150)] for p in range(4)])
    good = (draws >= 0.1) & (draws <= 0.8)
    assert data["status_count"].sel(status="call_failed").values.tolist() == (~good).sum(axis=1).tolist()
    assert data["replicates"].values.tolist() == good.sum(axis=1).tolist()
    np.testing.assert_allclose(data["mean"][:, 0], [u[g].mean() for u, g in zip(draws, good, strict=True)])
    first = draws[0][~good[0]][0]
    wanted = "too small" if first < 0.1 else "must return finite" if first > 0.9 else "must return shape (2,), got (1,)"
    assert wanted in data.attrs["first_failure"] and wanted in str(campaign_status(path))
    assert np.isnan(store_moments(path)["mean"]).all()


def test_one_bad_row_does_not_spoil_its_batch():
    def simulate_rows(theta, seeds):
        if (seeds % 7 == 0).any():
            raise RuntimeError("a seed that I do not like")
        return np.ones((len(seeds), 1))

    problem = ctm.Problem.from_callable(simulate_rows, SPACE, ["a"], vectorised=True)
    data = simulate_moments(problem, DESIGN, 100, seed=5)
    failed = data["status_count"].sel(status="call_failed").values
    assert (0 < failed).all() and (failed < 40).all() and "do not like" in data.attrs["first_failure"]


def test_a_campaign_without_its_callable_can_be_read_but_not_run(path):
    data = simulate(path)
    assert store_moments(path).identical(data) and campaign_design(path).identical(DESIGN)
    again = problem_from_toml(data.attrs["problem"])
    assert again.output_components == ("a", "b") and again.space == SPACE and again.to_toml() == PROBLEM.to_toml()
    with pytest.raises(InputError, match=r"'normal' is a Python callable, which no file can hold"):
        simulate_moments(again, DESIGN, 2)
    with pytest.raises(FileError, match=r"holds callable.name = 'normal', asked was 'other'"):
        other = ctm.Problem.from_callable(normal, SPACE, ["a", "b"], name="other")
        simulate(path, other, resume=True)
    with pytest.raises(FileError, match=r"holds callable.outputs\[1\] = 'b', asked was 'c'"):
        simulate(path, ctm.Problem.from_callable(normal, SPACE, ["a", "c"]), resume=True)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"simulate": 3}, "`simulate` must be a function, got 3"),
        ({"space": {"k": 1}}, "`space` must be a Space"),
        ({"outputs": "a"}, "`outputs` must be a list of names, or name -> times, got 'a'"),
        ({"outputs": []}, "`outputs` must be different names"),
        ({"outputs": ["a", "a"]}, "`outputs` must be different names"),
        ({"outputs": [("a", "b")]}, "`outputs` must be names, or pairs of name and time"),
        ({"outputs": {"a": [np.inf]}}, "times must be finite"),
        ({"vectorised": 1}, "`vectorised` must be True or False, got 1"),
    ],
)
def test_refusals(arguments, match):
    with pytest.raises(ModelError, match=match):
        ctm.Problem.from_callable(**({"simulate": normal, "space": SPACE, "outputs": ["a"]} | arguments))
