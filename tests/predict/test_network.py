"""Networks in NumPy: against a loop over units, gradients against differences, files that do not fit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ctmoments.errors import InputError
from ctmoments.predict.chebyshev import Chebyshev
from ctmoments.predict.combine import Exponential
from ctmoments.predict.network import Network, SizedFactor


def random_network(seed: int = 0, members: int = 3, outputs: int = 6, spread: float | None = 2.0, **changes) -> Network:
    rng = np.random.default_rng(seed)
    sizes = (2, 5, 4, outputs)
    parts = {
        "weights": tuple(rng.normal(size=(members, a, b)) for a, b in itertools.pairwise(sizes)),
        "biases": tuple(rng.normal(size=(members, b)) for b in sizes[1:]),
        "activation": "silu",
        "input_shift": np.array([0.4, 0.5]),
        "input_scale": np.array([0.3, 0.2]),
        "output_shift": rng.normal(size=outputs),
        "output_scale": rng.uniform(1, 2, outputs),
        "spread": spread,
    }
    return Network(**(parts | changes))


def by_hand(network: Network, member: int, unit: np.ndarray) -> np.ndarray:
    act = {
        "relu": lambda x: max(x, 0.0),
        "silu": lambda x: x / (1 + np.exp(-x)),
        "tanh": np.tanh,
    }[network.activation]
    values = [(u - s) / w for u, s, w in zip(unit, network.input_shift, network.input_scale, strict=True)]
    for place, (weight, bias) in enumerate(network.layers):
        sums = [
            bias[member, j] + sum(values[i] * weight[member, i, j] for i in range(len(values)))
            for j in range(bias.shape[1])
        ]
        values = sums if place == len(network.layers) - 1 else [act(x) for x in sums]
    return np.array(values) * network.output_scale + network.output_shift


@pytest.mark.parametrize("activation", ["relu", "silu", "tanh"])
def test_values_and_errors_follow_from_members_by_hand(activation: str):
    network = random_network(activation=activation)
    unit = np.random.default_rng(1).random((4, 2))
    members = np.array([[by_hand(network, m, u) for u in unit] for m in range(3)])
    np.testing.assert_allclose(network.values(unit), members.mean(axis=0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(network.se(unit), 2 * members.std(axis=0, ddof=1), rtol=1e-4, atol=1e-5)


def sized(seed: int = 0) -> SizedFactor:
    rng = np.random.default_rng(seed)
    index = np.array([[0, 0], [1, 0], [0, 1]])
    size = Exponential(inner=Chebyshev(index=index, coefficients=rng.normal(size=(3, 3)) / 3))
    base = Chebyshev(index=index, coefficients=rng.normal(size=(3, 6)))
    return SizedFactor(inner=random_network(seed), size=size, base=base)


@pytest.mark.parametrize("part", [random_network(activation="silu"), random_network(activation="tanh"), sized()])
def test_gradients_are_those_of_differences(part):
    unit = np.random.default_rng(2).random((5, 2))
    gradient = part.gradient(unit)
    step = 1e-2  # float32 inside: smaller steps show its rounding
    for d in range(2):
        move = np.eye(2)[d] * step
        far = (part.values(unit + 2 * move) - part.values(unit - 2 * move)) / (4 * step)
        near = (part.values(unit + move) - part.values(unit - move)) / (2 * step)
        difference = (4 * near - far) / 3  # Richardson: error of order step⁴
        assert np.abs(gradient[..., d] - difference).max() < 5e-3 * np.abs(difference).max()


def test_a_sized_factor_is_the_product_of_its_parts():
    part, unit = sized(), np.random.default_rng(3).random((4, 2))
    factor = np.zeros((4, 3, 3))
    factor[:, *np.tril_indices(3)] = part.inner.values(unit) + part.base.values(unit)
    factor *= part.size.values(unit)[:, :, None]
    np.testing.assert_allclose(part.factor(unit), factor)
    np.testing.assert_allclose(part.values(unit), factor @ factor.swapaxes(1, 2))
    members = []
    for member in part.inner.members(unit):
        one = np.zeros((4, 3, 3))
        one[:, *np.tril_indices(3)] = member + part.base.values(unit)
        one *= part.size.values(unit)[:, :, None]
        members.append(one @ one.swapaxes(1, 2))
    np.testing.assert_allclose(part.se(unit), 2 * np.std(members, axis=0, ddof=1))


def test_errors_of_entries_come_from_their_logarithms_where_given():
    part = sized()
    log_se = Chebyshev(index=np.zeros((1, 2), int), coefficients=np.log(np.arange(1.0, 7))[None])
    named = SizedFactor(inner=part.inner, size=part.size, base=part.base, log_se=log_se)
    unit = np.random.default_rng(3).random((2, 2))
    sizes = part.size.values(unit)
    expected = np.array([[1.0, 2, 4], [2, 3, 5], [4, 5, 6]]) * sizes[:, :, None] * sizes[:, None, :]
    np.testing.assert_allclose(named.se(unit), expected)


def test_one_member_or_no_spread_knows_no_error():
    unit = np.zeros((2, 2))
    assert np.isnan(random_network(members=1).se(unit)).all()
    assert np.isnan(random_network(spread=None).se(unit)).all()


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"`weights\.1` must follow"):
        good = random_network()
        random_network(weights=(good.weights[0], good.weights[0], good.weights[2]))
    with pytest.raises(InputError, match="got 'sillu'"):
        random_network(activation="sillu")
    with pytest.raises(InputError, match="must be finite"):
        random_network(weights=tuple(np.full_like(w, np.nan) for w in random_network().weights))
    with pytest.raises(InputError, match="`input_scale`"):
        random_network(input_scale=np.ones(3))
    with pytest.raises(InputError, match="`spread`"):
        random_network(spread=-1.0)
