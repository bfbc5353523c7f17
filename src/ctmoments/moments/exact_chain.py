"""A Markov chain on whole numbers, as the exact solver sees it: start, changes, rates, and what a wrong rate is.

In: a start state, the change of each reaction, a function of rates. Out: a `Chain`; its rates with every wrong one
marked (`clean_rates`); an error that names the reaction and the state (`explain_wrong_rate`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ctmoments.errors import ModelError


@dataclass(frozen=True)
class Chain:
    """A Markov chain on whole numbers: start (species,), changes (species, reactions), rates of states (species, n)."""

    start: np.ndarray
    changes: np.ndarray
    rates: Callable[[np.ndarray], np.ndarray]  # (species, n) -> (reactions, n)
    species: Sequence[str] = ()
    reactions: Sequence[str] = ()

    def name_state(self, state: np.ndarray) -> str:
        """Return the state as text, `S = 3, I = 0`."""
        names = self.species or [f"x{i}" for i in range(len(state))]
        return ", ".join(f"{name} = {int(amount)}" for name, amount in zip(names, state, strict=True))

    def name_reaction(self, index: int) -> str:
        return str(self.reactions[index]) if self.reactions else f"reaction {index}"


def clean_rates(chain: Chain, states: np.ndarray) -> np.ndarray:
    """Evaluate all rates (reactions, n); NaN where a rate is negative, not finite, or would leave the whole numbers."""
    with np.errstate(all="ignore"):
        rates = np.array(chain.rates(states), np.float64)
    right = (rates >= 0) & (rates < np.inf)
    if not right.all():
        rates[~right] = np.nan
    for j, change in enumerate(chain.changes.T):
        for i in np.flatnonzero(change < 0):
            short = np.flatnonzero(states[i] < -change[i])
            rates[j, short[rates[j, short] != 0]] = np.nan
    return rates


def explain_wrong_rate(chain: Chain, state: np.ndarray) -> ModelError:
    """Say which reaction cannot fire as asked in a state."""
    with np.errstate(all="ignore"):
        rates = np.array(chain.rates(state[:, None]), np.float64)[:, 0]
    for j, rate in enumerate(rates):
        where = f"reaction {chain.name_reaction(j)!r} at the reachable state {chain.name_state(state)}"
        if not (np.isfinite(rate) and rate >= 0):
            return ModelError(f"A rate must be finite and not negative, got {rate:g} for {where}.")
        if rate > 0 and (state + chain.changes[:, j] < 0).any():
            return ModelError(
                f"A rate must vanish where its reaction lacks reactants, got {rate:g} for {where}. "
                "Multiply the rate by the amounts it uses up."
            )
    raise AssertionError("no rate is wrong here")
