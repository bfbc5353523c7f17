from __future__ import annotations

import numpy as np
import pytest

from ctmoments.learn.indexset import index_set, order_of
from ctmoments.learn.regress import NormalEquations, equations_of, find_stretch, solve
from ctmoments.learn.sizes import choose_size, fit_size
from ctmoments.predict.chebyshev import basis


@pytest.mark.parametrize("parameters", range(1, 7))
def test_index_sets_are_closed_below_and_within_bounds(parameters):
    """A set that holds a product must hold all with smaller degrees, else an expansion could not be shifted."""
    stretch = None if parameters < 3 else np.linspace(0.6, 1.9, parameters)
    index = index_set(parameters, 300, stretch)
    assert (parameters == 1 or 250 < len(index)) and len(index) <= 300
    assert len({tuple(row) for row in index}) == len(index)
    assert (index[0] == 0).all() and (np.diff(order_of(index, stretch)) >= -1e-8).all()
    held = {tuple(row) for row in index}
    for row in index:
        for d in np.flatnonzero(row):
            lower = row.copy()
            lower[d] -= 1
            assert tuple(lower) in held
    assert len(index_set(parameters, 1)) == 1


def smooth(unit):
    return np.stack([np.exp(unit[:, 0]) * np.cos(3 * unit[:, 1]), 1 / (1 + unit.sum(axis=1))], axis=1)


def fitted(noise: float, rows: int = 4000, seed: int = 0, blocks: int = 1):
    rng = np.random.default_rng(seed)
    unit = rng.random((rows, 2))
    targets = smooth(unit) + noise * rng.normal(size=(rows, 2))
    equations = NormalEquations.empty(index_set(2, 240), 2)
    for part in np.array_split(np.arange(rows), blocks):
        equations.add(unit[part], targets[part], np.ones(len(part)))
    return solve(equations)


def test_without_noise_a_smooth_function_is_found_to_rounding():
    unit = np.random.default_rng(1).random((200, 2))
    np.testing.assert_allclose(fitted(0.0).values(unit), smooth(unit), atol=3e-6)


def test_blocks_do_not_change_the_fit():
    a, b = fitted(0.1), fitted(0.1, blocks=7)
    np.testing.assert_allclose(a.coefficients, b.coefficients, atol=1e-12)


def test_the_prior_beats_plain_least_squares_and_its_spread_is_honest():
    """20 fits: the root mean squared ratio of error to posterior deviation is 1 within a quarter (a prior that is wrong
    by a factor of 2 in σ gives 0.5 or 2); plain least squares with 231 terms has more than twice the error."""
    unit = np.random.default_rng(2).random((300, 2))
    ratios, errors, plain = [], [], []
    for seed in range(20):
        solution = fitted(0.5, seed=seed)
        error = solution.values(unit) - smooth(unit)
        ratios.append(np.mean(error**2 / (solution.noise * solution.spread(unit))))
        errors.append(np.mean(error**2))
        plain.append(0.25 * np.mean(np.sum(basis(unit, solution.index) ** 2, axis=0)) / 4000)
    assert 0.75 < np.sqrt(np.mean(ratios)) < 1.25
    assert np.mean(errors) < np.mean(plain) / 4
    assert solution.noise == pytest.approx(0.25, rel=0.1)  # standard error 0.0056


def test_weights_count_as_repeated_rows():
    rng = np.random.default_rng(3)
    unit, targets = rng.random((100, 2)), rng.normal(size=(100, 1))
    index = index_set(2, 10)
    once, twice = NormalEquations.empty(index, 1), NormalEquations.empty(index, 1)
    once.add(unit, targets, np.full(100, 2.0))
    twice.add(np.vstack([unit, unit]), np.vstack([targets, targets]), np.ones(200))
    np.testing.assert_allclose(once.gram, twice.gram)
    np.testing.assert_allclose(once.moment, twice.moment)


def test_sizes_follow_the_mean_of_skewed_numbers():
    """Exponential noise: a fit of logarithms would be 44 % low; 20,000 numbers, 28 terms: error 4 % (one sigma)."""
    rng = np.random.default_rng(4)
    unit = rng.random((20_000, 2))
    mean = np.exp(1 + 4 * unit[:, 0] * unit[:, 1])
    size = fit_size(unit, mean * rng.exponential(size=20_000), np.ones(20_000), 1.0, 30)
    inside = 0.05 + 0.9 * rng.random((100, 2))
    ratio = size.values(inside)[:, 0] / np.exp(1 + 4 * inside[:, 0] * inside[:, 1])
    assert 0.8 < ratio.min() and ratio.max() < 1.2 and abs(ratio.mean() - 1) < 0.03


def test_sizes_of_nothing_are_one():
    unit = np.random.default_rng(5).random((50, 2))
    np.testing.assert_array_equal(fit_size(unit, np.zeros(50), np.ones(50), 1.0).values(unit), 1.0)


def test_the_stretch_finds_the_parameter_that_matters_less():
    """One wave along the first parameter, a slope along the second: the prior may fall faster there."""
    rng = np.random.default_rng(6)
    unit = rng.random((2000, 2))
    targets = np.stack([np.cos(9 * unit[:, 0]) + 0.3 * unit[:, 1], np.sin(8 * unit[:, 0]) * unit[:, 1]], axis=1)
    equations = equations_of(unit, targets + 0.3 * rng.normal(size=(2000, 2)), np.ones(2000), index_set(2, 240))
    stretch = find_stretch(equations)
    assert stretch[0] < 0.75 and stretch.prod() == pytest.approx(1)
    far = {name: np.mean((solve(equations, each).values(unit) - targets) ** 2) for name, each in
           (("plain", None), ("stretched", stretch))}  # fmt: skip
    assert far["stretched"] < 0.85 * far["plain"]


def test_the_spread_is_not_zero_where_noise_hides_everything():
    """Targets of noise alone: the best prior is that nothing is there; the spread must still be that of a few terms."""
    rng = np.random.default_rng(7)
    unit = rng.random((2000, 2))
    solution = solve(equations_of(unit, rng.normal(size=(2000, 50)), np.ones(2000), index_set(2, 66)))
    terms = 2000 * solution.spread(unit).mean(axis=0)  # as many as a plain fit would have for this variance
    assert terms.min() > 1  # with the best prior 2e-4


def test_a_size_follows_where_that_helps_and_stays_plain_where_it_does_not():
    """A norm over three decades needs its size; constant targets whose noise varies need none."""
    rng = np.random.default_rng(8)
    unit = rng.random((3000, 2))
    norm = np.exp(6 * unit[:, 0] ** 2 * unit[:, 1])

    def chosen(truth: np.ndarray, noise: np.ndarray) -> int:
        values = (truth + noise * rng.normal(size=3000))[:, None]
        size = choose_size(
            unit, values[:, 0] ** 2, np.ones(3000), lambda size, rows: values[rows] / size.values(unit[rows]), 1,
            index_set(2, 66), 120,
        )  # fmt: skip
        return len(size.inner.coefficients)

    assert chosen(norm, 0.3 * norm) > 1
    assert chosen(np.ones(3000), 0.1 + unit[:, 0]) == 1
