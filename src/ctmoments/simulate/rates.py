"""From the checked expression tree to arithmetic: one walker for every kernel and for the interpreter.

In: an expression and the values of its names (whatever the `Arithmetic` calls a real). Out: a real. Operations are
done in the order of the tree. Equal subtrees are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ctmoments.model.expressions import Call, Expression, Name, Number
from ctmoments.simulate import arithmetic
from ctmoments.simulate.arithmetic import Arithmetic

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
LARGEST_WHOLE_POWER = 64


class RateWriter:
    """Computes expressions over one set of names, remembering what it has computed."""

    def __init__(self, on: Arithmetic, values: Mapping[str, Any]) -> None:
        self.on = on
        self.values = values
        self.reals: dict[Expression, Any] = {}
        self.masks: dict[Expression, Any] = {}

    def real(self, expression: Expression) -> Any:
        """The value of an expression."""
        if expression not in self.reals:
            self.reals[expression] = self._real(expression)
        return self.reals[expression]

    def mask(self, expression: Expression) -> Any:
        """Whether an expression is true: comparisons and logic directly, anything else by `!= 0`."""
        if expression not in self.masks:
            self.masks[expression] = self._mask(expression)
        return self.masks[expression]

    def _real(self, expression: Expression) -> Any:
        on = self.on
        if isinstance(expression, Number):
            return on.real(expression.value)
        if isinstance(expression, Name):
            return self.values[expression.name]
        op, arguments = expression.op, expression.arguments
        if op in COMPARISONS or op in ("and", "or", "not"):
            return on.select(self.mask(expression), on.real(1.0), on.real(0.0))
        if op == "if":
            condition, then, otherwise = arguments
            return on.select(self.mask(condition), self.real(then), self.real(otherwise))
        if op == "pow":
            return self._power(*arguments)
        if op in ("min", "max"):
            return self._extreme("lt" if op == "min" else "gt", *(self.real(a) for a in arguments))
        return self._functions()[op](*(self.real(argument) for argument in arguments))

    def _mask(self, expression: Expression) -> Any:
        on = self.on
        if isinstance(expression, Call):
            op, arguments = expression.op, expression.arguments
            if op in COMPARISONS:
                return on.compare(op, *(self.real(argument) for argument in arguments))
            if op == "and":
                return on.both(*(self.mask(argument) for argument in arguments))
            if op == "or":
                return on.either(*(self.mask(argument) for argument in arguments))
            if op == "not":
                return on.negate(self.mask(arguments[0]))
        return on.compare("ne", self.real(expression), on.real(0.0))

    def _power(self, base: Expression, exponent: Expression) -> Any:
        on = self.on
        if isinstance(exponent, Number) and exponent.value == int(exponent.value):
            whole = int(exponent.value)
            if whole == 0:
                return on.real(1.0)
            if 1 <= abs(whole) <= LARGEST_WHOLE_POWER:
                result = arithmetic.whole_power(on, self.real(base), abs(whole))
                return result if whole > 0 else on.div(on.real(1.0), result)
        return arithmetic.power(on, self.real(base), self.real(exponent))

    def _extreme(self, op: str, a: Any, b: Any) -> Any:
        """The smaller or larger of two; NaN if either is, so that a bad rate is not hidden."""
        on = self.on
        chosen = on.select(on.compare(op, a, b), a, b)
        return on.select(on.compare("ne", a, a), a, chosen)

    def _functions(self) -> dict[str, Callable[..., Any]]:
        on = self.on
        return {
            "add": on.add,
            "sub": on.sub,
            "mul": on.mul,
            "div": on.div,
            "neg": on.neg,
            "sqrt": on.sqrt,
            "abs": on.abs,
            "floor": on.floor,
            "ceil": on.ceil,
            "exp": lambda a: arithmetic.exp(on, a),
            "log": lambda a: arithmetic.log(on, a),
        }
