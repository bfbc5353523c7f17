"""Training of many networks of one size side by side, in JAX.

In: a recipe, one pool of samples, the rows of each network, an address (seed, label) for each. Out: the layers of
all networks, stacked, with their losses. A network is the same whoever is trained beside it: its first weights, its
batches and its dropout come from its address alone.

Each network runs epochs while its own early stopping allows; a compiled call runs a chunk of epochs. On a CPU the
networks of a group run one after the other in `lax.map`, so that one that has stopped costs nothing (8 networks of
the paper's size on one core: 0.13 ms a step without dropout, as fast as `vmap`; at width 64 and batch 512 0.29 ms
against 0.54); groups run in threads of their own. On a GPU `vmap` runs all at once.

Weights start as in PyTorch: uniform within ±1/√fan-in, biases too. AdamW is PyTorch's: decoupled decay of all
parameters, bias correction, ε = 1e-8 outside the root. `tests/learn/test_torch.py` holds both together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ctmoments.errors import InputError
from ctmoments.learn.perceptron import apply_network, first_layers, mix32
from ctmoments.learn.recipe import Recipe
from ctmoments.progress import progress_bar
from ctmoments.simulate.lanes import thread_count
from ctmoments.simulate.streams import Purpose, generator, path_keys

BETAS, EPSILON = (0.9, 0.999), 1e-8
CHUNK = 20_000  # steps in a compiled call, about: long enough to forget its overhead, short enough to show progress

Loss = Callable[[jax.Array, Any], jax.Array]


class State(NamedTuple):
    """What a network carries from step to step, and from chunk to chunk."""

    layers: Any
    first: Any  # AdamW's running mean of the gradient
    second: Any  # and of its square
    step: Any
    best: Any
    best_loss: Any
    waited: Any  # epochs since the best


@dataclass(frozen=True)
class Trained:
    """Networks side by side: layers with a leading axis, and the losses (network, epoch, [training, validation])."""

    layers: tuple[tuple[np.ndarray, np.ndarray], ...]
    losses: np.ndarray
    epochs: np.ndarray


def squared_error(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean over samples and outputs."""
    return jnp.mean((outputs - targets) ** 2)


def start(layers: Any) -> State:
    """A network before its first step."""
    zeros = jax.tree.map(np.zeros_like, layers)
    return State(layers, zeros, zeros, np.int32(0), layers, np.float32(np.inf), np.int32(0))


def adamw(state: State, gradient: Any, rate: jax.Array, decay: float) -> State:
    """One step of AdamW, best weights untouched."""
    step = state.step + 1
    count = step.astype(jnp.float32)
    # -expm1(t log b) is 1 - b^t without the cancellation that costs 1e-5 in float32 at the first steps
    corrections = [-jnp.expm1(count * jnp.float32(math.log(beta))) for beta in BETAS]
    first = jax.tree.map(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, state.first, gradient)
    second = jax.tree.map(lambda v, g: BETAS[1] * v + (1 - BETAS[1]) * g * g, state.second, gradient)

    def move(weight, m, v):
        slope = (m / corrections[0]) / (jnp.sqrt(v / corrections[1]) + EPSILON)
        return weight * (1 - rate * decay) - rate * slope

    layers = jax.tree.map(move, state.layers, first, second)
    return state._replace(layers=layers, first=first, second=second, step=step)


def learning_rate(recipe: Recipe, step: jax.Array, steps: int) -> jax.Array:
    """The rate at a step; the cosine falls to zero at the last one."""
    if recipe.schedule == "constant":
        return jnp.float32(recipe.learning_rate)
    return recipe.learning_rate * 0.5 * (1 + jnp.cos(jnp.float32(math.pi / steps) * step))


