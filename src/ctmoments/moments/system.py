"""A differential equation written as expressions, with the flow of its leading part beside it.

In: a network, or names, right-hand sides and the matrix of the flow. Out: a `System`, which `ode.py` integrates for
many points at once. The core y (a mean, or a mean with its covariance) obeys dy/dt = f(y, p). The flow F, n x n,
obeys dF/dt = J(y, p) F and starts from the identity again at each output, so that it links neighbouring outputs and
never overflows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

import numpy as np

from ctmoments.model.expressions import Call, Expression, Name, Number, differentiate, free_names
from ctmoments.moments.network import Network
from ctmoments.moments.tape import Tape, compile_tape

ZERO = Number(0.0)


def times(*factors: Expression) -> Expression:
    """The product, neutral factors dropped."""
    return reduce(lambda a, b: _simplify_top(Call("mul", (a, b))), factors)


def plus(terms: Sequence[Expression]) -> Expression:
    """The sum in the given order, zeros dropped."""
    return reduce(lambda a, b: _simplify_top(Call("add", (a, b))), terms, ZERO)


def scaled(factor: float, expression: Expression) -> Expression:
    """A number times an expression, where -1 is a sign."""
    if factor == -1.0:
        return Call("neg", (expression,))
    return times(Number(factor), expression)


def _simplify_top(call: Call) -> Expression:
    """Drop 0 and 1 in a sum or product whose arguments are simple already."""
    a, b = call.arguments
    if call.op == "mul" and ZERO in (a, b):
        return ZERO
    neutral = Number(1.0) if call.op == "mul" else ZERO
    return b if a == neutral else a if b == neutral else call


@dataclass(frozen=True, eq=False)
class System:
    """Equations for the core, and the matrix J of the flow (without entries: no flow is wanted).

    With `diffusions`, the core is n means and then the upper triangle of a covariance, `equations` are those of the
    means, and the covariance obeys C' = J C + C J^T + D.
    """

    core: tuple[str, ...]
    parameters: tuple[str, ...]
    equations: tuple[Expression, ...]
    width: int = 0  # n: the flow belongs to the first n names of the core
    flow: Mapping[tuple[int, int], Expression] = field(default_factory=dict)
    diffusions: tuple[Expression, ...] = ()

    @property
    def size(self) -> int:
        """Numbers integrated at a point: core and flow."""
        return len(self.core) + self.width**2

    @cached_property
    def _tape(self) -> Tape:
        return compile_tape([*self.equations, *self.diffusions, *self.flow.values()], [*self.core, *self.parameters])

    def bind(self, points: int) -> Callable[[np.ndarray, np.ndarray, np.ndarray], None]:
        """A function (state, parameters, result) that writes the derivative, with work space for this many points.

        Expressions give the drift, D and the entries of J; products with J go row by row over all columns of C and F at
        once: for the nine species of Vilar's oscillator 100 operations in place of 1,000.
        """
        evaluate = self._tape.bind(points)
        width, core, given = self.width, len(self.core), len(self.equations)
        values = np.empty((self._tape.results, points))
        slopes = values[len(values) - len(self.flow) :]
        columns = width * (1 + bool(self.diffusions))
        block, moved = np.empty((2, width, columns, points))
        row = np.empty((columns, points))
        upper, full = np.triu_indices(width), _triangle_places(width)

        def run(state: np.ndarray, parameters: np.ndarray, result: np.ndarray) -> None:
            evaluate([*state[:core], *parameters], values)
            result[:given] = values[:given]
            if not width:
                return
            block[:, :width] = state[core:].reshape(width, width, -1)
            if self.diffusions:
                block[:, width:] = state[width:core][full]
            moved[...] = 0.0
            for slope, (i, k) in zip(slopes, self.flow, strict=True):
                np.multiply(slope, block[k], out=row)
                moved[i] += row
            result[core:] = moved[:, :width].reshape(width**2, -1)
            if self.diffusions:
                spread = moved[:, width:]
                result[width:core] = spread[upper] + spread[upper[::-1]] + values[width:core]

        return run

    @cached_property
    def _all_equations(self) -> tuple[Expression, ...]:
        """Of the whole core, the covariance spelled out."""
        if not self.diffusions:
            return self.equations
        names, n = covariance_names(self.width), range(self.width)
        spread = {
            (i, j): plus([times(self.flow[i, k], names[k, j]) for k in n if (i, k) in self.flow]) for i in n for j in n
        }
        both = zip(pairs(self.width), self.diffusions, strict=True)
        return (*self.equations, *(plus([spread[i, j], spread[j, i], d]) for (i, j), d in both))

    @cached_property
    def _jacobian(self) -> dict[tuple[int, int], Expression]:
        return nonzero_derivatives(self._all_equations, self.core)

    @cached_property
    def _bend(self) -> dict[tuple[int, int], Expression]:
        """How the flow's matrix, row-major, turns with the core."""
        entries = [self.flow.get((i, j), ZERO) for i in range(self.width) for j in range(self.width)]
        return nonzero_derivatives(entries, self.core)

    @cached_property
    def _matrices(self) -> Tape:
        entries = [*self._jacobian.values(), *self._bend.values(), *self.flow.values()]
        return compile_tape(entries, [*self.core, *self.parameters])

    def matrices(self, core: np.ndarray, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Jacobian of the core (point, c, c), matrix of the flow (point, n, n), its bend (point, n^2, c)."""
        values = self._matrices(core, parameters).T
        size, width = len(self.core), self.width
        shapes = ((self._jacobian, (size, size)), (self._bend, (width**2, size)), (self.flow, (width, width)))
        dense, first = [], 0
        for entries, shape in shapes:
            matrix = np.zeros((len(values), *shape))
            for column, (i, j) in enumerate(entries, first):
                matrix[:, i, j] = values[:, column]
            first += len(entries)
            dense.append(matrix)
        jacobian, bend, flow = dense
        return jacobian, flow, bend


def nonzero_derivatives(expressions: Sequence[Expression], names: Sequence[str]) -> dict[tuple[int, int], Expression]:
    """The derivatives (expression, name) that are not zero everywhere."""
    entries = {}
    for i, expression in enumerate(expressions):
        depends = free_names(expression)
        for j, name in enumerate(names):
            if name in depends:
                derivative = differentiate(expression, name)
                if derivative != ZERO:
                    entries[i, j] = derivative
    return entries


def covariance_names(width: int) -> dict[tuple[int, int], Name]:
    """The names of the covariances among the core; no species can be called so."""
    return {(i, j): Name(f"cov {min(i, j)},{max(i, j)}") for i in range(width) for j in range(width)}


def core_names(network: Network) -> tuple[str, ...]:
    """The species for their means, then their covariances."""
    names = covariance_names(len(network.species))
    return (*network.species, *(names[pair].name for pair in pairs(len(network.species))))


def _triangle_places(width: int) -> np.ndarray:
    """Where in the upper triangle each entry of the full matrix stands: (n, n)."""
    places = np.empty((width, width), int)
    rows, columns = np.triu_indices(width)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    return places


def pairs(width: int) -> list[tuple[int, int]]:
    """The upper triangle, row by row: the order of covariances in the core."""
    return list(itertools.combinations_with_replacement(range(width), 2))


def drift(network: Network, rates: Sequence[Expression]) -> list[Expression]:
    """S a: the derivative of each species."""
    return [
        plus([scaled(change[i], rate) for change, rate in zip(network.changes, rates, strict=True) if change[i]])
        for i in range(len(network.species))
    ]


def rate_slopes(network: Network, rates: Sequence[Expression]) -> dict[tuple[int, int], Expression]:
    """J = S da/dx, its entries that are not zero everywhere."""
    slopes = nonzero_derivatives(rates, network.species)
    width = range(len(network.species))
    entries = {
        (i, j): plus([scaled(c[i], slopes[k, j]) for k, c in enumerate(network.changes) if c[i] and (k, j) in slopes])
        for i in width
        for j in width
    }
    return {place: entry for place, entry in entries.items() if entry != ZERO}


def diffusion(network: Network, rates: Sequence[Expression], i: int, j: int) -> Expression:
    """An entry of S diag(a) S^T."""
    both = [(change[i] * change[j], rate) for change, rate in zip(network.changes, rates, strict=True)]
    return plus([scaled(weight, rate) for weight, rate in both if weight])


def gaussian_system(
    network: Network, rates: Sequence[Expression], slopes: Mapping[tuple[int, int], Expression]
) -> System:
    """m' = S a, C' = J C + C J^T + S diag(a) S^T, and the flow of J, for rates a and slopes J in m and C."""
    width = len(network.species)
    core = core_names(network)
    diffusions = tuple(diffusion(network, rates, i, j) for i, j in pairs(width))
    return System(core, network.parameters, tuple(drift(network, rates)), width, slopes, diffusions)
