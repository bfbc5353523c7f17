"""The log-normal closure: above order 2, raw moments are those of the log-normal distribution with the same first two.

In: a network and its polynomial rates. Out: the closed equations at single times, and those of the link K = Cov(x(t),
x(s)) for t > s, where x(t) and x(s) together are taken as log-normal. They are not linear in K, so no flow serves all
s: each output time starts a link of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from ctmoments.model.expressions import Call, Expression, Name, Number
from ctmoments.moments.gaussian import full_matrices
from ctmoments.moments.network import Network
from ctmoments.moments.ode import integrate
from ctmoments.moments.polynomials import Powers
from ctmoments.moments.system import (
    ZERO,
    System,
    core_names,
    covariance_names,
    diffusion,
    drift,
    pairs,
    plus,
    scaled,
    times,
)

ONE = Number(1.0)
Rates = Sequence[Mapping[Powers, Expression]]


@dataclass(frozen=True)
class Joint:
    """Variables that are log-normal together: their means and their covariances by (i, j), i <= j."""

    means: tuple[Expression, ...]
    covariances: Mapping[tuple[int, int], Expression]

    def second(self, i: int, j: int) -> Expression:
        """E[x_i x_j]."""
        return plus([self.covariances[i, j], times(self.means[i], self.means[j])])

    def moment(self, powers: Powers) -> Expression:
        """E[x^powers]: second moments over means; 0 where a variable is surely absent."""
        used = [i for i, n in enumerate(powers) if n]
        if sum(powers) <= 1:
            return self.means[used[0]] if used else ONE
        counts = {
            (i, j): powers[i] * (powers[i] - 1) // 2 if i == j else powers[i] * powers[j]
            for i, j in itertools.combinations_with_replacement(used, 2)
        }
        top = reduce(times, [_power(self.second(*pair), n) for pair, n in counts.items() if n])
        if sum(powers) == 2:
            return top
        bottom = reduce(times, [_power(self.means[i], powers[i] * (sum(powers) - 2)) for i in used])
        return Call("if", (bottom, Call("div", (top, bottom)), ZERO))

    def covariance(self, rate: Mapping[Powers, Expression], place: int) -> Expression:
        """Cov(a, x_place) for a rate in the variables."""
        return plus([times(c, self._with(powers, place)) for powers, c in rate.items() if any(powers)])

    def _with(self, powers: Powers, place: int) -> Expression:
        if sum(powers) == 1:
            i = powers.index(1)
            return self.covariances[min(i, place), max(i, place)]
        raised = tuple(n + (i == place) for i, n in enumerate(powers))
        return Call("sub", (self.moment(raised), times(self.moment(powers), self.means[place])))


def _power(base: Expression, n: int) -> Expression:
    return base if n == 1 else Call("pow", (base, Number(float(n))))


def _at_once(network: Network) -> Joint:
    return Joint(tuple(map(Name, network.species)), covariance_names(len(network.species)))


def log_normal_system(network: Network, rates: Rates) -> System:
    """Mean and covariance at single times."""
    now, width = _at_once(network), len(network.species)
    expected = [plus([times(c, now.moment(powers)) for powers, c in rate.items()]) for rate in rates]

    def moved(i: int, j: int) -> list[Expression]:
        return [scaled(c[i], now.covariance(rate, j)) for rate, c in zip(rates, network.changes, strict=True) if c[i]]

    covariance = [plus([*moved(i, j), *moved(j, i), diffusion(network, expected, i, j)]) for i, j in pairs(width)]
    return System(core_names(network), network.parameters, (*drift(network, expected), *covariance))


def log_normal_link(network: Network, rates: Rates) -> System:
    """Mean, covariance and K at t, given the mean at s as further parameters."""
    width, single = len(network.species), log_normal_system(network, rates)
    links = {(i, j): Name(f"link {i},{j}") for i in range(width) for j in range(width)}
    then = tuple(f"then {j}" for j in range(width))
    equations = []
    for i, j in links:
        both = Joint(
            (*map(Name, network.species), Name(then[j])),
            covariance_names(width) | {(k, width): links[k, j] for k in range(width)},
        )
        equations.append(
            plus(
                [
                    scaled(change[i], both.covariance({(*powers, 0): c for powers, c in rate.items()}, width))
                    for rate, change in zip(rates, network.changes, strict=True)
                    if change[i]
                ]
            )
        )
    names = tuple(link.name for link in links.values())
    return System((*single.core, *names), (*network.parameters, *then), (*single.equations, *equations))


def follow_links(
    system: System,
    core: np.ndarray,
    parameters: np.ndarray,
    output_times: np.ndarray,
    weights: np.ndarray,
    tolerance: float,
) -> Iterator[np.ndarray]:
    """What `flowing_links` gives, from the core (time, c, point) at all outputs: a course from each output time."""
    width, last, points = weights.shape[1], len(output_times) - 1, core.shape[2]
    now = full_matrices(core[:, width:], width)
    spread = np.moveaxis(now, -1, 1) @ weights.T
    starts = [np.vstack([core[s], now[s].reshape(-1, points)]) for s in range(last)]
    given = [np.vstack([parameters, core[s, :width]]) for s in range(last)]
    later = np.minimum(np.arange(1, last + 1)[:, None] + np.arange(last), last)  # (step, s), the last one repeated
    durations = np.repeat(output_times[later] - output_times[:last], points, axis=1)
    if last:
        course = integrate(system, np.hstack(starts), np.hstack(given), durations, tolerance).core
        found = course[:, core.shape[1] :].reshape(last, width, width, last, points).transpose(3, 0, 4, 1, 2)
        moved = found @ weights.T  # (s, step, point, n, component)
    for t in range(last + 1):
        yield np.concatenate([*(moved[s, t - s - 1] for s in range(t)), spread[t]], axis=2)
