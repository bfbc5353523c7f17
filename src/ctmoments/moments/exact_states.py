"""What can be known of a chain's states before solving: which are reached, how far outputs range, how to lay them out.

In: a `Chain`. Out: `reachable_states` (enumeration), `output_ranges` (rigorous bounds on linear outputs, or none),
`survey_job` (about how large the job is, and which species runs along the rows of the windows).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from ctmoments.errors import SizeError
from ctmoments.moments.exact_chain import Chain, clean_rates, explain_wrong_rate
from ctmoments.moments.exact_lattice import Lattice, make_lattice

ENUMERATED = 20_000  # states tried to see whether outputs without a conserved bound are bounded after all,
LEVELS = 1_000  # and firings in a row: 0.1 s
PARTICLES = 128
LEAPS = 150
BINS = 16
POWERS_PER_JUMP = 1.5
SECONDS_PER_POWER = 0.5e-9  # for one state of one vector, all overheads of the sweeps in it


def reachable_states(chain: Chain, max_states: int, max_levels: int | None = None) -> np.ndarray:
    """Return all states that can be reached from the start, int64 (species, n), level by level.

    Known states are kept as sorted arrays of doubling size, so a level costs its own size times a logarithm:
    0.17 s for the 294,522 states of the SIR.
    """
    lattice = make_lattice(chain.start, chain.changes)
    bits = 62 // max(lattice.dims, 1)
    places = np.array([1 << (bits * i) for i in range(lattice.dims)], np.int64)
    steps = lattice.moves.T @ places
    middle = int(places.sum()) << (bits - 1)
    frontier = np.array([middle], np.int64)
    known = [frontier]
    for level in itertools.count():
        if not frontier.size:
            break
        z = (frontier // places[:, None]) & ((1 << bits) - 1)
        states = chain.start[:, None] + lattice.basis @ (z - (1 << (bits - 1)))
        rates = clean_rates(chain, states)
        wrong = np.flatnonzero(np.isnan(rates).any(axis=0))
        if wrong.size:
            raise explain_wrong_rate(chain, states[:, wrong[0]])
        found = [frontier[rates[j] > 0] + steps[g] for j, g in enumerate(lattice.groups) if g >= 0]
        frontier = np.unique(np.concatenate(found)) if found else frontier[:0]
        for seen in known:
            frontier = frontier[~_contains(seen, frontier)]
        known.append(frontier)
        while len(known) > 1 and len(known[-2]) < 2 * len(known[-1]):
            known[-2:] = [np.sort(np.concatenate(known[-2:]))]
        if sum(map(len, known)) > max_states or level == max_levels:
            raise SizeError(f"More than max_states = {max_states:,} states can be reached. Raise `max_states`.")
    keys = np.sort(np.concatenate(known))
    z = (keys // places[:, None]) & ((1 << bits) - 1)
    return chain.start[:, None] + lattice.basis @ (z - (1 << (bits - 1)))


def _contains(sorted_keys: np.ndarray, keys: np.ndarray) -> np.ndarray:
    if not len(sorted_keys):
        return np.zeros(len(keys), bool)
    at = np.searchsorted(sorted_keys, keys)
    return sorted_keys[np.minimum(at, len(sorted_keys) - 1)] == keys


def output_ranges(chain: Chain, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return least and largest values of weights (components, species) @ state over what can be reached, or None.

    First over all firings that leave no amount negative (linear programs); where those are unbounded, over an
    enumeration that ends within `ENUMERATED` states. None: unbounded, or not known to be bounded.
    """
    bounds = [(_extreme(chain, w, -1.0), _extreme(chain, w, 1.0)) for w in weights]
    if all(low is not None and high is not None for low, high in bounds):
        low, high = np.array(bounds, np.float64).T
        return low, high
    try:
        values = weights @ reachable_states(chain, ENUMERATED, LEVELS)
    except SizeError:
        return None
    return values.min(axis=1).astype(np.float64), values.max(axis=1).astype(np.float64)


def _extreme(chain: Chain, weights: np.ndarray, sign: float) -> float | None:
    """Return the extreme of weights @ (start + changes @ firings), whole numbers rounded inward, None if unbounded."""
    from scipy.optimize import linprog

    change = weights @ chain.changes
    if not change.any():
        return float(weights @ chain.start)
    result = linprog(-sign * change, A_ub=-chain.changes, b_ub=chain.start, bounds=(0, None), method="highs")
    if result.status != 0:
        return None
    value = float(weights @ chain.start) + float(change @ result.x)
    slack = 1e-6 * (1 + abs(value))
    return float(np.floor(value + slack) if sign > 0 else np.ceil(value - slack))


