"""An expression as LaTeX, for reports and pages. In: a tree. Out: text without the dollar signs."""

from __future__ import annotations

from ctmoments.model.tree import INFIX, PREFIX, Call, Expression, Name, Number, binding_of, number_text

GREEK = frozenset(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split()
)
SYMBOLS = {
    "add": " + ", "sub": " - ", "mul": r" \, ", "lt": " < ", "le": r" \le ", "gt": " > ", "ge": r" \ge ",
    "eq": " = ", "ne": r" \ne ", "and": r" \land ", "or": r" \lor ", "not": r"\lnot ", "neg": "-",
}  # fmt: skip
DELIMITERS = {
    "abs": (r"\left|", r"\right|"),
    "floor": (r"\left\lfloor ", r" \right\rfloor"),
    "ceil": (r"\left\lceil ", r" \right\rceil"),
    "sqrt": (r"\sqrt{", "}"),
}


def to_latex(expression: Expression) -> str:
    r"""LaTeX for a formula.

    >>> from ctmoments.model.grammar import parse_expression
    >>> print(to_latex(parse_expression("beta*S*I_2/(S + 1)^2")))
    \frac{\beta \, S \, I_{2}}{\left(S + 1\right)^{2}}
    """
    match expression:
        case Number(value):
            return _number(value)
        case Name(name):
            return _name(name)
        case Call("div", (top, bottom)):
            return rf"\frac{{{to_latex(top)}}}{{{to_latex(bottom)}}}"
        case Call("pow", (base, exponent)):
            plain = isinstance(base, Name) or (isinstance(base, Number) and base.value >= 0)
            return f"{to_latex(base) if plain else _in_brackets(base)}^{{{to_latex(exponent)}}}"
        case Call("exp", (exponent,)):
            return f"e^{{{to_latex(exponent)}}}"
        case Call("if", (condition, x, y)):
            cases = rf"{to_latex(x)} & \text{{if }} {to_latex(condition)} \\ {to_latex(y)} & \text{{otherwise}}"
            return rf"\begin{{cases}} {cases} \end{{cases}}"
        case Call(op, (operand,)) if op in DELIMITERS:
            opening, closing = DELIMITERS[op]
            return opening + to_latex(operand) + closing
        case Call(op, (operand,)) if op in PREFIX:
            return SYMBOLS[op] + _operand(operand, PREFIX[op][1])
        case Call(op, (left, right)) if op in INFIX:
            binding = INFIX[op][1]
            return _operand(left, binding) + SYMBOLS[op] + _operand(right, binding + 1)
        case Call(op, arguments):
            return rf"\{op}\left({', '.join(map(to_latex, arguments))}\right)"


def _operand(expression: Expression, least: int) -> str:
    fraction = isinstance(expression, Call) and expression.op == "div"
    return to_latex(expression) if fraction or binding_of(expression) >= least else _in_brackets(expression)


def _in_brackets(expression: Expression) -> str:
    return rf"\left({to_latex(expression)}\right)"


def _number(value: float) -> str:
    mantissa, _, exponent = number_text(value).partition("e")
    return rf"{mantissa} \times 10^{{{int(exponent)}}}" if exponent else mantissa


def _name(name: str) -> str:
    stem, *subscripts = [part for part in name.split("_") if part] or [r"\_"]
    text = rf"\{stem}" if stem in GREEK else stem if len(stem) == 1 else rf"\mathrm{{{stem}}}"
    return f"{text}_{{{','.join(subscripts)}}}" if subscripts else text
