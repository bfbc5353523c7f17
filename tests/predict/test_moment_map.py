from __future__ import annotations

import warnings

import numpy as np
import pytest
from predict.maps import degrees, expansion, sir_map

from ctmoments.errors import InputError, ThetaError
from ctmoments.model.model import Model
from ctmoments.model.problem import Problem
from ctmoments.model.space import Integer, Log, Space
from ctmoments.predict.chebyshev import Chebyshev, basis
from ctmoments.predict.combine import Average, Scaled
from ctmoments.predict.covariance import (
    FLOOR,
    FactorCovariance,
    MatrixCovariance,
    cholesky_columns,
    factor_of,
    floor_eigenvalues,
    symmetric,
)
from ctmoments.predict.moment_map import MomentMap

FORMS = ("matrix", "relative", "factor")


def inside(count: int, seed: int = 0) -> np.ndarray:
    return sir_map().problem.space.from_unit(np.random.default_rng(seed).random((count, 2)))


def test_basis_is_chebyshevs():
    unit = np.random.default_rng(0).random((7, 2))
    index = degrees(6)
    x = 2 * unit - 1
    wanted = np.stack([np.cos(a * np.arccos(x[:, 0])) * np.cos(b * np.arccos(x[:, 1])) for a, b in index])
    np.testing.assert_allclose(basis(unit, index), wanted, atol=1e-13)


@pytest.mark.parametrize("form", FORMS)
def test_predict_agrees_with_the_plain_functions_and_factors_multiply(form):
    m, theta = sir_map(form), inside(5)
    pred = m.predict(theta)
    np.testing.assert_array_equal(pred["mean"], m.mean(theta))
    np.testing.assert_array_equal(pred["cov"], m.covariance(theta))
    factor = m.factor(theta)
    assert (np.diagonal(factor, axis1=1, axis2=2) > 0).all()
    np.testing.assert_array_equal(factor, np.tril(factor))
    np.testing.assert_allclose(factor @ factor.swapaxes(1, 2), m.covariance(theta), rtol=1e-12, atol=1e-12)
    assert pred.attrs["source"] == "predicted" and pred["in_domain"].all()


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_finite_differences(form):
    m, theta = sir_map(form), inside(3)
    gradient = m.gradient(theta)
    for column, width in enumerate(m.problem.space.high - m.problem.space.low):
        step = np.zeros(2)
        step[column] = 1e-6 * width
        for function, got in ((m.mean, gradient.mean), (m.covariance, gradient.cov)):
            wanted = (function(theta + step) - function(theta - step)) / (2 * step[column])
            np.testing.assert_allclose(got[..., column], wanted, rtol=1e-6, atol=1e-7 * np.abs(wanted).max())


def test_results_do_not_depend_on_chunks():
    m, theta = sir_map(), inside(5000)
    whole = m.covariance(theta)
    np.testing.assert_allclose(whole[[0, 4999]], m.covariance(theta[[0, 4999]]), rtol=1e-12)


def test_outside_the_box_a_map_says_so_answers_from_its_edge_and_is_less_sure():
    m = sir_map()
    edge, far = np.array([[0.9, 0.002]]), np.array([[1.7, 0.002]])
    with pytest.warns(UserWarning, match="1 of 1 values lie outside the box"):
        pred = m.predict(far)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near = m.predict(edge)
        gone = m.predict(far, on_outside="nan")
    np.testing.assert_array_equal(pred["mean"], near["mean"])
    assert not pred["in_domain"] and near["in_domain"]
    assert (pred["mean_se"] > 3 * near["mean_se"]).all() and (pred["cov_se"] > 3 * near["cov_se"]).all()
    assert gone["mean"].isnull().all() and gone["cov"].isnull().all()
    assert (m.gradient(far).mean[..., 0] == 0).all() and (m.gradient(far).mean[..., 1] != 0).any()
    with pytest.raises(ThetaError, match="every value must lie in"):
        m.predict(far, on_outside="raise")
    with pytest.raises(InputError, match="on_outside"):
        m.predict(edge, on_outside="ignore")


def test_every_form_of_theta_is_taken():
    m = sir_map()
    wanted = m.mean(np.array([[0.5, 0.002]]))
    for theta in ([0.5, 0.002], {"beta": 0.002, "alpha": 0.5}, np.array([0.5, 0.002])):
        np.testing.assert_array_equal(m.mean(theta), wanted)
    with pytest.raises(ThetaError, match="finite"):
        m.mean(np.array([[np.nan, 0.002]]))


def test_flooring_is_rare_local_and_positive_definite():
    good, bad = np.diag([1.0, 2.0, 3.0]), np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    matrices = np.stack([good, bad])
    factor, fine = cholesky_columns(matrices)
    assert fine.tolist() == [True, False]
    np.testing.assert_allclose(factor[0], np.linalg.cholesky(good))
    floored, raised = floor_eigenvalues(matrices)
    assert raised.tolist() == [False, True]
    np.testing.assert_array_equal(floored[0], good)
    values = np.linalg.eigvalsh(floored[1])
    assert values[0] > FLOOR and cholesky_columns(floored)[1].all()
    np.testing.assert_allclose(values[1:], [1.0, 3.0])
    np.testing.assert_allclose(factor_of(floored) @ factor_of(floored).swapaxes(1, 2), floored, atol=1e-14)


