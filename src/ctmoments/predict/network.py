"""Networks as arrays: multilayer perceptrons side by side, evaluated in NumPy.

In: unit coordinates, standardised by `input_shift` and `input_scale`. Out: the members' mean, brought to units by
`output_shift` and `output_scale`, in float32 inside, as trained. The standard error is `spread` times the members'
standard deviation; NaN without `spread`.

`SizedFactor` is a covariance whose factor is regressed in the size of each output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ctmoments.errors import InputError, nearest
from ctmoments.predict.covariance import lower, symmetric
from ctmoments.predict.evaluator import Evaluator, check_shape, triangle_outputs

Layers = Sequence[tuple[np.ndarray, np.ndarray]]


def relu(x: np.ndarray) -> np.ndarray:
    """max(x, 0)."""
    return np.maximum(x, 0)


def relu_slope(x: np.ndarray) -> np.ndarray:
    """1 where x > 0."""
    return (x > 0).astype(x.dtype)


def silu(x: np.ndarray) -> np.ndarray:
    """x / (1 + exp(-x)), as (x/2)(1 + tanh(x/2)), which cannot overflow."""
    half = x * np.float32(0.5)
    return half * (np.tanh(half) + np.float32(1))


def silu_slope(x: np.ndarray) -> np.ndarray:
    """The derivative of x s(x), s the logistic function: s + x s (1 - s)."""
    logistic = np.float32(0.5) * (np.tanh(x * np.float32(0.5)) + np.float32(1))
    return logistic * (1 + x * (1 - logistic))


def tanh_slope(x: np.ndarray) -> np.ndarray:
    """1 - tanh²."""
    return 1 - np.tanh(x) ** 2


ACTIVATIONS: Mapping[str, tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "relu": (relu, relu_slope),
    "silu": (silu, silu_slope),
    "tanh": (np.tanh, tanh_slope),
}


def evaluate_network(layers: Layers, inputs: np.ndarray, activation: str) -> np.ndarray:
    """Outputs (…, n, fan out) of layers (…, fan in, fan out) at inputs (n, fan in).

    >>> layer = (np.array([[2.0]], np.float32), np.array([1.0], np.float32))
    >>> evaluate_network([layer, layer], np.array([[3.0], [-3.0]]), "relu").ravel().tolist()
    [15.0, 1.0]
    """
    act, _ = ACTIVATIONS[activation]
    values = np.asarray(inputs, np.float32)
    for weight, bias in layers[:-1]:
        values = act(values @ weight + bias[..., None, :])
    weight, bias = layers[-1]
    return values @ weight + bias[..., None, :]


def network_slopes(layers: Layers, inputs: np.ndarray, activation: str) -> np.ndarray:
    """Derivatives (…, fan in, n, fan out) of `evaluate_network` by each input, carried forward."""
    act, slope = ACTIVATIONS[activation]
    values = np.asarray(inputs, np.float32)
    # one direction for each input: (fan in, n, fan in), with room for the members
    directions = np.repeat(np.eye(values.shape[1], dtype=np.float32)[:, None, :], len(values), axis=1)
    directions = directions.reshape(*([1] * (layers[0][0].ndim - 2)), *directions.shape)
    for weight, bias in layers[:-1]:
        before = values @ weight + bias[..., None, :]
        directions = (directions @ weight[..., None, :, :]) * slope(before)[..., None, :, :]
        values = act(before)
    return directions @ layers[-1][0][..., None, :, :]


def _single(what: str, array: np.ndarray, dims: int) -> np.ndarray:
    """A finite, read-only float32 array."""
    array = np.array(array, np.float32)
    if array.ndim != dims or not np.isfinite(array).all():
        raise InputError(f"`{what}` must be finite and have {dims} dims, got shape {array.shape}.")
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False, kw_only=True)
class Network:
    """The mean of networks side by side: weights (member, fan in, fan out), biases (member, fan out)."""

    kind: ClassVar[str] = "network"

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    activation: str
    input_shift: np.ndarray
    input_scale: np.ndarray
    output_shift: np.ndarray
    output_scale: np.ndarray
    spread: float | None = None

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            hint = nearest(str(self.activation), ACTIVATIONS)
            raise InputError(f"`activation` must be known, got {self.activation!r}. {hint}")
        if self.spread is not None and not 0 <= self.spread < np.inf:
            raise InputError(f"`spread` must be a number from 0 on, or None, got {self.spread!r}.")
        if not self.weights or len(self.weights) != len(self.biases):
            raise InputError(f"as many `biases` as `weights`, got {len(self.biases)} and {len(self.weights)}.")
        weights = tuple(_single(f"weights.{i}", weight, 3) for i, weight in enumerate(self.weights))
        biases = tuple(_single(f"biases.{i}", bias, 2) for i, bias in enumerate(self.biases))
        for place, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            before = weights[place - 1].shape if place else (len(weight), 0, weight.shape[1])
            if weight.shape[:2] != before[::2] or bias.shape != weight.shape[::2]:
                raise InputError(f"`weights.{place}` must follow from {before}, got {weight.shape} and {bias.shape}.")
        for name, length in (("input", weights[0].shape[1]), ("output", weights[-1].shape[2])):
            for part in (f"{name}_shift", f"{name}_scale"):
                object.__setattr__(self, part, check_shape(part, getattr(self, part), (length,)))
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "biases", biases)

    @property
    def outputs(self) -> int:
        return self.weights[-1].shape[2]

    @property
    def layers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Weights and biases in pairs."""
        return list(zip(self.weights, self.biases, strict=True))

    def members(self, unit: np.ndarray) -> np.ndarray:
        """Values of each member (member, point, outputs), float64."""
        raw = evaluate_network(self.layers, self._standard(unit), self.activation)
        return raw * self.output_scale + self.output_shift

    def values(self, unit: np.ndarray) -> np.ndarray:
        members = self.members(unit)
        return members[0] if len(members) == 1 else members.mean(axis=0)

    def se(self, unit: np.ndarray) -> np.ndarray:
        if self.spread is None or len(self.weights[0]) < 2:
            return np.full((len(unit), self.outputs), np.nan)
        return self.spread * self.members(unit).std(axis=0, ddof=1)

    def gradient(self, unit: np.ndarray) -> np.ndarray:
        slopes = network_slopes(self.layers, self._standard(unit), self.activation).mean(axis=0)
        slopes = np.moveaxis(slopes, 0, -1) * self.output_scale[:, None]
        return slopes / self.input_scale

    def _standard(self, unit: np.ndarray) -> np.ndarray:
        return (unit - self.input_shift) / self.input_scale


