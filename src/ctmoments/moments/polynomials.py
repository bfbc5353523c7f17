"""Rates as polynomials in the species.

In: a rate expression. Out: a polynomial, a mapping (powers of the species, coefficient factor) -> number. A factor is
a product of what does not depend on species: parameters, or whole expressions of them such as `exp(k)`, with whole
powers. Kept apart from its number, a fraction, it lets like terms cancel exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from ctmoments.errors import ModelError
from ctmoments.model.expressions import Call, Expression, Name, Number, free_names, simplify, to_text

Powers: TypeAlias = tuple[int, ...]
Factor: TypeAlias = tuple[tuple[Expression, int], ...]
Polynomial: TypeAlias = Mapping[tuple[Powers, Factor], Fraction]

ONE = Fraction(1)
MAX_POWER = 32


def as_polynomial(rate: Expression, species: Sequence[str], where: str = "rate") -> Polynomial:
    """The polynomial that a rate is; a rate that is none is refused by name.

    >>> from ctmoments.model.expressions import parse_expression
    >>> for (powers, factor), number in as_polynomial(parse_expression("k*X*(X - 1)/2"), ["X"]).items():
    ...     print(number, to_text(factor_expression(factor)), powers)
    1/2 k (2,)
    -1/2 k (1,)
    """
    return _Reader(tuple(species), where).read(rate)


class _Reader:
    def __init__(self, species: tuple[str, ...], where: str):
        self.species, self.where = species, where
        self.none = (0,) * len(species)

    def read(self, rate: Expression) -> Polynomial:
        if isinstance(rate, Number):
            return {(self.none, ()): Fraction(repr(rate.value))} if rate.value else {}  # decimal: 0.1 is a tenth
        if isinstance(rate, Name) and rate.name in self.species:
            return {(unit(self.species.index(rate.name), len(self.species)), ()): ONE}
        match rate:
            case Call("add", (a, b)):
                return total([self.read(a), self.read(b)])
            case Call("sub", (a, b)):
                return total([self.read(a), scale(self.read(b), -1)])
            case Call("neg", (a,)):
                return scale(self.read(a), -1)
            case Call("mul", (a, b)):
                return product(self.read(a), self.read(b))
            case Call("div", (a, b)) if not self.depends(b):
                return product(self.read(a), self.reciprocal(b))
            case Call("pow", (a, n)) if (exponent := _whole(n)) is not None and self.depends(a):
                return power(self.read(a), exponent, self.none)
            case Call("if", (c, a, b)) if self.depends(rate) and not self.depends(c):
                chosen = product(self.atom(Call("ne", (c, Number(0.0)))), self.read(a))
                return total([chosen, product(self.atom(Call("eq", (c, Number(0.0)))), self.read(b))])
        if self.depends(rate):
            raise ModelError(
                f"{self.where}: moment equations need polynomials in the species, got {to_text(rate)!r}. "
                "Use exact_moments, simulate_moments, or approximate_moments(method='lna')."
            )
        return self.atom(rate)

    def depends(self, rate: Expression) -> bool:
        return not free_names(rate).isdisjoint(self.species)

    def atom(self, rate: Expression, power: int = 1) -> Polynomial:
        return {(self.none, ((rate, power),)): ONE}

    def reciprocal(self, divisor: Expression) -> Polynomial:
        terms = self.read(divisor)
        if len(terms) != 1:
            return self.atom(divisor, -1)
        ((powers, factor), number), *_ = terms.items()
        return {(powers, tuple((atom, -n) for atom, n in factor)): 1 / number}


def _whole(exponent: Expression) -> int | None:
    match simplify(exponent):
        case Number(n) if n == int(n) and 0 <= n <= MAX_POWER:
            return int(n)
    return None


def unit(place: int, length: int) -> Powers:
    """The powers of one species alone."""
    return tuple(int(i == place) for i in range(length))


def total(polynomials: Iterable[Polynomial]) -> Polynomial:
    """The sum; terms that cancel are gone."""
    terms: dict[tuple[Powers, Factor], Fraction] = defaultdict(Fraction)
    for polynomial in polynomials:
        for key, number in polynomial.items():
            terms[key] += number
    return {key: number for key, number in terms.items() if number != 0}


def scale(polynomial: Polynomial, number: int) -> Polynomial:
    """The polynomial times a number."""
    return {key: number * value for key, value in polynomial.items() if number}


def product(a: Polynomial, b: Polynomial) -> Polynomial:
    """The product of two polynomials."""
    return total(
        {(tuple(map(sum, zip(p, q, strict=True))), merged(f, g)): x * y}
        for (p, f), x in a.items()
        for (q, g), y in b.items()
    )


def power(polynomial: Polynomial, exponent: int, none: Powers) -> Polynomial:
    """A whole power, 0 included."""
    result: Polynomial = {(none, ()): ONE}
    for _ in range(exponent):
        result = product(result, polynomial)
    return result


def merged(f: Factor, g: Factor) -> Factor:
    """The product of two factors, its parts in the order of their text."""
    if not (f and g):
        return f or g
    powers: dict[Expression, int] = {}
    for atom, n in sorted((*f, *g), key=lambda part: to_text(part[0])):
        powers[atom] = powers.get(atom, 0) + n
    return tuple((atom, n) for atom, n in powers.items() if n)


def factor_expression(factor: Factor) -> Expression:
    """The factor as an expression: what has positive powers, divided by what has negative ones."""
    above, below = Number(1.0), Number(1.0)
    for atom, n in factor:
        part = atom if abs(n) == 1 else Call("pow", (atom, Number(float(abs(n)))))
        if n > 0:
            above = part if above == Number(1.0) else Call("mul", (above, part))
        else:
            below = part if below == Number(1.0) else Call("mul", (below, part))
    return above if below == Number(1.0) else Call("div", (above, below))


def coefficients(polynomial: Polynomial) -> dict[Powers, Expression]:
    """The coefficient of each monomial of the species, as one expression."""
    result: dict[Powers, Expression] = {}
    for (powers, factor), number in polynomial.items():
        term = simplify(Call("mul", (Number(float(number)), factor_expression(factor))))
        result[powers] = Call("add", (result[powers], term)) if powers in result else term
    return result
