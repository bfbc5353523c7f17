"""Moment closures of order 2: mean and covariance from an assumption on the moments above.

In: a network with polynomial rates, and which closure. Out: the closed `System`.

"zero": central moments above order 2 are 0. "normal": they are those of a normal distribution, which differs from
"zero" only where rates are of third order and higher. "log-normal": see `lognormal.py`. The assumption is made of the
amounts at two times together, too: for "zero" and "normal" then Cov(a(x(t)), x(s)) = J Cov(x(t), x(s)), with J the
slope of the rates at the mean ("zero") or their mean slope ("normal", by Stein's lemma), so that one flow serves all
times.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache, reduce

from ctmoments.model.expressions import Call, Expression, Name, Number
from ctmoments.moments.lognormal import log_normal_link, log_normal_system
from ctmoments.moments.network import Network
from ctmoments.moments.polynomials import Powers, as_polynomial, coefficients
from ctmoments.moments.system import System, covariance_names, gaussian_system, plus, rate_slopes, scaled, times

CLOSURES = ("zero", "normal", "log-normal")
ONE = Number(1.0)


@lru_cache(maxsize=32)
def closure_system(network: Network, method: str) -> System:
    """The closed equations of mean and covariance, with the flow for two-time covariances."""
    polynomials = polynomial_rates(network)
    if method == "log-normal":
        return log_normal_system(network, polynomials)
    expected = [_expected(polynomial, network, method) for polynomial in polynomials]
    if method == "zero":
        return gaussian_system(network, expected, rate_slopes(network, network.rates))
    return gaussian_system(network, expected, rate_slopes(network, expected))


@lru_cache(maxsize=32)
def link_system(network: Network) -> System:
    """The equations between two times of the log-normal closure."""
    return log_normal_link(network, polynomial_rates(network))


def polynomial_rates(network: Network) -> list[dict[Powers, Expression]]:
    """Each rate as the coefficient of each monomial; one that is no polynomial is refused by name."""
    return [
        coefficients(as_polynomial(rate, network.species, f"reaction {text!r}"))
        for rate, text in zip(network.rates, network.texts, strict=True)
    ]


def _expected(polynomial: dict[Powers, Expression], network: Network, method: str) -> Expression:
    """E[a(x)] in terms of mean and covariance."""
    return plus([times(c, moment_about_mean(powers, network, method)) for powers, c in polynomial.items()])


def moment_about_mean(powers: Powers, network: Network, method: str) -> Expression:
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
