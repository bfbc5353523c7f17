"""Moment closures of order 2: mean and covariance from an assumption on the moments above.

In: a network with polynomial rates, and which closure. Out: the closed `System`.

"zero": central moments above order 2 are 0. "normal": they are those of a normal distribution, which differs from
"zero" only where rates are of third order and higher. "log-normal": raw moments E[x_i x_j x_k ...] are those of the
log-normal distribution with this mean and covariance. Between two times, Cov(a(x(t)), x(s)) is closed as J(t)
Cov(x(t), x(s)), with J what the closure gives in the derivative of the covariance; for "zero" and "normal" that is
the same assumption on joint moments (for "normal" by Stein's lemma, J = E[da/dx]), for "log-normal" it is the slope
of the closed mean equation.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache, reduce

from ctmoments.model.expressions import Call, Expression, Name, Number
from ctmoments.moments.network import Network
from ctmoments.moments.polynomials import Powers, as_polynomial, coefficients
from ctmoments.moments.system import (
    ZERO,
    System,
    core_names,
    covariance_names,
    diffusion,
    drift,
    gaussian_system,
    pairs,
    plus,
    rate_slopes,
    scaled,
    times,
)

ONE = Number(1.0)


@lru_cache(maxsize=32)
def closure_system(network: Network, method: str) -> System:
    """The closed equations of mean and covariance, with the flow for two-time covariances."""
    polynomials = [
        coefficients(as_polynomial(rate, network.species, f"reaction {text!r}"))
        for rate, text in zip(network.rates, network.texts, strict=True)
    ]
    expected = [_expected(polynomial, network, method) for polynomial in polynomials]
    if method == "zero":
        return gaussian_system(network, expected, rate_slopes(network, network.rates))
    if method == "normal":
        return gaussian_system(network, expected, rate_slopes(network, expected))
    return _log_normal_system(network, polynomials, expected)


CLOSURES = ("zero", "normal", "log-normal")


def _expected(polynomial: dict[Powers, Expression], network: Network, method: str) -> Expression:
    """E[a(x)] in terms of mean and covariance."""
    moment = _log_normal_moment if method == "log-normal" else _moment_about_mean
    return plus([times(c, moment(powers, network, method)) for powers, c in polynomial.items()])


def _moment_about_mean(powers: Powers, network: Network, method: str) -> Expression:
    """E[x^powers] by the binomial theorem about the mean."""
    lower = itertools.product(*(range(n + 1) for n in powers))
    terms = []
    for part in lower:
        if sum(part) != 1 and sum(part) % 2 == 0 and (method == "normal" or sum(part) <= 2):
            count = math.prod(math.comb(n, k) for n, k in zip(powers, part, strict=True))
            rest = tuple(n - k for n, k in zip(powers, part, strict=True))
            terms.append(scaled(float(count), times(_mean_power(rest, network), _normal_central(part))))
    return plus(terms)


def _mean_power(powers: Powers, network: Network) -> Expression:
    parts = [power_of(Name(name), n) for name, n in zip(network.species, powers, strict=True) if n]
    return reduce(times, parts, ONE)


def power_of(base: Expression, n: int) -> Expression:
    """A whole power."""
    return base if n == 1 else Call("pow", (base, Number(float(n))))


@lru_cache(maxsize=4096)
def _normal_central(powers: Powers) -> Expression:
    """The central moment of a normal distribution: the sum over all pairings of products of covariances (Isserlis)."""
    if not any(powers):
        return ONE
    first = next(i for i, n in enumerate(powers) if n)
    rest = _without(powers, first)
    names = covariance_names(len(powers))
    return plus(
        [scaled(float(n), times(names[first, j], _normal_central(_without(rest, j)))) for j, n in enumerate(rest) if n]
    )


def _without(powers: Powers, place: int) -> Powers:
    return tuple(n - (i == place) for i, n in enumerate(powers))


def _log_normal_moment(powers: Powers, network: Network, method: str = "log-normal") -> Expression:
    """E[x^powers]: exact up to order 2, above it the product of second moments over means that a log-normal has."""
    if sum(powers) <= 2:
        return _moment_about_mean(powers, network, "zero")
    used = [i for i, n in enumerate(powers) if n]
    top, bottom = ONE, ONE
    for i, j in itertools.combinations_with_replacement(used, 2):
        n = powers[i] * (powers[i] - 1) // 2 if i == j else powers[i] * powers[j]
        if n:
            top = times(top, power_of(_second_moment(i, j, network), n))
    for i in used:
        # each second moment brings its two means below, and x_i itself is above: powers 2 - |powers| in all
        bottom = times(bottom, power_of(Name(network.species[i]), powers[i] * (sum(powers) - 2)))
    return Call("if", (bottom, Call("div", (top, bottom)), ZERO))  # a species that is surely absent


def _second_moment(i: int, j: int, network: Network) -> Expression:
    product = times(Name(network.species[i]), Name(network.species[j]))
    return plus([covariance_names(len(network.species))[i, j], product])


def _log_normal_system(
    network: Network, polynomials: list[dict[Powers, Expression]], expected: list[Expression]
) -> System:
    width = len(network.species)

    def with_species(k: int, j: int) -> Expression:
        """Cov(a_k, x_j)."""
        raised = {tuple(n + (i == j) for i, n in enumerate(powers)): c for powers, c in polynomials[k].items()}
        mean = times(expected[k], Name(network.species[j]))
        return Call("sub", (_expected(raised, network, "log-normal"), mean))

    covariance = [
        plus(
            [scaled(float(c[i]), with_species(k, j)) for k, c in enumerate(network.changes) if c[i]]
            + [scaled(float(c[j]), with_species(k, i)) for k, c in enumerate(network.changes) if c[j]]
            + [diffusion(network, expected, i, j)]
        )
        for i, j in pairs(width)
    ]
    equations = (*drift(network, expected), *covariance)
    return System(core_names(network), network.parameters, equations, width, rate_slopes(network, expected))