@lru_cache(maxsize=32)
def compiled(recipe: Recipe, loss: Loss, side_by_side: bool) -> Callable:
    """A function that takes networks through a chunk of epochs, each until its own end."""

    def batch_loss(layers, samples, word):
        inputs, targets = samples
        return loss(apply_network(layers, inputs, recipe.activation, recipe.dropout, word), targets)

    def one_epoch(state, pool, order, key):
        def one_step(state, rows):
            word = mix32(key[0] + mix32(key[1] ^ state.step.astype(jnp.uint32)))
            samples = jax.tree.map(lambda array: array[rows], pool)
            value, gradient = jax.value_and_grad(batch_loss)(state.layers, samples, word)
            rate = learning_rate(recipe, state.step, recipe.epochs * len(order))
            return adamw(state, gradient, rate, recipe.weight_decay), value

        state, values = lax.scan(one_step, state, order)
        return state, values.mean()

    def judge(state, pool, rows):
        inputs, targets = jax.tree.map(lambda array: array[rows], pool)
        value = loss(apply_network(state.layers, inputs, recipe.activation), targets)
        better = value < state.best_loss
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), state.layers, state.best)
        waited = jnp.where(better, 0, state.waited + 1).astype(jnp.int32)
        return state._replace(best=best, best_loss=jnp.where(better, value, state.best_loss), waited=waited), value

    def advance(state, orders, key, judged, pool, epochs):
        def going(carry):
            done, state, _ = carry
            return (done < epochs) & (state.waited < (recipe.patience or 1))

        def body(carry):
            done, state, losses = carry
            state, training = one_epoch(state, pool, orders[done], key)
            validation = jnp.float32(jnp.nan)
            if recipe.patience is not None:
                state, validation = judge(state, pool, judged)
            return done + 1, state, losses.at[done].set(jnp.stack([training, validation]))

        losses = jnp.full((len(orders), 2), jnp.nan, jnp.float32)
        _, state, losses = lax.while_loop(going, body, (jnp.int32(0), state, losses))
        return state, losses

    def side(states, orders, keys, judged, pool, epochs):
        def one(each):
            state, order, key, own = each
            return advance(state, order, key, own, pool, epochs)

        if side_by_side:
            return jax.vmap(one)((states, orders, keys, judged))
        return lax.map(one, (states, orders, keys, judged))

    return jax.jit(side)


class Batches:
    """The batches of one network: a permutation of its rows an epoch, the last partial batch dropped.

    A data set smaller than a batch is one batch.
    """

    def __init__(self, rows: np.ndarray, batch: int, seed: int, label: int) -> None:
        self.rows, self.size = np.asarray(rows, np.int32), min(batch, len(rows))
        self.steps = len(rows) // self.size
        self.rng = generator(seed, Purpose.BATCHES, label)

    def draw(self, epochs: int) -> np.ndarray:
        """Rows (epoch, step, batch) of the next epochs."""
        kept = self.steps * self.size
        orders = np.stack([self.rng.permutation(self.rows)[:kept] for _ in range(epochs)])
        return orders.reshape(epochs, self.steps, self.size)


