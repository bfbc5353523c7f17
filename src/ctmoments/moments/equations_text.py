"""Moment equations as lines of text or LaTeX.

In: equations, each a left symbol and its terms {(symbol, factor): number}; a symbol is ("E", powers) or
("Cov", powers, powers). Out: one line an equation, its terms gathered by factor: beta*(E[S^2*I] - E[S*I]).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import TypeAlias

from ctmoments.model.expressions import Call, Expression, Name, Number, to_latex, to_text
from ctmoments.moments.polynomials import Factor, Powers, factor_expression

Symbol: TypeAlias = tuple
Terms: TypeAlias = Mapping[tuple[Symbol, Factor], Fraction]


def equation_lines(equations: Mapping[Symbol, Terms], species: Sequence[str], *, latex: bool) -> list[str]:
    """One line for each equation."""
    dialect = _Latex(species) if latex else _Text(species)
    return [dialect.derivative(left) + dialect.sum(terms) for left, terms in equations.items()]


class _Text:
    """How equations read in plain text."""

    def __init__(self, species: Sequence[str]):
        self.species = species

    def derivative(self, symbol: Symbol) -> str:
        return f"{self.symbol(symbol)}' = "

    def symbol(self, symbol: Symbol) -> str:
        kind, *monomials = symbol
        inside = ", ".join(self.formula(_monomial(powers, self.species)) for powers in monomials)
        return f"E[{inside}]" if kind == "E" else f"Cov({inside})"

    def formula(self, expression: Expression) -> str:
        return to_text(expression)

    def before(self, expression: Expression) -> str:
        """A factor with the multiplication sign after it, in brackets where it needs them."""
        return to_text(Call("mul", (expression, Name("x")))).removesuffix("x")

    def bracket(self, inside: str) -> str:
        return f"({inside})"

    def sum(self, terms: Terms) -> str:
        groups: dict[Factor, list[tuple[Fraction, Symbol]]] = {}
        for (symbol, factor), number in terms.items():
            groups.setdefault(factor, []).append((number, symbol))
        signed = [part for factor, group in groups.items() for part in self._group(factor, sorted(group, key=_place))]
        return _joined(signed)

    def _group(self, factor: Factor, group: list[tuple[Fraction, Symbol]]) -> list[tuple[Fraction, str]]:
        """The terms of one factor as (sign, text): one bracket, or each for itself where there is no factor."""
        if not factor:
            return [(number, self._term(abs(number), None, symbol)) for number, symbol in group]
        common = abs(group[0][0]) if len({abs(number) for number, _ in group}) == 1 else Fraction(1)
        sign = Fraction(-1 if all(number < 0 for number, _ in group) else 1)
        expression = factor_expression(factor)
        if len(group) == 1:
            return [(sign, self._term(common, expression, group[0][1]))]
        inside = _joined([(sign * n, self._term(abs(n) / common, None, symbol)) for n, symbol in group])
        return [(sign, self._number(common) + self.before(expression) + self.bracket(inside))]

    def _term(self, number: Fraction, factor: Expression | None, symbol: Symbol) -> str:
        if symbol[0] == "E" and not any(symbol[1]):  # the moment of no powers is 1
            return self.formula(_number(number)) if factor is None else self._number(number) + self.formula(factor)
        return self._number(number) + ("" if factor is None else self.before(factor)) + self.symbol(symbol)

    def _number(self, number: Fraction) -> str:
        return "" if number == 1 else self.before(_number(number))


class _Latex(_Text):
    """How equations read in LaTeX, aligned at the equality sign."""

    def derivative(self, symbol: Symbol) -> str:
        return rf"\frac{{d}}{{dt}} {self.symbol(symbol)} &= "

    def symbol(self, symbol: Symbol) -> str:
        kind, *monomials = symbol
        inside = ", ".join(self.formula(_monomial(powers, self.species)) for powers in monomials)
        return rf"\mathrm{{E}}\left[{inside}\right]" if kind == "E" else rf"\mathrm{{Cov}}\left({inside}\right)"

    def formula(self, expression: Expression) -> str:
        return to_latex(expression)

    def before(self, expression: Expression) -> str:
        return to_latex(Call("mul", (expression, Name("x")))).removesuffix("x")

    def bracket(self, inside: str) -> str:
        return rf"\left({inside}\right)"


def moment_symbol(powers: Powers, species: Sequence[str]) -> str:
    """The text of a moment.

    >>> moment_symbol((1, 2), ("S", "I"))
    'E[S*I^2]'
    """
    return _Text(species).symbol(("E", powers))


def _monomial(powers: Powers, species: Sequence[str]) -> Expression:
    parts: list[Expression] = [
        Name(name) if power == 1 else Call("pow", (Name(name), Number(float(power))))
        for name, power in zip(species, powers, strict=True)
        if power
    ]
    return reduce(lambda a, b: Call("mul", (a, b)), parts) if parts else Number(1.0)


def _number(number: Fraction) -> Expression:
    short = number.limit_denominator(1000)
    if abs(short - number) > 1e-15 * abs(number):
        return Number(float(number))
    top, bottom = Number(float(short.numerator)), Number(float(short.denominator))
    return top if bottom == Number(1.0) else Call("div", (top, bottom))


def _place(term: tuple[Fraction, Symbol]) -> tuple:
    """Moments of low order first, covariances by their monomials."""
    kind, *monomials = term[1]
    return (kind, [(sum(powers), powers) for powers in monomials])


def _joined(signed: list[tuple[Fraction, str]]) -> str:
    if not signed:
        return "0"
    (first, text), *rest = signed
    start = f"-{text}" if first < 0 else text
    return start + "".join(f" - {text}" if sign < 0 else f" + {text}" for sign, text in rest)
