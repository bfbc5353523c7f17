"""The moment equations of a model whose rates are polynomials: the hierarchy, whether it closes, what it lacks.

In: a model and an order. Out: `MomentEquations`: for each raw moment E[S^a I^b] up to the order, its derivative in
time as a sum of moments; for each pair of species, the derivative of the covariance. With a(x) the rate and s the
change of a reaction, E[f(x)]' is the sum over reactions of E[a(x) (f(x + s) - f(x))].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from ctmoments.errors import ModelError, nearest
from ctmoments.model.expressions import Expression
from ctmoments.model.model import Model
from ctmoments.moments.equations_text import equation_lines, moment_symbol
from ctmoments.moments.polynomials import Factor, Polynomial, Powers, as_polynomial, coefficients, product, total, unit

REPR_LINES = 24
MAX_EQUATIONS = 20_000


@dataclass(frozen=True, eq=False, repr=False)
class MomentEquations:
    """The derivatives of raw moments up to `order`, as moments in turn; the moment of no powers is 1.

    `equations` maps the powers of a moment to {(powers, factor): number}; `changes` and `rates` are what they came
    from.
    """

    name: str
    species: tuple[str, ...]
    parameters: tuple[str, ...]
    order: int
    changes: tuple[Powers, ...]
    rates: tuple[Polynomial, ...]
    equations: Mapping[Powers, Polynomial]

    @cached_property
    def missing_powers(self) -> tuple[Powers, ...]:
        """The powers of the moments above the order on which the equations depend."""
        found = {powers for terms in self.equations.values() for powers, _ in terms if sum(powers) > self.order}
        return tuple(sorted(found, key=lambda powers: (sum(powers), powers)))

    @property
    def missing(self) -> tuple[str, ...]:
        """The higher moments that the equations would need, such as "E[S*I^2]"."""
        return tuple(moment_symbol(powers, self.species) for powers in self.missing_powers)

    @property
    def closed(self) -> bool:
        """Whether the equations depend on no moment above their order."""
        return not self.missing_powers

    def derivative(self, **powers: int) -> dict[Powers, Expression]:
        """The derivative of one moment: the coefficient of each moment in it.

        >>> from ctmoments.model.model import Model
        >>> eqs = moment_equations(Model({"X": 0}, ["k", "d"], ["0 -> X : k", "X -> 0 : d*X"]))
        >>> {moment: str(coefficient) for moment, coefficient in eqs.derivative(X=1).items()}
        {(0,): 'k', (1,): '-1*d'}
        """
        for name in powers:
            if name not in self.species:
                raise ModelError(f"no species {name!r} in these equations. {nearest(name, self.species)}")
        moment = tuple(powers.get(name, 0) for name in self.species)
        if moment not in self.equations:
            raise ModelError(f"moments of order 1 to {self.order} have equations here, got order {sum(moment)}.")
        return coefficients(self.equations[moment])

    @cached_property
    def covariance_equations(self) -> dict[tuple[int, int], dict[tuple[tuple, Factor], Fraction]]:
        """Cov(x_i, x_j)' = E[x_i x_j]' - E[x_i]' E[x_j] - E[x_i] E[x_j]', as covariances of monomials and moments.

        A term's symbol is ("E", powers) or ("Cov", powers, powers).
        """
        watched = [place for place, powers in enumerate(_units(self.species)) if powers in self.equations]
        pairs = itertools.combinations_with_replacement(watched, 2)
        return {(i, j): self._covariance_equation(i, j) for i, j in pairs}

    def _covariance_equation(self, i: int, j: int) -> dict[tuple[tuple, Factor], Fraction]:
        units = _units(self.species)
        terms: dict[tuple[tuple, Factor], Fraction] = {}

        def add(symbol: tuple, factor: Factor, number: Fraction) -> None:
            terms[symbol, factor] = terms.get((symbol, factor), Fraction(0)) + number

        for change, rate in zip(self.changes, self.rates, strict=True):
            for (powers, factor), number in rate.items():
                for a, b in ((i, j), (j, i)):
                    if change[a] and any(powers):
                        add(("Cov", *sorted((powers, units[b]), key=_widest_first)), factor, number * change[a])
                if change[i] * change[j]:
                    add(("E", powers), factor, number * change[i] * change[j])
        return {key: number for key, number in terms.items() if number}

    def to_text(self, form: str = "raw") -> str:
        """All equations, one a line: of the raw moments, or of the means and covariances (`form="central"`)."""
        return "\n".join(self._lines(form, latex=False))

    def to_latex(self, form: str = "raw") -> str:
        """The equations as the body of an `align` environment."""
        return " \\\\\n".join(self._lines(form, latex=True))

    def _lines(self, form: str, *, latex: bool) -> list[str]:
        if form not in ("raw", "central"):
            raise ModelError(f'`form` must be "raw" or "central", got {form!r}.')
        means = {("E", powers): terms for powers, terms in self.equations.items() if form == "raw" or sum(powers) == 1}
        left = {symbol: {(("E", p), f): x for (p, f), x in terms.items()} for symbol, terms in means.items()}
        if form == "central":
            units = _units(self.species)
            left |= {("Cov", units[i], units[j]): terms for (i, j), terms in self.covariance_equations.items()}
        return equation_lines(left, self.species, latex=latex)

    def __repr__(self) -> str:
        lines = self.to_text().splitlines()
        more = len(lines) - REPR_LINES
        if more > 0:
            lines = [*lines[:REPR_LINES], f"... {more} more: print(equations.to_text())"]
        if self.closed:
            verdict = "closed: no higher moments are needed"
        else:
            more_missing = f" and {len(self.missing) - 6} more" if len(self.missing) > 6 else ""
            shown = ", ".join(self.missing[:6]) + more_missing
            verdict = f"not closed: {shown} would be needed"
        title = f"Moment equations{f' of {self.name}' if self.name else ''} up to order {self.order}, {verdict}"
        return "\n".join([title, *(f"  {line}" for line in lines)])


def moment_equations(model: Model, order: int = 2, *, species: Sequence[str] | None = None) -> MomentEquations:
    """The equations of all raw moments up to an order, of all species or of the chosen ones.

    Rates must be polynomials in the species; a model with other rates is refused by name.

    >>> from ctmoments.model.model import Model
    >>> model = Model({"S": 763, "I": 3, "R": 0}, ["alpha", "beta"],
    ...               ["S + I -> 2 I : beta*S*I", "I -> R : alpha*I"])
    >>> print(moment_equations(model, order=1, species=["S", "I"]))
    Moment equations up to order 1, not closed: E[S*I] would be needed
      E[S]' = -beta*E[S*I]
      E[I]' = beta*E[S*I] - alpha*E[I]
    """
    if order != int(order) or order < 1:
        raise ModelError(f"`order` must be a whole number from 1, got {order!r}.")
    names = tuple(model.species)
    rates = [
        as_polynomial(rate, names, f"reaction {str(reaction)!r}")
        for reaction, rate in zip(model.reactions, model.rates, strict=True)
    ]
    chosen = _chosen(names, species)
    count = math.comb(len(chosen) + order, order) - 1
    if count > MAX_EQUATIONS:
        raise ModelError(f"at most {MAX_EQUATIONS} equations, got {count}. Lower `order` or choose fewer `species`.")
    kept, rates, changes = _restricted(names, chosen, rates, model.stoichiometry.T.tolist())
    moments = sorted(
        (tuple(map(c.count, range(len(kept)))) for n in range(1, order + 1) for c in _draws(kept, chosen, n)),
        key=lambda powers: (sum(powers), _widest_first(powers)),
    )
    equations = {powers: _derivative(powers, changes, rates) for powers in moments}
    return MomentEquations(model.name, kept, model.parameters, int(order), changes, rates, equations)


def _units(species: Sequence[str]) -> list[Powers]:
    return [unit(place, len(species)) for place in range(len(species))]


def _widest_first(powers: Powers) -> tuple:
    return (-sum(powers), [-n for n in powers])


def _chosen(names: tuple[str, ...], species: Sequence[str] | None) -> tuple[str, ...]:
    for name in species or ():
        if name not in names:
            raise ModelError(f"`species` must be of this model, got {name!r}. {nearest(name, names)}")
    return tuple(name for name in names if species is None or name in species)


def _draws(kept: tuple[str, ...], chosen: tuple[str, ...], order: int):
    places = [place for place, name in enumerate(kept) if name in chosen]
    return itertools.combinations_with_replacement(places, order)


def _restricted(
    names: tuple[str, ...], chosen: tuple[str, ...], rates: list[Polynomial], changes: list[list[int]]
) -> tuple[tuple[str, ...], tuple[Polynomial, ...], tuple[Powers, ...]]:
    """Drop the reactions that change no chosen species, and the species that then matter to nothing."""
    index = {name: place for place, name in enumerate(names)}
    active = [k for k, change in enumerate(changes) if any(change[index[name]] for name in chosen)]
    needed = [
        place
        for place, name in enumerate(names)
        if name in chosen or any(powers[place] for k in active for powers, _ in rates[k])
    ]

    def cut(powers: Sequence[int]) -> Powers:
        return tuple(int(powers[place]) for place in needed)

    kept_rates = tuple({(cut(powers), factor): x for (powers, factor), x in rates[k].items()} for k in active)
    return tuple(names[place] for place in needed), kept_rates, tuple(cut(changes[k]) for k in active)


def _derivative(moment: Powers, changes: Sequence[Powers], rates: Sequence[Polynomial]) -> Polynomial:
    """E[x^moment]' = sum over reactions of E[a(x) ((x + s)^moment - x^moment)]."""
    return total(product(rate, _growth(moment, change)) for change, rate in zip(changes, rates, strict=True))


def _growth(moment: Powers, change: Powers) -> Polynomial:
    """(x + s)^moment - x^moment by the binomial theorem."""
    lower = itertools.product(*(range(n + 1) for n in moment))
    terms = {
        (powers, ()): Fraction(
            math.prod(math.comb(n, m) * s ** (n - m) for n, m, s in zip(moment, powers, change, strict=True))
        )
        for powers in lower
        if powers != moment
    }
    return {key: number for key, number in terms.items() if number}