@dataclass(frozen=True, eq=False, kw_only=True)
class SizedFactor:
    """C = L Lᵀ, L_ij = size_i (base_ij + inner_ij): valid by construction, each output in a size of its own.

    `inner` and `base` are lower triangles row by row. Standard errors of the entries come from `log_se` (logarithms in
    units of size_i size_j), else from the members of `inner`, where it is a `Network` with a spread.
    """

    kind: ClassVar[str] = "sized-factor"

    inner: Evaluator
    size: Evaluator
    base: Evaluator | None = None
    log_se: Evaluator | None = None

    def __post_init__(self) -> None:
        if self.size.outputs != triangle_outputs(self.inner.outputs):
            raise InputError(f"`size` must have {self.outputs} outputs, got {self.size.outputs}.")
        for name in ("base", "log_se"):
            part = getattr(self, name)
            if part is not None and part.outputs != self.inner.outputs:
                raise InputError(f"`{name}` must have {self.inner.outputs} outputs, got {part.outputs}.")

    @property
    def outputs(self) -> int:
        return triangle_outputs(self.inner.outputs)

    def _triangle(self, unit: np.ndarray) -> np.ndarray:
        triangle = self.inner.values(unit)
        return triangle if self.base is None else triangle + self.base.values(unit)

    def factor(self, unit: np.ndarray) -> np.ndarray:
        """L as it is: its diagonal may be negative where the regressor says so."""
        factor = lower(self._triangle(unit))
        factor *= self.size.values(unit)[:, :, None]
        return factor

    def values(self, unit: np.ndarray) -> np.ndarray:
        factor = self.factor(unit)
        return factor @ np.swapaxes(factor, 1, 2)

    def se(self, unit: np.ndarray) -> np.ndarray:
        size = self.size.values(unit)
        sizes = size[:, :, None] * size[:, None, :]
        if self.log_se is not None:
            return symmetric(np.exp(self.log_se.values(unit))) * sizes
        if not isinstance(self.inner, Network) or self.inner.spread is None:
            return np.full(sizes.shape, np.nan)
        base = 0.0 if self.base is None else self.base.values(unit)
        factors = [lower(member + base) for member in self.inner.members(unit)]
        members = np.stack([factor @ np.swapaxes(factor, 1, 2) for factor in factors])
        return self.inner.spread * members.std(axis=0, ddof=1) * sizes

    def gradient(self, unit: np.ndarray) -> np.ndarray:
        slope = self.inner.gradient(unit)
        if self.base is not None:
            slope = slope + self.base.gradient(unit)
        factor, size = lower(self._triangle(unit)), self.size.values(unit)
        slope = lower(slope) * size[:, :, None, None]
        slope += self.size.gradient(unit)[:, :, None] * factor[..., None]
        half = np.einsum("nijp,nkj->nikp", slope, factor * size[:, :, None])
        return half + np.swapaxes(half, 1, 2)
