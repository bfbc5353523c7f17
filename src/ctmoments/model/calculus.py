"""What is computed from a tree: its value, its simpler form, its derivative, where it vanishes.

In: a tree. Out: a number or array, or a tree.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ctmoments.errors import ModelError, nearest
from ctmoments.model.tree import Call, Expression, Name, Number, free_names, substitute, to_text

ZERO, ONE, TWO = Number(0.0), Number(1.0), Number(2.0)


def _truth(value: np.ndarray) -> np.ndarray:
    return np.not_equal(value, 0)


EVALUATORS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "pow": np.float_power,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": lambda a, b: _truth(a) & _truth(b), "or": lambda a, b: _truth(a) | _truth(b), "not": lambda a: ~_truth(a),
    "if": lambda c, a, b: np.where(_truth(c), a, b),
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "abs": np.abs, "floor": np.floor, "ceil": np.ceil,
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def evaluate(expression: Expression, values: Mapping[str, float | np.ndarray]):
    """The value in float64 with NumPy's rules (1/0 is inf, log(-1) is NaN), elementwise over arrays.

    >>> from ctmoments.model.grammar import parse_expression
    >>> evaluate(parse_expression("beta*S^2"), {"beta": 0.5, "S": 4})
    8.0
    """
    with np.errstate(all="ignore"):
        result = _evaluate(expression, values)
    return float(result) if np.ndim(result) == 0 else result


def _evaluate(expression: Expression, values: Mapping[str, float | np.ndarray]) -> np.ndarray:
    match expression:
        case Number(value):
            return np.asarray(value)
        case Name(name):
            if name not in values:
                raise ModelError(f"no value for {name!r}. {nearest(name, values)}")
            return np.asarray(values[name], np.float64)
        case Call(op, arguments):
            return np.asarray(EVALUATORS[op](*(_evaluate(a, values) for a in arguments)), np.float64)


def simplify(expression: Expression) -> Expression:
    """Constants folded and neutral elements dropped; 0*x and 0/x are 0 whatever x is.

    >>> from ctmoments.model.grammar import parse_expression
    >>> str(simplify(parse_expression("0*x + 1*y^1 - (2 - 2)")))
    'y'
    """
    if not isinstance(expression, Call):
        return expression
    return _simplify_top(Call(expression.op, tuple(map(simplify, expression.arguments))))


def _simplify_top(call: Call) -> Expression:
    """As `simplify`, where the arguments are already simple."""
    if all(isinstance(argument, Number) for argument in call.arguments):
        value = float(evaluate(call, {}))
        return Number(value) if np.isfinite(value) else call
    return _without_neutral(call)


def _without_neutral(call: Call) -> Expression:
    match call.op, call.arguments:
        case ("mul", (Number(0.0), _) | (_, Number(0.0))) | ("div", (Number(0.0), _)):
            return ZERO
        case ("mul", (Number(1.0), x)) | ("mul", (x, Number(1.0))) | ("div" | "pow", (x, Number(1.0))):
            return x
        case ("add", (Number(0.0), x)) | ("add" | "sub", (x, Number(0.0))):
            return x
        case ("sub", (Number(0.0), x)):
            return Call("neg", (x,))
        case ("pow", (_, Number(0.0)) | (Number(1.0), _)):
            return ONE
        case ("neg", (Call("neg", (x,)),)):
            return x
        case ("if", (Number(condition), x, y)):
            return x if condition != 0 else y
        case ("and", (Number(0.0), _) | (_, Number(0.0))):
            return ZERO
        case ("or", (Number(value), _) | (_, Number(value))) if value != 0:
            return ONE
        case _:
            return call


def differentiate(expression: Expression, name: str) -> Expression:
    """The derivative with respect to a name, simplified; at a kink of min, max, abs, if the one-sided one.

    >>> from ctmoments.model.grammar import parse_expression
    >>> str(differentiate(parse_expression("a*x^2"), "x"))
    'a*(2*x)'
    """
    return simplify(_derivative(simplify(expression), name))


def _derivative(expression: Expression, name: str) -> Expression:
    if isinstance(expression, Name):
        return ONE if expression.name == name else ZERO
    if isinstance(expression, Number) or name not in free_names(expression):
        return ZERO
    if expression.op == "if":
        condition, x, y = expression.arguments
        return Call("if", (condition, _derivative(x, name), _derivative(y, name)))
    if expression.op not in DERIVATIVES:
        raise ModelError(
            f"{to_text(expression)!r} has no derivative with respect to {name!r}: "
            f"{expression.op!r} must not depend on it."
        )
    arguments = expression.arguments
    return DERIVATIVES[expression.op](*arguments, *(_derivative(argument, name) for argument in arguments))


def _call(op: str, *arguments: Expression) -> Expression:
    return _simplify_top(Call(op, arguments))


def _power_rule(x: Expression, n: Expression, dx: Expression, dn: Expression) -> Expression:
    by_base = _call("mul", _call("mul", n, _call("pow", x, _call("sub", n, ONE))), dx)
    if dn == ZERO:  # no log(x) then, which would be NaN at x = 0
        return by_base
    by_exponent = _call("mul", _call("mul", Call("pow", (x, n)), Call("log", (x,))), dn)
    return _call("add", by_base, by_exponent)


def _quotient_rule(x: Expression, y: Expression, dx: Expression, dy: Expression) -> Expression:
    left = _call("div", dx, y)
    return left if dy == ZERO else _call("sub", left, _call("div", _call("mul", x, dy), _call("pow", y, TWO)))


DERIVATIVES = {
    "add": lambda x, y, dx, dy: _call("add", dx, dy),
    "sub": lambda x, y, dx, dy: _call("sub", dx, dy),
    "mul": lambda x, y, dx, dy: _call("add", _call("mul", dx, y), _call("mul", x, dy)),
    "div": _quotient_rule,
    "neg": lambda x, dx: _call("neg", dx),
    "pow": _power_rule,
    "exp": lambda x, dx: _call("mul", Call("exp", (x,)), dx),
    "log": lambda x, dx: _call("div", dx, x),
    "sqrt": lambda x, dx: _call("div", dx, _call("mul", TWO, Call("sqrt", (x,)))),
    "abs": lambda x, dx: _call("if", Call("ge", (x, ZERO)), dx, _call("neg", dx)),
    "min": lambda x, y, dx, dy: _call("if", Call("le", (x, y)), dx, dy),
    "max": lambda x, y, dx, dy: _call("if", Call("ge", (x, y)), dx, dy),
}


def vanishes_below(rate: Expression, species: str, needed: int) -> bool:
    """Whether the rate is literally 0 at each amount 0 .. needed-1 of a species, whatever the rest.

    A reaction that needs `needed` of it then never fires without them, and a kernel need not check.

    >>> from ctmoments.model.grammar import parse_expression
    >>> vanishes_below(parse_expression("k*X*(X - 1)"), "X", 2), vanishes_below(parse_expression("k"), "X", 1)
    (True, False)
    """
    return all(simplify(substitute(rate, {species: float(amount)})) == ZERO for amount in range(needed))
