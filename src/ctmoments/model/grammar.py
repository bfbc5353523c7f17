"""The grammar of rate expressions: text in, tree out, nothing else can happen.

    or < and < not < comparison (not chained) < + - < * / < unary - < ^ ** (from the right)

Leaves are numbers, names and a closed list of functions. User text never reaches `eval`, `exec`, `compile` or
`sympify`: limits on length and depth come first, then this recursive descent, three frames a level.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NoReturn

from ctmoments.errors import ModelError, nearest
from ctmoments.model.tree import Call, Expression, Name, Number, walk

MAX_LENGTH = 10_000
MAX_DEPTH = 100  # every walker recurses with two frames a level at most; Python stops at 1,000 frames
MAX_ENTRIES = 5 * MAX_DEPTH // 2  # of this parser: two for a bracket, and at most two frames each

TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<symbol>\*\*|<=|>=|==|!=|[-+*/^<>(),]))"
)
BINARY = {
    "or": ("or", 1), "and": ("and", 2),
    "<": ("lt", 4), "<=": ("le", 4), ">": ("gt", 4), ">=": ("ge", 4), "==": ("eq", 4), "!=": ("ne", 4),
    "+": ("add", 5), "-": ("sub", 5), "*": ("mul", 6), "/": ("div", 6),
}  # fmt: skip
NOT, COMPARISON, SUM = 3, 4, 5


def _hill(x: Expression, k: Expression, n: Expression) -> Expression:
    top, other = Call("pow", (x, n)), Call("pow", (k, n))
    return Call("div", (top, Call("add", (other, top))))


def _hillr(x: Expression, k: Expression, n: Expression) -> Expression:
    top, other = Call("pow", (k, n)), Call("pow", (x, n))
    return Call("div", (top, Call("add", (top, other))))


def _mm(x: Expression, vmax: Expression, km: Expression) -> Expression:
    return Call("div", (Call("mul", (vmax, x)), Call("add", (km, x))))


SHORTHANDS: dict[str, Callable[[Expression, Expression, Expression], Expression]] = {
    "hill": _hill,  # x^n/(k^n + x^n)
    "hillr": _hillr,  # k^n/(k^n + x^n)
    "mm": _mm,  # vmax*x/(km + x)
}
FUNCTIONS = {
    "exp": 1, "log": 1, "sqrt": 1, "abs": 1, "floor": 1, "ceil": 1, "min": 2, "max": 2, "if": 3,
    **dict.fromkeys(SHORTHANDS, 3),
}  # fmt: skip
RESERVED = frozenset(FUNCTIONS) | {"and", "or", "not", "time"}


def parse_expression(text: str, where: str = "expression") -> Expression:
    """Read an expression; `where` names the place in errors.

    >>> str(parse_expression("beta * S*I / (S+I)^2"))
    'beta*S*I/(S + I)^2'
    """
    if not isinstance(text, str):
        raise ModelError(f"{where}: an expression must be text, got {text!r}.")
    if len(text) > MAX_LENGTH:
        raise ModelError(f"{where}: an expression must have at most {MAX_LENGTH} characters, got {len(text)}.")
    parser = _Parser(text, where)
    expression = parser.parse_operators(0)
    parser.expect_end()
    if max(depth for _, depth in walk(expression)) > MAX_DEPTH:
        parser.fail(f"must not nest deeper than {MAX_DEPTH}; group a long sum or product with brackets", 0)
    return expression


class _Parser:
    """One pass over the tokens of one text; fails at once, with the column."""

    def __init__(self, text: str, where: str):
        self.text, self.where = text, where
        self.tokens: list[tuple[str, str, int]] = []  # kind, text, offset
        self.position = self.entries = 0
        self._split()

    def fail(self, problem: str, offset: int) -> NoReturn:
        shown = self.text if len(self.text) <= 80 else self.text[:77] + "..."
        raise ModelError(f"{self.where}, column {offset + 1}: {problem}, in {shown!r}.")

    def _split(self) -> None:
        offset, end = 0, len(self.text.rstrip())
        while offset < end:
            match = TOKEN.match(self.text, offset)
            if match is None:
                start = offset + len(self.text[offset:]) - len(self.text[offset:].lstrip())
                hint = " (equality is written ==)" if self.text[start] == "=" else ""
                self.fail(f"must be a number, a name or an operator, got {self.text[start]!r}{hint}", start)
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind], match.start(kind)))
            offset = match.end()
        self.tokens.append(("end", "", end))

    @property
    def next(self) -> str:
        kind, text, _ = self.tokens[self.position]
        return text if kind != "number" else ""

    def take(self) -> tuple[str, str, int]:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def enter(self) -> None:
        self.entries += 1
        if self.entries > MAX_ENTRIES:
            self.fail(f"must not nest deeper than {MAX_DEPTH}", self.tokens[self.position][2])

    def expect(self, symbol: str, meaning: str) -> None:
        kind, text, offset = self.tokens[self.position]
        if text != symbol:
            self.fail(f"{symbol!r} must {meaning}, got {_shown(kind, text)}", offset)
        self.position += 1

    def expect_end(self) -> None:
        kind, text, offset = self.tokens[self.position]
        if kind != "end":
            self.fail(f"an operator or the end must follow, got {_shown(kind, text)}", offset)

    def parse_operators(self, least: int) -> Expression:
        """Operators that bind at least this tightly, from the left."""
        self.enter()
        left = self.parse_prefix(least)
        compared = False
        while self.next in BINARY and BINARY[self.next][1] >= least:
            _, symbol, offset = self.take()
            op, binding = BINARY[symbol]
            if binding == COMPARISON and compared:
                self.fail("comparisons must not be chained; write a < b and b < c", offset)
            compared = compared or binding == COMPARISON
            left = Call(op, (left, self.parse_operators(binding + 1)))
            compared = compared and binding >= COMPARISON
        self.entries -= 1
        return left

    def parse_prefix(self, least: int) -> Expression:
        """`not`, signs and powers; a minus right before a number that is no base belongs to the number."""
        self.enter()
        if self.next == "not":
            if least > NOT:
                self.fail("'not' must stand in brackets here", self.tokens[self.position][2])
            self.position += 1
            result = Call("not", (self.parse_operators(NOT),))
        elif self.next == "+":
            self.position += 1
            result = self.parse_prefix(SUM)
        elif self.next == "-":
            self.position += 1
            is_number = self.tokens[self.position][0] == "number"
            result = self.parse_prefix(SUM)
            result = Number(-result.value) if is_number and isinstance(result, Number) else Call("neg", (result,))
        else:
            result = self.parse_leaf()
            if self.next in ("^", "**"):
                self.position += 1
                result = Call("pow", (result, self.parse_prefix(SUM)))
        self.entries -= 1
        return result

    def parse_leaf(self) -> Expression:
        kind, text, offset = self.take()
        if kind == "number":
            value = float(text)
            if not math.isfinite(value):
                self.fail(f"a number must be within the range of a float64, got {text}", offset)
            return Number(value)
        if text == "(":
            inner = self.parse_operators(0)
            self.expect(")", f"close the bracket of column {offset + 1}")
            return inner
        if kind != "name" or text in BINARY:
            self.fail(f"a number, a name or '(' must stand here, got {_shown(kind, text)}", offset)
        if self.next == "(":
            return self.parse_call(text, offset)
        if text == "time":
            self.fail("rates that depend on time come later; `time` must not be used", offset)
        if text in FUNCTIONS:
            self.fail(f"the function {text!r} must be followed by '('", offset)
        return Name(text)

    def parse_call(self, name: str, offset: int) -> Expression:
        if name not in FUNCTIONS:
            self.fail(f"unknown function {name!r}. {nearest(name, FUNCTIONS)} A product is written with *", offset)
        self.expect("(", "open the arguments")
        arguments = [self.parse_operators(0)]
        while self.next == ",":
            self.position += 1
            arguments.append(self.parse_operators(0))
        self.expect(")", f"close the arguments of {name!r}")
        least, many = FUNCTIONS[name], name in ("min", "max")
        if len(arguments) != least and not (many and len(arguments) > least):
            self.fail(f"{name!r} takes {least}{' or more' * many} arguments, got {len(arguments)}", offset)
        if name in SHORTHANDS:
            return SHORTHANDS[name](*arguments)
        result = Call(name, tuple(arguments[:least]))
        for argument in arguments[least:]:
            result = Call(name, (result, argument))
        return result


def _shown(kind: str, text: str) -> str:
    return "the end" if kind == "end" else repr(text)
