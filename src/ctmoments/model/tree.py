"""The tree of an expression: three kinds of node, so that every walker is a table over `op`.

In: nothing but nodes. Out: the nodes, their text (`parse_expression(to_text(e)) == e`), names and substitution.
Arithmetic happens in tree order in IEEE double, in `evaluate` and in every kernel alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ctmoments.errors import ModelError, nearest

# op -> number of arguments. Comparisons and logic give 1.0 or 0.0; whatever is not 0 counts as true.
ARITY = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "neg": 1, "pow": 2,
    "lt": 2, "le": 2, "gt": 2, "ge": 2, "eq": 2, "ne": 2,
    "and": 2, "or": 2, "not": 1, "if": 3,
    "exp": 1, "log": 1, "sqrt": 1, "abs": 1, "floor": 1, "ceil": 1, "min": 2, "max": 2,
}  # fmt: skip

# op -> (symbol, how tightly it binds); what is missing here is written as a function
INFIX = {
    "or": (" or ", 1), "and": (" and ", 2),
    "lt": (" < ", 4), "le": (" <= ", 4), "gt": (" > ", 4), "ge": (" >= ", 4), "eq": (" == ", 4), "ne": (" != ", 4),
    "add": (" + ", 5), "sub": (" - ", 5), "mul": ("*", 6), "div": ("/", 6), "pow": ("^", 8),
}  # fmt: skip
PREFIX = {"not": ("not ", 3), "neg": ("-", 7)}
COMPARISON, POWER, ATOM = 4, 8, 9


@dataclass(frozen=True, slots=True)
class Number:
    """A finite float64."""

    value: float

    def __post_init__(self):
        if isinstance(self.value, bool) or not math.isfinite(self.value):
            raise ModelError(f"a number in an expression must be finite, got {self.value!r}.")
        object.__setattr__(self, "value", float(self.value))

    def __str__(self) -> str:
        return to_text(self)


@dataclass(frozen=True, slots=True)
class Name:
    """A species, parameter or constant."""

    name: str

    def __str__(self) -> str:
        return to_text(self)


@dataclass(frozen=True, slots=True)
class Call:
    """An operation of the closed list `ARITY` on its arguments."""

    op: str
    arguments: tuple[Expression, ...]

    def __post_init__(self):
        if self.op not in ARITY:
            raise ModelError(f"unknown operation {self.op!r}. {nearest(self.op, ARITY)}")
        if len(self.arguments) != ARITY[self.op]:
            raise ModelError(f"{self.op!r} takes {ARITY[self.op]} arguments, got {len(self.arguments)}.")

    def __str__(self) -> str:
        return to_text(self)


Expression: TypeAlias = Number | Name | Call


def arguments_of(expression: Expression) -> tuple[Expression, ...]:
    """The nodes below this one: none below a leaf."""
    return expression.arguments if isinstance(expression, Call) else ()


def walk(expression: Expression) -> Iterator[tuple[Expression, int]]:
    """Every node with its depth (1 for the root); no recursion, so depth itself can be checked."""
    stack = [(expression, 1)]
    while stack:
        node, depth = stack.pop()
        yield node, depth
        stack += [(child, depth + 1) for child in arguments_of(node)]


def free_names(expression: Expression) -> frozenset[str]:
    """The names an expression depends on.

    >>> sorted(free_names(Call("mul", (Name("beta"), Name("S")))))
    ['S', 'beta']
    """
    return frozenset(node.name for node, _ in walk(expression) if isinstance(node, Name))


def substitute(expression: Expression, values: Mapping[str, Expression | float]) -> Expression:
    """The tree with names replaced, all at once; nothing is folded."""
    match expression:
        case Name(name) if name in values:
            value = values[name]
            return value if isinstance(value, Number | Name | Call) else Number(value)
        case Call(op, arguments):
            return Call(op, tuple(substitute(argument, values) for argument in arguments))
        case _:
            return expression


def to_text(expression: Expression) -> str:
    """The text that parses back to this very tree.

    >>> to_text(Call("pow", (Call("add", (Name("x"), Number(1.0))), Number(2.0))))
    '(x + 1)^2'
    """
    match expression:
        case Number(value):
            return number_text(value)
        case Name(name):
            return name
        case Call("neg", (Number(value) as number,)) if math.copysign(1, value) > 0:
            return f"-({to_text(number)})"  # without the brackets "-2" is the number itself
        case Call(op, (operand,)) if op in PREFIX:
            symbol, binding = PREFIX[op]
            return symbol + _bracketed(operand, binding)
        case Call(op, (left, right)) if op in INFIX:
            symbol, binding = INFIX[op]
            loose = {POWER: (ATOM, PREFIX["neg"][1]), COMPARISON: (binding + 1, binding + 1)}
            left_least, right_least = loose.get(binding, (binding, binding + 1))
            return _bracketed(left, left_least) + symbol + _bracketed(right, right_least)
        case Call(op, arguments):
            return f"{op}({', '.join(map(to_text, arguments))})"


def number_text(value: float) -> str:
    """A float64 as text that reads back as the same float64, whole numbers without a point."""
    whole = value == int(value) and abs(value) < 1e15 and (value != 0 or math.copysign(1, value) > 0)
    return str(int(value)) if whole else repr(float(value))


def _bracketed(expression: Expression, least: int) -> str:
    text = to_text(expression)
    return text if binding_of(expression) >= least else f"({text})"


def binding_of(expression: Expression) -> int:
    """How tightly the text of an expression holds together; brackets are needed below what a place asks for."""
    match expression:
        case Number(value):
            return PREFIX["neg"][1] if math.copysign(1, value) < 0 else ATOM
        case Call(op) if op in INFIX:
            return INFIX[op][1]
        case Call(op) if op in PREFIX:
            return PREFIX[op][1]
        case _:
            return ATOM
