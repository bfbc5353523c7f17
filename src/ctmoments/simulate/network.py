"""What a kernel sees of a problem: species as slots, rates over slots and columns, outputs as whole-number sums.

In: a `Problem`. Out: a frozen `Network`. Species that no rate, no output and no guard needs are dropped. Whatever in
a rate depends on parameters alone is a column, computed once for each parameter value before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ctmoments.errors import InputError
from ctmoments.model.expressions import Call, Expression, Name, Number, evaluate, free_names, simplify, vanishes_below
from ctmoments.model.problem import Problem

SPARSE_FROM = 96  # reactions; both kernels took 40 ns an event on a chain with 98 (Zen 5, AVX-512)
MAX_EVENTS = 10**9
LARGEST_EVENTS = 2**32  # 2^32 events of at most 2^20 units cannot carry 2^52 past 2^53: no check on the way up
LARGEST_CHANGE = 2**20


@dataclass(frozen=True)
class Network:
    """A problem as kernels see it. Names in `rates` are `species_slot(i)` and `column_slot(k)`."""

    species: tuple[int, ...]  # index of each slot in the model's species
    rates: tuple[Expression, ...]
    columns: tuple[Expression, ...]  # over the model's parameters; one number for each parameter value
    changes: tuple[tuple[int, ...], ...]  # (reaction, slot)
    guarded: tuple[int, ...]  # slots whose amount could fall below zero and is watched
    checked: tuple[int, ...]  # rates that could be negative and are watched
    weights: tuple[tuple[int, ...], ...]  # (component, slot)
    times: tuple[float, ...]

    @property
    def sparse(self) -> bool:
        """Whether a dependency graph pays: above `SPARSE_FROM` reactions."""
        return len(self.rates) > SPARSE_FROM

    @property
    def outputs(self) -> int:
        """Number of outputs: components times times."""
        return len(self.weights) * len(self.times)


def species_slot(index: int) -> Name:
    """The name of a species inside `Network.rates`."""
    return Name(f"x{index}")


def column_slot(index: int) -> Name:
    """The name of a parameter column inside `Network.rates`."""
    return Name(f"c{index}")


@lru_cache(maxsize=64)
def lower(problem: Problem) -> Network:
    """The network of a problem."""
    model = problem.model
    names = list(model.species)
    changes = np.asarray(model.stoichiometry).T
    if np.abs(changes).max(initial=0) > LARGEST_CHANGE:
        raise InputError(f"A reaction may change an amount by at most {LARGEST_CHANGE}, got {np.abs(changes).max()}.")
    rates = [simplify(rate) for rate in model.rates]
    unguarded = {
        s
        for r, rate in enumerate(rates)
        for s in np.flatnonzero(changes[r] < 0)
        if not vanishes_below(rate, names[s], int(-changes[r, s]))
    }
    seen = set().union(*(free_names(rate) for rate in rates)) if rates else set()
    observed = {s for component in problem.components for s, weight in enumerate(component.weights) if weight}
    kept = tuple(s for s, name in enumerate(names) if name in seen or s in unguarded or s in observed)
    columns: dict[Expression, int] = {}
    slots = {names[s]: species_slot(i) for i, s in enumerate(kept)}
    lowered = tuple(_lower(rate, slots, columns) for rate in rates)
    return Network(
        species=kept,
        rates=lowered,
        columns=tuple(columns),
        changes=tuple(tuple(int(changes[r, s]) for s in kept) for r in range(len(rates))),
        guarded=tuple(i for i, s in enumerate(kept) if s in unguarded),
        checked=tuple(r for r, rate in enumerate(lowered) if not never_negative(rate)),
        weights=tuple(tuple(component.weights[s] for s in kept) for component in problem.components),
        times=tuple(problem.times),
    )


def _lower(expression: Expression, slots: dict[str, Name], columns: dict[Expression, int]) -> Expression:
    if isinstance(expression, Number):
        return expression
    if not any(name in slots for name in free_names(expression)):
        if not free_names(expression):
            return Number(float(evaluate(expression, {})))
        return column_slot(columns.setdefault(expression, len(columns)))
    if isinstance(expression, Name):
        return slots[expression.name]
    return Call(expression.op, tuple(_lower(argument, slots, columns) for argument in expression.arguments))


def never_negative(rate: Expression) -> bool:
    """Whether a rate cannot be negative where amounts and columns are not (NaN it may be)."""
    if isinstance(rate, Number):
        return rate.value >= 0
    if isinstance(rate, Name):
        return True
    if rate.op in ("exp", "sqrt", "abs", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"):
        return True
    if rate.op == "if":
        return all(never_negative(argument) for argument in rate.arguments[1:])
    if rate.op == "max":
        return any(never_negative(argument) for argument in rate.arguments)
    if rate.op == "pow":
        return never_negative(rate.arguments[0])
    if rate.op in ("add", "mul", "div", "min", "floor", "ceil"):
        return all(never_negative(argument) for argument in rate.arguments)
    return False


def watched(network: Network, columns: np.ndarray) -> Network:
    """The network for these columns: where one is negative, or NaN, every rate is watched."""
    return network if (columns >= 0).all() else replace(network, checked=tuple(range(len(network.rates))))


def column_values(problem: Problem, network: Network, theta: np.ndarray) -> np.ndarray:
    """The columns at each parameter value: (n, columns)."""
    parameters = problem.parameter_columns(theta)
    values = {name: parameters[:, k] for k, name in enumerate(problem.model.parameters)}
    result = np.empty((len(theta), len(network.columns)))
    for k, column in enumerate(network.columns):
        result[:, k] = evaluate(column, values)
    return result


def start_values(problem: Problem, network: Network, theta: np.ndarray) -> np.ndarray:
    """The amounts at t = 0 of the slots: float64 (n, slots), whole numbers."""
    return problem.initial_states(theta)[:, list(network.species)].astype(np.float64)


def output_scale(problem: Problem) -> np.ndarray:
    """What the whole-number sum behind each output is multiplied with: (outputs,)."""
    return np.repeat([component.scale for component in problem.components], len(problem.times))


def check_reach(network: Network, start: np.ndarray, max_events: int) -> None:
    """Observed sums are 64-bit whole numbers: refuse weights that could carry them beyond."""
    change = max((abs(c) for row in network.changes for c in row), default=0)
    reach = start.max(initial=0.0) + float(change) * max_events
    weight = max(sum(abs(w) for w in row) for row in network.weights)
    if reach * weight >= 2.0**63:
        raise InputError(
            f"An observed combination could reach {reach * weight:.3g}, beyond 2^63: its whole-number weights add up to"
            f" {weight}. Use coefficients with fewer digits, or a smaller `max_events`."
        )
