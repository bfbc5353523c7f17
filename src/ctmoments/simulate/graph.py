"""What a sparse kernel knows of a network: which rates an event changes, where they stand, and what shape they have.

In: a `Network`. Out: a frozen `Graph`. Rates that differ only in which species and columns they name share a shape,
so a chain of a thousand species is emitted once. Rates are the leaves of a tree of sums with eight children a node.
For each reaction there is a program, a row of int32 that the kernel reads from front to back:

    number of changes, (slot, change)…
    number of rates to compute anew, (reaction)…
    for each level above the leaves: number of sums to take anew, (node)…
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ctmoments.model.expressions import Call, Expression, Name, Number, free_names
from ctmoments.simulate.network import Network, column_slot, species_slot

FAN = 8  # children of a node: one AVX-512 vector, two of AVX2


@dataclass(frozen=True)
class Graph:
    """Tables of a network in one array of int32: programs, and shape and operands of each reaction."""

    network: Network  # constants in rates have become columns
    shapes: tuple[Expression, ...]  # over operand(0), operand(1), …
    operands: int  # operands kept for each reaction
    levels: tuple[int, ...]  # cells of each level of the tree, whole blocks; leaves first
    starts: int  # where in `tables` the starts of the programs are
    rates: int  # where shape and operands of each reaction are: rows of 1 + operands
    tables: np.ndarray

    @property
    def amounts(self) -> int:
        """Where in a lane's memory the amounts are: behind the tree's values and running sums. Columns follow."""
        return 2 * sum(self.levels)

    @property
    def cells(self) -> int:
        """Cells of memory that a lane has for itself, whole blocks."""
        return -(-(self.amounts + len(self.network.species) + len(self.network.columns)) // FAN) * FAN


def operand(index: int) -> Name:
    """The name of an operand in a shape."""
    return Name(f"o{index}")


@lru_cache(maxsize=64)
def build_graph(network: Network) -> Graph:
    """The graph of a network."""
    network = _constants_to_columns(network)
    levels = _levels(len(network.rates))
    amounts = 2 * sum(levels)
    shapes: dict[Expression, int] = {}
    shape_of, operands_of = [], []
    for rate in network.rates:
        names: dict[str, int] = {}
        shape_of.append(shapes.setdefault(_shape(rate, names), len(shapes)))
        operands_of.append([_cell(name, amounts, len(network.species)) for name in names])
    width = max((len(row) for row in operands_of), default=0)
    rows = [[shape, *row, *[0] * (width - len(row))] for shape, row in zip(shape_of, operands_of, strict=True)]
    programs = _programs(network, len(levels))
    starts = np.cumsum([0, *(len(program) for program in programs)])
    pieces = [[v for program in programs for v in program], starts.tolist(), [v for row in rows for v in row]]
    tables = np.array([value for piece in pieces for value in piece], np.int32)
    return Graph(
        network=network,
        shapes=tuple(shapes),
        operands=width,
        levels=levels,
        starts=len(pieces[0]),
        rates=len(pieces[0]) + len(pieces[1]),
        tables=tables,
    )


def _levels(rates: int) -> tuple[int, ...]:
    """Sizes of the levels in whole blocks, leaves first, until one block is left: the root's children."""
    sizes = [-(-max(rates, 1) // FAN) * FAN]
    while sizes[-1] > FAN:
        sizes.append(-(-(sizes[-1] // FAN) // FAN) * FAN)
    return tuple(sizes)


def _programs(network: Network, levels: int) -> list[list[int]]:
    """What firing each reaction takes, in the order in which the kernel does it."""
    readers: dict[str, set[int]] = {}
    for r, rate in enumerate(network.rates):
        for name in free_names(rate):
            readers.setdefault(name, set()).add(r)
    changed = [[i for i, change in enumerate(row) if change] for row in network.changes]
    nodes = [sorted(set().union(*(readers.get(species_slot(i).name, set()) for i in slots))) for slots in changed]
    pairs = zip(changed, network.changes, strict=True)
    sections: list[list[list[tuple[int, ...]]]] = [[[(i, row[i]) for i in slots] for slots, row in pairs]]
    for _ in range(levels):
        sections.append([[(node,) for node in row] for row in nodes])
        nodes = [sorted({node // FAN for node in row}) for row in nodes]
    return [
        [number for section in sections for number in (len(section[r]), *(v for entry in section[r] for v in entry))]
        for r in range(len(network.changes))
    ]


def _constants_to_columns(network: Network) -> Network:
    """Numbers become columns, so that rates alike but for a constant share a shape; exponents stay as they are."""
    columns = {column: k for k, column in enumerate(network.columns)}

    def walk(expression: Expression) -> Expression:
        if isinstance(expression, Number):
            return column_slot(columns.setdefault(expression, len(columns)))
        if isinstance(expression, Name):
            return expression
        arguments = list(expression.arguments)
        for k, argument in enumerate(arguments):
            if not (expression.op == "pow" and k == 1 and isinstance(argument, Number)):
                arguments[k] = walk(argument)
        return Call(expression.op, tuple(arguments))

    rates = tuple(walk(rate) for rate in network.rates)
    return replace(network, rates=rates, columns=tuple(columns))


def _shape(expression: Expression, names: dict[str, int]) -> Expression:
    """The expression with its names replaced by operands in order of appearance."""
    if isinstance(expression, Number):
        return expression
    if isinstance(expression, Name):
        return operand(names.setdefault(expression.name, len(names)))
    return Call(expression.op, tuple(_shape(argument, names) for argument in expression.arguments))


def _cell(name: str, amounts: int, species: int) -> int:
    """Where in a lane's memory a species or a column is."""
    return amounts + int(name[1:]) + (species if name[0] == "c" else 0)
