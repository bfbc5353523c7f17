"""The part of a model that decides the observed moments.

In: a problem. Out: a `Network`: the species that are observed or enter the rates of those that matter, and the
reactions that change them. Species that only count (the recovered of an epidemic) cost nothing. Everything in it
hashes, so what is derived from a network can be kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ctmoments.errors import ModelError
from ctmoments.model.expressions import Call, Expression, free_names, simplify, to_text, walk
from ctmoments.model.model import Model
from ctmoments.model.problem import Problem

# what jumps where an amount passes a value; min, max and abs have one-sided derivatives
JUMPS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "floor", "ceil"})


@dataclass(frozen=True)
class Network:
    """Species with their places in the model, and reactions as rates with the changes they make."""

    species: tuple[str, ...]
    places: tuple[int, ...]
    parameters: tuple[str, ...]
    rates: tuple[Expression, ...]
    changes: tuple[tuple[int, ...], ...]  # (reaction, species)
    texts: tuple[str, ...]


def network_of(model: Model, species: frozenset[str]) -> Network:
    """The reactions that move these species, with all species on which they depend."""
    names = tuple(model.species)
    rates = [simplify(rate) for rate in model.rates]
    depends = [free_names(rate) & set(names) for rate in rates]
    changed = [{name for name, change in zip(names, column, strict=True) if change} for column in model.stoichiometry.T]
    needed, before = set(species), set()
    while needed != before:
        before = set(needed)
        needed |= set().union(*(depends[k] for k in range(len(rates)) if changed[k] & needed))
    places = tuple(place for place, name in enumerate(names) if name in needed)
    active = [k for k in range(len(rates)) if changed[k] & needed]
    return Network(
        tuple(names[place] for place in places),
        places,
        model.parameters,
        tuple(rates[k] for k in active),
        tuple(tuple(int(model.stoichiometry[place, k]) for place in places) for k in active),
        tuple(str(model.reactions[k]) for k in active),
    )


def observed_network(problem: Problem) -> Network:
    """The network that decides what a problem observes."""
    names = tuple(problem.model.species)
    used = {name for component in problem.components for name, w in zip(names, component.weights, strict=True) if w}
    return network_of(problem.model, frozenset(used))


def observation_weights(problem: Problem, network: Network) -> np.ndarray:
    """Each observed component as weights over the network's species: (component, species)."""
    rows = [np.array(c.weights)[list(network.places)] * c.scale for c in problem.components]
    return np.array(rows, np.float64)


def still_components(problem: Problem, network: Network) -> np.ndarray:
    """Which observed components no reaction changes, such as a total: their variance is 0, not a rounded 0."""
    weights = np.array([[c.weights[place] for place in network.places] for c in problem.components], np.int64)
    changes = np.array(network.changes, np.int64).reshape(-1, len(network.places))
    return np.asarray(~(weights @ changes.T).any(axis=1))


def require_smooth(network: Network, purpose: str) -> None:
    """Refuse a rate that jumps where an amount of a species changes, naming what jumps."""
    for rate, text in zip(network.rates, network.texts, strict=True):
        for node, _ in walk(rate):
            jump = _jump(node)
            if jump is not None and not free_names(jump).isdisjoint(network.species):
                raise ModelError(
                    f"reaction {text!r}: {purpose} needs rates without jumps, but {to_text(jump)!r} "
                    f"({_jump_name(jump)}) depends on a species. Use simulate_moments or exact_moments."
                )


def _jump(node: Expression) -> Expression | None:
    match node:
        case Call(op) if op in JUMPS:
            return node
        case Call("if", (condition, *_)):
            return condition
    return None


def _jump_name(jump: Expression) -> str:
    op = jump.op if isinstance(jump, Call) else "if"
    return op if op in ("floor", "ceil", "if") else "logic" if op in ("and", "or", "not") else "a comparison"
