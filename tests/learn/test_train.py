"""Training: who trains beside a network, in which chunks and threads, changes none of its bits."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from ctmoments.errors import InputError
from ctmoments.learn import train
from ctmoments.learn.perceptron import first_layers, kept
from ctmoments.learn.recipe import Recipe
from ctmoments.learn.train import Batches, train_networks
from ctmoments.predict.network import evaluate_network

TINY = Recipe(hidden=(8, 8), dropout=0.1, learning_rate=0.02, batch=16, epochs=150, patience=5)


def problem_of(seed: int, rows: int = 60):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(rows, 2))
    return inputs, np.stack([np.sin(inputs[:, 0]), inputs.prod(axis=1)], axis=1) + 0.1 * rng.normal(size=(rows, 2))


def tiny(labels, recipe: Recipe = TINY, **options):
    inputs, targets = problem_of(0)
    count = len(labels)
    return train_networks(
        recipe, inputs, targets, [np.arange(40)] * count, [(1, label) for label in labels], outputs=2,
        judged=[np.arange(40, 60)] * count, **options,
    )  # fmt: skip


def assert_same(one, place: int, other, other_place: int):
    for (weight, bias), (weight_, bias_) in zip(one.layers, other.layers, strict=True):
        assert np.array_equal(weight[place], weight_[other_place])
        assert np.array_equal(bias[place], bias_[other_place])


def test_a_network_is_the_same_alone_in_company_in_threads_and_in_chunks(monkeypatch):
    together = tiny([3, 4, 5], threads=1)
    assert_same(together, 1, tiny([4], threads=1), 0)
    assert_same(together, 2, tiny([3, 4, 5], threads=2), 2)
    monkeypatch.setattr(train, "CHUNK", 6)  # three epochs a call instead of all
    assert_same(together, 0, tiny([3], threads=1), 0)
    assert len({weight.tobytes() for weight in together.layers[0][0]}) == 3


def test_each_network_stops_by_itself_and_returns_its_best_weights():
    trained = tiny([0, 1, 2, 3])
    inputs, targets = problem_of(0)
    assert len(set(trained.epochs.tolist())) > 1
    assert trained.epochs.max() < TINY.epochs
    for place, epochs in enumerate(trained.epochs):
        losses = trained.losses[place, :epochs, 1]
        assert np.isfinite(losses).all()
        assert np.isnan(trained.losses[place, epochs:]).all()
        assert losses.argmin() == epochs - 1 - TINY.patience
        outputs = evaluate_network([(w[place], b[place]) for w, b in trained.layers], inputs[40:], "relu")
        assert np.mean((outputs - targets[40:]) ** 2) == pytest.approx(losses.min(), rel=1e-4)


def test_without_patience_every_epoch_runs_and_the_loss_falls():
    inputs, targets = problem_of(0)
    recipe = Recipe(hidden=(16, 16), activation="silu", batch=16, epochs=60, schedule="cosine", learning_rate=1e-2)
    trained = train_networks(recipe, inputs, targets, [np.arange(60)], [(0, 0)], outputs=2)
    assert trained.epochs.tolist() == [60]
    assert trained.losses[0, -1, 0] < 0.1 * trained.losses[0, 0, 0]
    outputs = evaluate_network([(w[0], b[0]) for w, b in trained.layers], inputs, "silu")
    assert np.mean((outputs - targets) ** 2) == pytest.approx(trained.losses[0, -1, 0], rel=0.5)


def test_batches_hold_each_row_once_and_drop_the_rest():
    rows = np.arange(100, 143)
    batches = Batches(rows, 10, 1, 0)
    orders = batches.draw(3)
    assert orders.shape == (3, 4, 10)
    assert all(len(set(epoch.ravel())) == 40 and set(epoch.ravel()) <= set(rows) for epoch in orders)
    assert not np.array_equal(orders[0], orders[1])


def test_fewer_rows_than_a_batch_are_one_batch():
    assert Batches(np.arange(25), 64, 0, 0).draw(2).shape == (2, 1, 25)


def test_first_weights_are_uniform_within_the_root_of_fan_in():
    (weight, bias), _ = first_layers((100, 400, 1), 0, 0)
    assert 0.0999 < np.abs(weight).max() <= 0.1
    assert 0.09 < np.abs(bias).max() <= 0.1
    # 40,000 uniform numbers of variance 1/300: the estimate errs by 0.5 %, 5 of those are 2.3 %
    assert weight.var() == pytest.approx(0.01 / 3, rel=0.025)


def test_dropout_keeps_the_right_share_and_differs_by_step_and_layer():
    masks = [np.asarray(kept((64, 128), 0.05, jax.numpy.uint32(word), place)) for word in range(40) for place in (0, 1)]
    # 655,360 units: the share errs by 0.00027, five of those
    assert np.mean(masks) == pytest.approx(0.95, abs=0.00135)
    agreement = np.mean([np.mean(a == b) for a, b in itertools.pairwise(masks)])
    assert agreement == pytest.approx(0.95**2 + 0.05**2, abs=0.002)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="`activation` must be one of relu, silu, tanh"):
        Recipe(activation="step")
    with pytest.raises(InputError, match="`dropout`"):
        Recipe(dropout=1.0)
    with pytest.raises(InputError, match="early stopping needs validation rows"):
        inputs, targets = problem_of(0)
        train_networks(TINY, inputs, targets, [np.arange(40)], [(1, 0)], outputs=2)
    with pytest.raises(InputError, match="'cpu' or 'cuda', got 'tpu'"):
        tiny([0], device="tpu")
