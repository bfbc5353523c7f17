"""Many expressions as one list of NumPy operations, shared subexpressions computed once.

In: expressions and the names that are their inputs. Out: a `Tape`; bound to a number of points it turns rows of inputs,
each shaped (points,), into the rows of an output array. Registers are reused as soon as their value is dead, so the
work stays in the first cache: one operation on 1,000 points costs 0.3 us, allocation included it cost three times that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ctmoments.errors import ModelError, nearest
from ctmoments.model.expressions import Call, Expression, Name, Number


def _select(condition: np.ndarray, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    out[...] = np.where(np.not_equal(condition, 0), x, y)


def _cube(x: np.ndarray, out: np.ndarray) -> None:
    out[...] = x * x * x


# op -> a function of its arguments and of the array it writes; comparisons write 1.0 and 0.0
FUNCTIONS: dict[str, Callable[..., object]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "pow": np.float_power,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not, "if": _select,
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "abs": np.abs, "floor": np.floor, "ceil": np.ceil,
    "min": lambda x, y, out: np.minimum(x, y, out=out), "max": lambda x, y, out: np.maximum(x, y, out=out),
}  # fmt: skip
# powers that need no library function, which takes 20 times as long
POWERS: dict[float, Callable[..., object]] = {2.0: np.square, 3.0: _cube, -1.0: np.reciprocal, 0.5: np.sqrt}


@dataclass(frozen=True, eq=False)
class Tape:
    """Operations in order: (function, the places of its arguments and, last, of its result).

    Places count inputs, then constants, then registers, then rows of the result.
    """

    inputs: tuple[str, ...]
    constants: tuple[float, ...]
    registers: int
    results: int
    operations: tuple[tuple[Callable[..., object], tuple[int, ...]], ...]

    def bind(self, points: int) -> Callable[[Sequence[np.ndarray], np.ndarray], None]:
        """A function (rows of inputs, result array (results, points)) with registers of its own."""
        constants = [np.asarray(value) for value in self.constants]
        registers = list(np.empty((self.registers, points)))
        operations = self.operations

        def run(rows: Sequence[np.ndarray], result: np.ndarray) -> None:
            places = [*rows, *constants, *registers, *result]
            for function, slots in operations:
                function(*[places[slot] for slot in slots])

        return run

    def __call__(self, *blocks: np.ndarray) -> np.ndarray:
        """The result (results, points) from blocks whose rows, one after the other, are the inputs."""
        result = np.empty((self.results, blocks[0].shape[1]))
        with np.errstate(all="ignore"):
            self.bind(result.shape[1])([row for block in blocks for row in block], result)
        return result


@dataclass
class _Graph:
    """Value numbering: equal operations on equal values are one value."""

    inputs: dict[str, int]

    def __post_init__(self):
        self.nodes: list[tuple[str, object]] = [("input", name) for name in self.inputs]
        self.numbers: dict[object, int] = {}
        self.seen: dict[int, int] = {}  # by identity, so that a shared subtree is walked once

    def value_of(self, expression: Expression) -> int:
        known = self.seen.get(id(expression))
        if known is None:
            known = self.seen[id(expression)] = self._new_value(expression)
        return known

    def _new_value(self, expression: Expression) -> int:
        match expression:
            case Name(name):
                if name not in self.inputs:
                    raise ModelError(f"no value for {name!r}. {nearest(name, self.inputs)}")
                return self.inputs[name]
            case Number(value):
                return self._number(("constant", value))
            case Call("pow", (base, Number(exponent))) if exponent in POWERS:
                return self._number((f"pow {exponent}", (self.value_of(base),)))
            case Call(op, arguments):
                return self._number((op, tuple(map(self.value_of, arguments))))

    def _number(self, node: tuple[str, object]) -> int:
        if node not in self.numbers:
            self.numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return self.numbers[node]


def compile_tape(expressions: Sequence[Expression], inputs: Sequence[str]) -> Tape:
    """One tape for all expressions, as functions of the named inputs.

    >>> from ctmoments.model.expressions import parse_expression
    >>> tape = compile_tape([parse_expression("beta*S*I"), parse_expression("beta*S")], ["S", "I", "beta"])
    >>> tape(np.array([[2.0], [3.0]]), np.array([[0.5]])).tolist(), len(tape.operations)
    ([[3.0], [1.0]], 2)
    """
    graph = _Graph({name: place for place, name in enumerate(inputs)})
    roots = [graph.value_of(expression) for expression in expressions]
    constants = [value for value, node in enumerate(graph.nodes) if node[0] == "constant"]
    calls = [value for value, node in enumerate(graph.nodes) if node[0] not in ("constant", "input")]
    places = {value: value for value in range(len(inputs))}
    places |= {value: len(inputs) + k for k, value in enumerate(constants)}
    row_of: dict[int, int] = {}
    for row, root in enumerate(roots):
        row_of.setdefault(root, row)
    registers, slots = _allocate(graph, calls, row_of)
    base = len(inputs) + len(constants)
    for value in calls:
        places[value] = base + registers + row_of[value] if value in row_of else base + slots[value]
    operations = [(_function(graph, v), tuple(places[a] for a in (*_arguments(graph, v), v))) for v in calls]
    copies = [
        (np.positive, (places[root], base + registers + row))
        for row, root in enumerate(roots)
        if row_of[root] != row or graph.nodes[root][0] in ("constant", "input")
    ]
    values = tuple(float(graph.nodes[value][1]) for value in constants)  # type: ignore[arg-type]
    return Tape(tuple(inputs), values, registers, len(roots), (*operations, *copies))


def _function(graph: _Graph, value: int) -> Callable[..., object]:
    op = graph.nodes[value][0]
    return POWERS[float(op[4:])] if op.startswith("pow ") else FUNCTIONS[op]


def _arguments(graph: _Graph, value: int) -> tuple[int, ...]:
    return graph.nodes[value][1]  # type: ignore[return-value]


def _allocate(graph: _Graph, calls: list[int], row_of: dict[int, int]) -> tuple[int, dict[int, int]]:
    """A register for each value that is no result, given back after its last use."""
    last_use = {argument: value for value in calls for argument in _arguments(graph, value)}
    free: list[int] = []
    slots: dict[int, int] = {}
    count = 0
    for value in calls:
        released = [slots[a] for a in set(_arguments(graph, value)) if a in slots and last_use[a] == value]
        free += released  # in place is safe: every function reads an element before it writes it
        if value not in row_of:
            if not free:
                free.append(count)
                count += 1
            slots[value] = free.pop()
    return count, slots
