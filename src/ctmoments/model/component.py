"""A watched component: a species or a linear combination of species, such as "S + I" or "0.5*S + I".

In: text. Out: whole-numbered weights and one scale, so that sums over paths stay exact integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ctmoments.errors import ModelError, nearest
from ctmoments.model.expressions import Call, Expression, Name, Number, parse_expression

MAX_WEIGHT = 2**31  # weight times amount stays exact in int64 for amounts up to 2^32


@dataclass(frozen=True)
class Component:
    """value = scale * sum(weights * state), weights in species order."""

    text: str
    weights: tuple[int, ...]
    scale: float


def parse_component(text: Any, species: Sequence[str]) -> Component:
    """Read a component over these species.

    >>> parse_component("0.5*S + I", ["S", "I"])
    Component(text='0.5*S + I', weights=(1, 2), scale=0.5)
    """
    place = f"observed component {text!r}"
    if not isinstance(text, str):
        raise ModelError(f"{place} must be text, a species or a combination like 'S + I'.")
    terms = _linear_terms(parse_expression(text, place), place)
    for name in terms:
        if name and name not in species:
            raise ModelError(f"{place}: {name!r} must be a species. {nearest(name, species)}")
    if terms.pop("", Fraction(0)) != 0:
        raise ModelError(f"{place} must be a linear combination of species, without a constant term.")
    terms = {name: weight for name, weight in terms.items() if weight}
    if not terms:
        raise ModelError(f"{place} must weigh at least one species, but every weight is 0.")
    denominator = math.lcm(*(weight.denominator for weight in terms.values()))
    divisor = math.gcd(*(int(weight * denominator) for weight in terms.values()))
    whole = {name: int(weight * denominator) // divisor for name, weight in terms.items()}
    if max(map(abs, whole.values())) > MAX_WEIGHT:
        raise ModelError(f"{place}: weights must be ratios of whole numbers up to 2^31, got {whole}.")
    return Component(text.strip(), tuple(whole.get(name, 0) for name in species), float(Fraction(divisor, denominator)))


def _linear_terms(expression: Expression, place: str) -> dict[str, Fraction]:
    """Weights by species; the constant stands under ''."""
    match expression:
        case Number(value):
            return {"": Fraction(repr(value))}  # decimal: 0.1 means a tenth
        case Name(name):
            return {name: Fraction(1)}
        case Call("neg", (x,)):
            return _scaled(_linear_terms(x, place), Fraction(-1))
        case Call("add" | "sub" as op, (x, y)):
            right = _scaled(_linear_terms(y, place), Fraction(1 if op == "add" else -1))
            left = _linear_terms(x, place)
            return left | {name: left.get(name, Fraction(0)) + weight for name, weight in right.items()}
        case Call("mul", (x, y)):
            left, right = _linear_terms(x, place), _linear_terms(y, place)
            if set(left) == {""} or set(right) == {""}:
                return _scaled(right, left[""]) if set(left) == {""} else _scaled(left, right[""])
        case Call("div", (x, y)):
            divisor = _linear_terms(y, place)
            if set(divisor) == {""} and divisor[""] != 0:
                return _scaled(_linear_terms(x, place), 1 / divisor[""])
    raise ModelError(f"{place} must be a linear combination of species with numbers as weights, like '2*S + I'.")


def _scaled(terms: dict[str, Fraction], factor: Fraction) -> dict[str, Fraction]:
    return {name: weight * factor for name, weight in terms.items()}