class Job:
    """Networks of one group on their way: their states between compiled calls."""

    def __init__(self, run: Callable, pool: Any, recipe: Recipe, sizes: Sequence[int], each: list, place) -> None:
        self.run, self.pool, self.recipe, self.place = run, pool, recipe, place
        self.batches = [batches for batches, _, _ in each]
        starts = [start(first_layers(sizes, seed, label)) for _, (seed, label), _ in each]
        self.states = jax.tree.map(lambda *parts: np.stack(parts), *starts)
        keys = np.stack([path_keys(seed, Purpose.DROPOUT, label, 0) for _, (seed, label), _ in each])
        self.keys = keys.view(np.uint32)[:, :2]
        self.judged = np.stack([judged for _, _, judged in each]).astype(np.int32)

    @property
    def waiting(self) -> np.ndarray:
        """Which networks go on."""
        return np.asarray(self.states.waited) < (self.recipe.patience or 1)

    @property
    def going(self) -> bool:
        return bool(self.waiting.any())

    def advance(self, chunk: int, epochs: int) -> np.ndarray:
        """Run up to `epochs` of a chunk; losses (network, chunk, 2)."""
        steps, size = self.batches[0].steps, self.batches[0].size
        orders = np.zeros((len(self.batches), chunk, steps, size), np.int32)
        for place in np.flatnonzero(self.waiting):
            orders[place, :epochs] = self.batches[place].draw(epochs)
        with jax.enable_x64(False), jax.default_device(self.place):  # both hold for one thread only
            self.states, losses = self.run(self.states, orders, self.keys, self.judged, self.pool, np.int32(epochs))
            return np.asarray(losses)

    def layers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Final layers, stacked: the best where there was a validation, else the last."""
        chosen = self.states.layers if self.recipe.patience is None else self.states.best
        return jax.tree.map(np.asarray, chosen)


def find_device(name: str) -> Any:
    """The device of this name: "cpu" or "cuda"."""
    if name not in ("cpu", "cuda"):
        raise InputError(f"`device` must be 'cpu' or 'cuda', got {name!r}.")
    try:
        return jax.local_devices(backend=name)[0]
    except RuntimeError as error:
        raise InputError(f"`device`: JAX has no {name!r} here ({error}). Install jax[cuda12], or use 'cpu'.") from None


def note(losses: np.ndarray) -> str:
    """The latest losses, averaged over the networks that still train, for the progress bar."""
    trained = np.isfinite(losses[:, :, 0])
    if not trained.any():
        return ""
    last = losses[:, np.flatnonzero(trained.any(axis=0))[-1]]
    training, validation = last[np.isfinite(last[:, 0])].mean(axis=0)
    return f"loss {training:.4g}" + (f", validation {validation:.4g}" if np.isfinite(validation) else "")


def train_networks(
    recipe: Recipe,
    inputs: np.ndarray,
    targets: Any,
    rows: Sequence[np.ndarray],
    addresses: Sequence[tuple[int, int]],
    *,
    outputs: int,
    judged: Sequence[np.ndarray] | None = None,
    loss: Loss = squared_error,
    device: str = "cpu",
    threads: int | None = None,
    progress: bool | None = None,
    what: str = "training",
) -> Trained:
    """Train a network on each of `rows` (equally many) of the pool `inputs` (n, p) and `targets` (arrays of n rows).

    `judged` are the rows whose loss decides early stopping; `addresses` the seed and label of each network.
    """
    if recipe.patience is not None and judged is None:
        raise InputError("early stopping needs validation rows, `judged`; or set `patience=None`.")
    sizes = (inputs.shape[1], *recipe.hidden, outputs)
    batches = [Batches(r, recipe.batch, *address) for r, address in zip(rows, addresses, strict=True)]
    chunk = max(1, min(recipe.epochs, CHUNK // batches[0].steps // max(1, len(batches) // 2)))
    place = find_device(device)
    side_by_side = place.platform != "cpu"
    count = 1 if side_by_side else min(len(batches), thread_count(threads))
    groups = np.array_split(np.arange(len(batches)), count)
    run = compiled(recipe, loss, side_by_side)
    pool = jax.device_put(jax.tree.map(lambda array: np.asarray(array, np.float32), (inputs, targets)), place)
    none = [np.zeros(1)] * len(batches)
    jobs = [
        Job(run, pool, recipe, sizes, [(batches[i], addresses[i], (judged or none)[i]) for i in g], place)
        for g in groups
    ]
    done, losses = 0, []
    with progress_bar(what, recipe.epochs, "epochs", progress) as report, ThreadPoolExecutor(len(jobs)) as workers:
        while done < recipe.epochs and any(job.going for job in jobs):
            ahead = min(chunk, recipe.epochs - done)
            parts = list(workers.map(Job.advance, jobs, [chunk] * len(jobs), [ahead] * len(jobs)))
            losses.append(np.concatenate(parts)[:, :ahead])
            done += ahead
            report(done, note(losses[-1]))
    layers = jax.tree.map(lambda *each: np.concatenate(each), *[job.layers() for job in jobs])
    losses = np.concatenate(losses, axis=1)
    return Trained(tuple(layers), losses, np.isfinite(losses[:, :, 0]).sum(axis=1))
