"""The linear noise approximation, and the door to the moment closures.

In: a problem and parameter values. Out: a moments dataset. With S the changes and a(x) the rates, linear noise is the
mean dx/dt = S a(x), the covariance dC/dt = J C + C J^T + S diag(a) S^T with J = S da/dx, and between times Cov(x(t),
x(s)) = Phi(t, s) C(s) with dPhi/dt = J Phi.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr

from ctmoments.data import moments_dataset, variable
from ctmoments.errors import ModelError, SizeError, nearest
from ctmoments.model.problem import Problem
from ctmoments.model.theta import as_theta
from ctmoments.moments.closures import CLOSURES, closure_system, link_system
from ctmoments.moments.gaussian import flowing_links, full_matrices, output_moments, unphysical_points
from ctmoments.moments.lognormal import follow_links
from ctmoments.moments.network import (
    Network,
    observation_weights,
    observed_network,
    require_smooth,
    still_components,
)
from ctmoments.moments.ode import integrate
from ctmoments.moments.system import System, gaussian_system, rate_slopes
from ctmoments.progress import progress_bar

MAX_SPECIES = 100  # 5,050 covariances, and as many squared in the Jacobian of a stiff point: 200 MB
METHODS = ("lna", *CLOSURES)


def approximate_moments(
    problem: Problem, theta: Any, method: str = "lna", *, tolerance: float = 1e-6, progress: bool | None = None
) -> xr.Dataset:
    """Mean and multi-time covariance of the outputs by "lna", linear noise, or a closure.

    The closures are "zero", "normal" and "log-normal" (see `closures.py`).

    Nothing is simulated; the error of the approximation is not known, so `mean_se` and `cov_se` are NaN. `tolerance` is
    that of the integration. `unphysical(point)` marks values that cannot be moments (a negative variance, an indefinite
    covariance, a solution that blew up); they also raise a warning.

    >>> from ctmoments.model.library import load_problem
    >>> lna = approximate_moments(load_problem("sir"), [0.5, 0.002])
    >>> lna["mean"].values[0, :3].round(1).tolist()
    [8.3, 22.4, 56.4]
    """
    if method not in METHODS:
        raise ModelError(
            f"`method` must be one of {', '.join(METHODS)}, got {method!r}. {nearest(str(method), METHODS)}"
        )
    if not 1e-12 <= tolerance <= 1e-2:
        raise ModelError(f"`tolerance` must lie between 1e-12 and 1e-2, got {tolerance!r}.")
    theta = as_theta(problem, theta)
    network = observed_network(problem)
    _require_size(network, method)
    system = linear_noise_system(network) if method == "lna" else closure_system(network, method)
    states = problem.initial_states(theta)[:, network.places].astype(np.float64)
    start = np.zeros((len(system.core), len(states)))
    start[: len(network.species)] = states.T
    columns = np.ascontiguousarray(problem.parameter_columns(theta).T)
    with progress_bar(method, len(states) * len(problem.times), "outputs", progress) as report:
        course = integrate(system, start, columns, np.array(problem.times), tolerance, report)
    width = len(network.species)
    weights = observation_weights(problem, network)
    if method == "log-normal":
        links = follow_links(link_system(network), course.core, columns, np.array(problem.times), weights, tolerance)
    else:
        links = flowing_links(full_matrices(course.core[:, width:], width), course.flow, weights)
    mean, cov = output_moments(course.core[:, :width], links, weights, still_components(problem, network))
    return _dataset(problem, theta, mean, cov, method)


def _require_size(network: Network, method: str) -> None:
    species = len(network.species)
    if species > MAX_SPECIES:
        raise SizeError(
            f"{method}: the covariance of {species} species has {species * (species + 1) // 2} entries; at most "
            f"{MAX_SPECIES} species are taken here. Observe components that depend on fewer species, or simulate."
        )


def _dataset(problem: Problem, theta: xr.DataArray, mean: np.ndarray, cov: np.ndarray, method: str) -> xr.Dataset:
    unphysical = unphysical_points(mean, cov)
    source = "lna" if method == "lna" else "closure"
    unknown = np.full_like(mean, np.nan), np.full_like(cov, np.nan)
    attrs = {"method": method, "unphysical_points": int(unphysical.sum())}
    data = moments_dataset(problem, theta, mean, cov, *unknown, source=source, attrs=attrs)
    data["unphysical"] = variable("unphysical", unphysical)
    if unphysical.any():
        first = np.flatnonzero(unphysical)[0]
        warnings.warn(
            f"{method}: {unphysical.sum()} of {len(unphysical)} points have moments that cannot be (negative variance, "
            f"indefinite covariance, or blown up), the first at point {theta['point'].values[first]}. "
            "They are marked in `unphysical`; use exact_moments or simulate_moments there.",
            stacklevel=3,
        )
    return data


@lru_cache(maxsize=32)
def linear_noise_system(network: Network) -> System:
    """Mean, covariance and flow of the linear noise approximation."""
    require_smooth(network, "the linear noise approximation")
    return gaussian_system(network, network.rates, rate_slopes(network, network.rates))
