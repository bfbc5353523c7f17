"""A model: species with their initial amounts, parameters, constants, reactions.

In: names, numbers, text, as a person or a TOML file writes them. Out: a frozen `Model`, every name checked, whose
trees are what kernels, exact solvers and linear noise walk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ctmoments.errors import ModelError, nearest
from ctmoments.model.checks import (
    MAX_AMOUNT,
    check_different,
    check_mapping,
    check_name,
    check_names,
    check_number,
    check_text,
    is_number,
)
from ctmoments.model.expressions import Expression, Number, evaluate, free_names, substitute
from ctmoments.model.frozen import FrozenMap
from ctmoments.model.reaction import Reaction, as_expression, parse_reaction

NONE: FrozenMap[float] = FrozenMap({})


@dataclass(frozen=True)
class Model:
    """A continuous-time Markov chain on whole-numbered amounts.

    `species` maps each name to its initial amount, a number or an expression of parameters and constants.
    `reactions` are texts ("S + I -> 2 I : beta*S*I", or by mass action "S + I -> 2 I @ beta") or `Reaction` objects.

    >>> model = Model({"S": 763, "I": 3, "R": 0}, ["alpha", "beta"],
    ...               ["S + I -> 2 I : beta*S*I", "I -> R : alpha*I"])
    >>> model.stoichiometry.T.tolist()
    [[-1, 1, 0], [0, -1, 1]]
    """

    species: FrozenMap[Expression]
    parameters: tuple[str, ...] = ()
    reactions: tuple[Reaction, ...] = ()
    constants: FrozenMap[float] = NONE
    name: str = ""

    if TYPE_CHECKING:  # what may come in is wider than what is kept

        def __init__(
            self,
            species: Mapping[str, float | str | Expression],
            parameters: Sequence[str] = (),
            reactions: Sequence[str | Reaction] = (),
            constants: Mapping[str, float] = NONE,
            name: str = "",
        ): ...

    def __post_init__(self):
        fix = object.__setattr__
        fix(self, "name", check_text(self.name, "model name"))
        fix(self, "parameters", check_names(self.parameters, "`parameters`"))
        fix(self, "constants", _check_constants(self.constants))
        fix(self, "species", _check_species(self.species))
        self._check_clashes()
        self._check_initial()
        fix(self, "reactions", _check_reactions(self.reactions))
        known = {*self.species, *self.parameters, *self.constants}
        for index, reaction in enumerate(self.reactions):
            self._check_reaction(reaction, known, f"reaction {index + 1} {str(reaction)!r}")

    def _check_clashes(self) -> None:
        seen: dict[str, str] = {}
        for kind, names in (("species", self.species), ("parameter", self.parameters), ("constant", self.constants)):
            for name in names:
                if name in seen:
                    raise ModelError(f"{kind} {name!r} must have a name of its own, but a {seen[name]} has it.")
                seen[name] = kind

    def _check_initial(self) -> None:
        known = {*self.parameters, *self.constants}
        for name, amount in self.species.items():
            place = f"initial amount of {name!r}"
            for unknown in sorted(free_names(amount) - known):
                raise ModelError(
                    f"{place}: {unknown!r} in {str(amount)!r} must be a parameter or constant. "
                    f"{nearest(unknown, known)}"
                )
            if free_names(amount) <= set(self.constants):
                check_amount(float(evaluate(amount, self.constants)), place)

    def _check_reaction(self, reaction: Reaction, known: set[str], place: str) -> None:
        for name in (*reaction.reactants, *reaction.products):
            if name not in self.species:
                raise ModelError(f"{place}: {name!r} must be a species. {nearest(name, self.species)}")
        for name in sorted(free_names(reaction.rate) - known):
            later = " (rates that depend on time come later)" if name == "t" else ""
            raise ModelError(
                f"{place}: {name!r} in its rate must be a species, parameter or constant{later}. {nearest(name, known)}"
            )

    @cached_property
    def stoichiometry(self) -> np.ndarray:
        """Products minus reactants: int64 (species, reaction), read-only."""
        rows = {name: row for row, name in enumerate(self.species)}
        change = np.zeros((len(self.species), len(self.reactions)), np.int64)
        for column, reaction in enumerate(self.reactions):
            for sign, side in ((-1, reaction.reactants), (1, reaction.products)):
                for name, count in side.items():
                    change[rows[name], column] += sign * count
        change.flags.writeable = False
        return change

    @cached_property
    def rates(self) -> tuple[Expression, ...]:
        """The rate of each reaction over species and parameters; constants are numbers in it."""
        return tuple(substitute(reaction.rate, self.constants) for reaction in self.reactions)

    def __str__(self) -> str:
        from ctmoments.model.describe import describe_model

        return describe_model(self)

    __repr__ = __str__


def are_amounts(values: np.ndarray) -> np.ndarray:
    """Whether each value is a whole number from 0 to 2^52; 1e-9 relative forgives float arithmetic."""
    with np.errstate(invalid="ignore"):
        whole = np.abs(values - np.round(values)) <= 1e-9 * np.maximum(1.0, np.abs(values))
        return whole & (np.round(values) >= 0) & (values <= MAX_AMOUNT)


def check_amount(value: float, place: str) -> int:
    """An initial amount, or an error that names the place."""
    if not are_amounts(np.asarray(float(value))) or value > MAX_AMOUNT:
        raise ModelError(f"{place} must be a whole number from 0 to 2^52, got {value!r}.")
    return round(value)


def _check_species(species: Any) -> FrozenMap[Expression]:
    checked = {}
    for name, amount in check_mapping(species, "`species`").items():
        place = f"initial amount of {check_name(name, 'species')!r}"
        if is_number(amount):
            amount = Number(check_amount(amount, place))
        elif isinstance(amount, bool | None):
            raise ModelError(f"{place} must be a whole number or an expression, got {amount!r}.")
        checked[name] = as_expression(amount, place)
    if not checked:
        raise ModelError("`species` must hold at least one species, got none.")
    return FrozenMap(checked)


def _check_constants(constants: Any) -> FrozenMap[float]:
    pairs = check_mapping(constants, "`constants`").items()
    return FrozenMap({check_name(name, "constant"): check_number(value, f"constant {name!r}") for name, value in pairs})


def _check_reactions(reactions: Any) -> tuple[Reaction, ...]:
    if isinstance(reactions, str) or not isinstance(reactions, Sequence) or not reactions:
        raise ModelError(f"`reactions` must be a list of at least one reaction, got {reactions!r}.")
    checked = tuple(
        reaction if isinstance(reaction, Reaction) else parse_reaction(reaction, f"reaction {index + 1}")
        for index, reaction in enumerate(reactions)
    )
    check_different((reaction.name for reaction in checked if reaction.name), "reaction names")
    return checked
