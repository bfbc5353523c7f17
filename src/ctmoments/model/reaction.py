"""A reaction, and its text: `"infection: S + I -> 2 I : beta*S*I"` or, by mass action, `"S + I -> 2 I @ beta"`.

In: text, or sides and a rate. Out: a frozen `Reaction` whose text parses back to it.
A rate after `:` is taken verbatim. After `@` stands the rate of one ordered tuple of reactants: falling factorials
follow, so `2 X -> Y @ k` runs at k*X*(X - 1), without a half; write `@ k/2` to count each pair once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctmoments.errors import ModelError
from ctmoments.model.checks import IDENTIFIER, check_mapping, check_name, is_number
from ctmoments.model.expressions import Call, Expression, Name, Number, parse_expression
from ctmoments.model.frozen import FrozenMap

TERM = re.compile(r"\s*(?:([0-9]{1,9})\s*(?:\*\s*)?)?([A-Za-z_][A-Za-z0-9_]*)\s*")
MAX_COEFFICIENT = 10**6
MAX_ORDER = 30  # each factor of a mass-action rate is two levels of the tree, which holds 100


@dataclass(frozen=True)
class Reaction:
    """What a reaction takes, what it makes, and how fast.

    Give `rate` (verbatim) or `mass_action` (the rate of one ordered tuple of reactants), as text, number or tree.

    >>> str(Reaction({"X": 2}, {"Y": 1}, mass_action="k"))
    '2 X -> Y @ k'
    >>> str(Reaction({"X": 2}, {"Y": 1}, mass_action="k").rate)
    'k*X*(X - 1)'
    """

    reactants: FrozenMap[int]
    products: FrozenMap[int]
    rate: Expression = None  # type: ignore[assignment]  # filled from mass_action below
    mass_action: Expression | None = None
    name: str = ""

    if TYPE_CHECKING:  # what may come in is wider than what is kept

        def __init__(
            self,
            reactants: Mapping[str, int],
            products: Mapping[str, int],
            rate: Expression | str | float | None = None,
            mass_action: Expression | str | float | None = None,
            name: str = "",
        ): ...

    def __post_init__(self):
        place = f"reaction {self.name!r}" if self.name else "reaction"
        if self.name:
            check_name(self.name, "reaction name")
        sides = [_check_side(side, place) for side in (self.reactants, self.products)]
        if not any(sides):
            raise ModelError(f"{place}: a reaction must take or make something, got nothing on both sides.")
        if self.mass_action is not None:
            constant = as_expression(self.mass_action, place)
            rate = _mass_action_rate(constant, sides[0], place)
            if self.rate is not None and as_expression(self.rate, place) != rate:
                raise ModelError(f"{place}: give `rate` or `mass_action`, not two that differ.")
        elif self.rate is not None:
            constant, rate = None, as_expression(self.rate, place)
        else:
            raise ModelError(f"{place}: a reaction must have a `rate` or a `mass_action`, got neither.")
        for field, value in zip(
            ("reactants", "products", "rate", "mass_action"), (*sides, rate, constant), strict=True
        ):
            object.__setattr__(self, field, value)

    def __str__(self) -> str:
        sides = f"{_side_text(self.reactants)} -> {_side_text(self.products)}"
        speed = f": {self.rate}" if self.mass_action is None else f"@ {self.mass_action}"
        return f"{self.name + ': ' if self.name else ''}{sides} {speed}"

    def __repr__(self) -> str:
        return f"Reaction({str(self)!r})"


def parse_reaction(text: Any, where: str = "reaction") -> Reaction:
    """Read a reaction; `where` names the place in errors.

    >>> parse_reaction("I -> R : alpha*I").products
    {'R': 1}
    """
    if not isinstance(text, str):
        raise ModelError(f"{where} must be text or a Reaction, got {text!r}.")
    where = f"{where} {text if len(text) <= 80 else text[:77] + '...'!r}"
    left, arrow, right = text.partition("->")
    if left.endswith("<") or "<=>" in left or "⇌" in left:
        raise ModelError(f"{where}: must go one way, '->'. Write a reversible reaction as two.")
    sides = re.fullmatch(r"([^:@]*)([:@])(.*)", right, re.DOTALL)
    if not arrow or sides is None:
        raise ModelError(f"{where}: must read 'reactants -> products : rate' or 'reactants -> products @ constant'.")
    name, colon, reactants = left.rpartition(":")
    if colon and not IDENTIFIER.fullmatch(name.strip()):
        raise ModelError(f"{where}: a reaction's name must be letters, digits and _, got {name.strip()!r}.")
    products, separator, rate = sides.groups()
    speed = parse_expression(rate, f"{where}, the rate")
    try:
        return Reaction(
            _parse_side(reactants),
            _parse_side(products),
            name=name.strip(),
            **{"rate" if separator == ":" else "mass_action": speed},
        )
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from None


def as_expression(value: Any, place: str) -> Expression:
    """A number, text or tree as a tree."""
    if isinstance(value, Number | Name | Call):
        return value
    return Number(value) if is_number(value) else parse_expression(value, place)


def _mass_action_rate(constant: Expression, reactants: Mapping[str, int], place: str) -> Expression:
    if sum(reactants.values()) > MAX_ORDER:
        raise ModelError(
            f"{place}: mass action must take at most {MAX_ORDER} molecules, got {sum(reactants.values())}. "
            "Write the rate after ':'."
        )
    rate = constant
    for species, count in reactants.items():
        for taken in range(count):
            factor = Call("sub", (Name(species), Number(taken))) if taken else Name(species)
            rate = Call("mul", (rate, factor))
    return rate


def _parse_side(text: str) -> dict[str, int]:
    side: dict[str, int] = {}
    if text.strip() in ("", "0"):
        return side
    for term in text.split("+"):
        match = TERM.fullmatch(term)
        if match is None:
            raise ModelError(f"a side must read like '2 X + Y', '0' or nothing, got {term.strip()!r} in it.")
        side[match[2]] = side.get(match[2], 0) + int(match[1] or 1)
        if side[match[2]] == 0:
            raise ModelError(f"a coefficient must be at least 1, got {term.strip()!r}.")
    return side


def _check_side(side: Any, place: str) -> FrozenMap[int]:
    for species, count in check_mapping(side, f"{place}: a side").items():
        check_name(species, f"{place}: species")
        if not is_number(count) or count != int(count) or not 1 <= count <= MAX_COEFFICIENT:
            raise ModelError(
                f"{place}: a coefficient must be a whole number from 1 to {MAX_COEFFICIENT}, got {count!r} {species}."
            )
    return FrozenMap({species: int(count) for species, count in side.items()})


def _side_text(side: Mapping[str, int]) -> str:
    return " + ".join(name if count == 1 else f"{count} {name}" for name, count in side.items()) or "0"
