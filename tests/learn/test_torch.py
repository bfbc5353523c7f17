"""The same weights and batches through PyTorch and through ours agree over 100 AdamW steps, dropout off."""

from __future__ import annotations

import numpy as np
import pytest

from ctmoments.learn.perceptron import first_layers
from ctmoments.learn.recipe import Recipe
from ctmoments.learn.train import Batches, train_networks
from ctmoments.predict.network import evaluate_network

torch = pytest.importorskip("torch", reason="torch is not installed: no cross-check of AdamW against it")

SIZES, ADDRESS, BATCH, EPOCHS = (2, 128, 128, 128, 13), (5, 3), 64, 20


def train_in_torch(inputs: np.ndarray, targets: np.ndarray, decay: float) -> list[tuple[np.ndarray, np.ndarray]]:
    parts = []
    for weight, bias in first_layers(SIZES, *ADDRESS):
        linear = torch.nn.Linear(*weight.shape)
        linear.load_state_dict({"weight": torch.tensor(weight.T.copy()), "bias": torch.tensor(bias)})
        parts += [linear, torch.nn.ReLU()]
    network = torch.nn.Sequential(*parts[:-1])
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=decay)
    x, y = torch.tensor(inputs, dtype=torch.float32), torch.tensor(targets, dtype=torch.float32)
    for rows in Batches(np.arange(len(inputs)), BATCH, *ADDRESS).draw(EPOCHS).reshape(-1, BATCH):
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(network(x[rows]), y[rows]).backward()
        optimiser.step()
    return [(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in list(network)[::2]]


# With a decay of 1e-5 its effect on the weights is 1e-6: a second run with 0.1 tells decoupled decay from L2.
@pytest.mark.parametrize("decay", [1e-5, 0.1])
def test_100_steps_agree_with_torch(decay: float):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(5 * BATCH + 7, 2))  # five batches and a rest that is dropped
    targets = np.sin(3 * inputs[:, :1] + np.linspace(0, 2, 13)) + 0.1 * rng.normal(size=(len(inputs), 13))
    recipe = Recipe(weight_decay=decay, batch=BATCH, epochs=EPOCHS)
    trained = train_networks(recipe, inputs, targets, [np.arange(len(inputs))], [ADDRESS], outputs=13)
    ours = [(weight[0], bias[0]) for weight, bias in trained.layers]
    theirs = train_in_torch(inputs, targets, decay)
    moved = max(np.abs(w - s).max() for (w, _), (s, _) in zip(theirs, first_layers(SIZES, *ADDRESS), strict=True))
    assert moved > 0.05
    for (weight, bias), (their_weight, their_bias) in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(weight, their_weight, atol=2e-4)
        np.testing.assert_allclose(bias, their_bias, atol=2e-4)
    np.testing.assert_allclose(
        evaluate_network(ours, inputs, "relu"), evaluate_network(theirs, inputs, "relu"), atol=1e-3
    )