@pytest.mark.parametrize("scale", [0.0, 1e-100, 1.0, 1e200])
def test_covariances_of_any_size_are_definite(scale):
    index = degrees(3)
    noise = scale * np.random.default_rng(1).normal(size=(len(index), 10))  # indefinite nearly everywhere
    one = Chebyshev(index=index[:1], coefficients=np.ones((1, 1)))
    part = MatrixCovariance(inner=Chebyshev(index=index, coefficients=noise), size=one)
    unit = np.random.default_rng(2).random((200, 2))
    matrices = part.values(unit)
    assert np.isfinite(matrices).all() and (np.linalg.eigvalsh(matrices)[:, 0] > 0).all()
    assert part.floored(unit).mean() > 0.5
    np.testing.assert_allclose(
        part.factor(unit) @ part.factor(unit).swapaxes(1, 2), matrices, atol=1e-12 * np.abs(matrices).max()
    )


def test_deterministic_outputs_have_no_variance():
    base = sir_map()
    fixed = np.zeros(13, bool)
    fixed[[0, 5]] = True
    m = MomentMap(
        problem=base.problem,
        mean_part=base.mean_part,
        cov_part=FactorCovariance(inner=expansion(66, offset=1.0)),
        deterministic=fixed,
    )
    cov, factor = m.covariance([0.5, 0.002]), m.factor([0.5, 0.002])
    assert (cov[:, fixed] == 0).all() and (cov[:, :, fixed] == 0).all() and (factor[:, fixed] == 0).all()
    assert m.gradient([0.5, 0.002]).cov.shape == (1, 13, 13, 2)
    with pytest.raises(InputError, match="`cov_part` must have 11 outputs, got 13"):
        MomentMap(problem=m.problem, mean_part=m.mean_part, cov_part=base.cov_part, deterministic=fixed)


def test_gradients_follow_log_and_integer_dimensions():
    model = Model({"X": "n"}, ["k", "n"], ["X -> 0 : k*X"])
    problem = Problem(model, Space(k=Log(0.1, 10), n=Integer(1, 20)), "X", [1.0])
    part = expansion(1, offset=1.0)
    m = MomentMap(
        problem=problem, mean_part=part, cov_part=FactorCovariance(inner=part), deterministic=np.zeros(1, bool)
    )
    h = 1e-6
    got = m.gradient([1.0, 5.0]).mean[0, 0]
    assert got[0] == pytest.approx((m.mean([1 + h, 5.0]) - m.mean([1 - h, 5.0]))[0, 0] / (2 * h), rel=1e-5)
    assert got[1] == pytest.approx(part.gradient(problem.space.to_unit([[1.0, 5.0]]))[0, 0, 1] / 20)


def test_averages_of_covariances_are_covariances():
    members = tuple(FactorCovariance(inner=expansion(10, seed=seed, offset=0.3)) for seed in range(4))
    part, unit = Average(members=members, spread=0.5), np.random.default_rng(0).random((6, 2))
    np.testing.assert_allclose(part.factor(unit) @ part.factor(unit).swapaxes(1, 2), part.values(unit), atol=1e-14)
    wanted = 0.5 * np.stack([member.values(unit) for member in members]).std(axis=0, ddof=1)
    np.testing.assert_allclose(part.se(unit), wanted)
    assert np.isnan(Average(members=members).se(unit)).all()


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="`size` must have 1 or 4 outputs, got 3"):
        MatrixCovariance(inner=expansion(10), size=expansion(3))
    with pytest.raises(InputError, match="n \\(n \\+ 1\\) / 2 numbers, got 11"):
        FactorCovariance(inner=expansion(11))
    with pytest.raises(InputError, match="`coefficients` must have the shape \\(3, any\\)"):
        Chebyshev(index=degrees(1), coefficients=np.ones((2, 1)))
    with pytest.raises(InputError, match="`coefficients` must be finite"):
        Chebyshev(index=degrees(0), coefficients=np.full((1, 1), np.inf))
    with pytest.raises(InputError, match="`shift` must have 2 outputs"):
        Scaled(inner=expansion(2), size=expansion(1), shift=expansion(1))


def test_symmetric_reads_triangles_row_by_row():
    assert symmetric(np.array([[1.0, 2.0, 3.0]])).tolist() == [[[1.0, 2.0], [2.0, 3.0]]]


def test_errors_of_the_frame_carry_over_to_the_covariance():
    """Against 40,000 draws of R, entries independent: standard error 0.4 %; a forgotten product is 10 % and more."""
    part = sir_map("relative").cov_part
    unit = np.array([[0.3, 0.8]])
    deviation = np.random.default_rng(0).uniform(0.1, 1, 91)
    draws = part.transform(
        np.repeat(unit, 40_000, axis=0), deviation * np.random.default_rng(1).normal(size=(40_000, 91))
    )
    got = part.transform_variance(unit, deviation[None] ** 2)[0]
    np.testing.assert_allclose(np.sqrt(got), draws.std(axis=0), rtol=0.025)