@dataclass(frozen=True)
class Survey:
    """What a rough simulation says of a job: nothing exact rests on it."""

    order: list[int]  # of the species, for the lattice
    states: float  # about how many the largest window needs
    jumps: float  # about how many uniformised jumps the whole time takes

    def seconds(self, outputs: int) -> float:
        """Return about how long the sweeps take: one vector forward, a quarter of the outputs in the blocks."""
        return self.states * self.jumps * POWERS_PER_JUMP * (1 + outputs / 4) * SECONDS_PER_POWER


def survey_job(chain: Chain, horizon: float) -> Survey:
    """Simulate roughly, and choose the model's order of species, or one that needs less than half the states and rows.

    The rough need does not see the tails: on its word alone the rows of the SIR would run along S, bridge the gap
    between extinction and outbreak there, and hold 220,000 states for 160,000. `states` allows for the tails:
    128 particles reach 2.5 standard deviations where the windows reach 7.
    """
    species = chain.changes.shape[0]
    clouds, leaps = _rough_clouds(chain, horizon)
    if species <= 4:
        orders = [list(order) for order in itertools.permutations(range(species))]
    else:
        orders = [[i for i in range(species) if i != last] + [last] for last in reversed(range(species))]  # own first
    lattices = [make_lattice(chain.start, chain.changes, order) for order in orders]
    if lattices[0].dims == 0:
        return Survey(orders[0], 1.0, 0.0)
    costs = [max(_hull_cost(lattice, cloud) for cloud in clouds) for lattice in lattices]
    best = int(np.argmin(costs))
    best = best if costs[best] < 0.5 * costs[0] else 0
    peaks = [np.nan_to_num(clean_rates(chain, cloud)).sum(axis=0).max() for cloud in clouds]
    jumps = 1.5 * horizon * float(np.average(peaks, weights=leaps))
    dims = lattices[0].dims
    return Survey(orders[best], costs[best] * (7 / 2.5) ** dims, jumps)


def _rough_clouds(chain: Chain, horizon: float) -> tuple[list[np.ndarray], list[float]]:
    """Leap some particles through time, and return where they are now and then, and for how long."""
    generator = np.random.default_rng(0)
    states = np.repeat(chain.start[:, None], PARTICLES, axis=1)
    time, clouds, leaps = 0.0, [], []
    losses = np.maximum(-chain.changes, 0)
    for _ in range(LEAPS):
        rates = np.nan_to_num(clean_rates(chain, states))
        drain = np.median((losses @ rates) / np.maximum(states, 1), axis=1).max(initial=0.0)
        leap = min(horizon / 60, 0.5 / drain if drain > 0 else np.inf)
        firings = generator.poisson(np.minimum(rates * leap, 1e9))
        states = np.clip(states + chain.changes @ firings, 0, 1 << 40)
        time += leap
        clouds.append(states)
        leaps.append(leap)
        if time >= horizon:
            break
    every = max(len(clouds) // 12, 1)
    return clouds[every - 1 :: every], [sum(leaps[i : i + every]) for i in range(0, len(leaps) - every + 1, every)]


def _hull_cost(lattice: Lattice, cloud: np.ndarray) -> float:
    """Estimate states in the hulls of rows, and 24 more for each row, from particles in coarse bins."""
    rest = (cloud - lattice.start[:, None]).astype(np.int64)
    z = np.zeros((lattice.dims, cloud.shape[1]))
    for k, i in enumerate(lattice.pivots):
        z[k] = rest[i] // lattice.basis[i, k]
        rest = rest - np.outer(lattice.basis[:, k], z[k].astype(np.int64))
    low = z.min(axis=1, keepdims=True)
    size = np.maximum((z.max(axis=1, keepdims=True) - low + 1) / BINS, 1.0)
    binned = ((z - low) // size).astype(np.int64)
    _, row = np.unique(binned[:-1], axis=1, return_inverse=True)
    row = row.ravel()
    first, last = np.full(row.max() + 1, BINS), np.zeros(row.max() + 1)
    np.minimum.at(first, row, binned[-1])
    np.maximum.at(last, row, binned[-1])
    rows = float(np.prod(size[:-1]))
    return float(rows * ((last - first + 1) * size[-1] + 24)[last >= first].sum())
