"""Every variable of a ctmoments dataset: name, dims, dtype, unit, meaning; and the constructors that use them.

Simulated, exact, approximated and predicted moments have the same variables, so metrics, plots and the explorer
have one code path for all of them. What a method cannot tell is NaN, never zero.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ctmoments.errors import SizeError, Status

if TYPE_CHECKING:
    from ctmoments.model.callable import CallableProblem
    from ctmoments.model.problem import Problem

xr.DataArray(0.0)  # where dask is installed xarray imports it with its first array: 0.2 s, better here than there


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One entry: what an array is called, how it is shaped, and what it means."""

    dims: tuple[str, ...]
    dtype: str
    unit: str
    meaning: str


VARIABLES: Mapping[str, Variable] = {
    "theta": Variable(
        dims=("point", "parameter"), dtype="float64", unit="of the parameter", meaning="parameter values"
    ),
    "paths": Variable(
        dims=("point", "replicate", "output"), dtype="float64", unit="of the output", meaning="outputs of each path"
    ),
    "status": Variable(
        dims=("point", "replicate"), dtype="int8", unit="1", meaning="how the path ended (errors.Status)"
    ),
    "mean": Variable(dims=("point", "output"), dtype="float64", unit="of the output", meaning="mean"),
    "cov": Variable(
        dims=("point", "output", "output_"), dtype="float64", unit="of the output, squared", meaning="covariance"
    ),
    "mean_se": Variable(
        dims=("point", "output"), dtype="float64", unit="of the output", meaning="standard error of the mean"
    ),
    "cov_se": Variable(
        dims=("point", "output", "output_"),
        dtype="float64",
        unit="of the output, squared",
        meaning="standard error of the covariance",
    ),
    "replicates": Variable(
        dims=("point",), dtype="int64", unit="1", meaning="simulated paths that the moments rest on; 0: none simulated"
    ),
    "status_count": Variable(dims=("point", "status"), dtype="int64", unit="1", meaning="paths by how they ended"),
    "mean_bound": Variable(
        dims=("point", "output"), dtype="float64", unit="of the output", meaning="bound on the error of the mean"
    ),
    "cov_bound": Variable(
        dims=("point",),
        dtype="float64",
        unit="of the output, squared",
        meaning="bound on the Frobenius norm of the error of the covariance",
    ),
    "lost_mass": Variable(
        dims=("point",), dtype="float64", unit="1", meaning="probability of the paths that the solver let go"
    ),
    "states": Variable(dims=("point",), dtype="int64", unit="1", meaning="most states that the solver held at once"),
    "probability": Variable(
        dims=("point", "output", "value"),
        dtype="float64",
        unit="1",
        meaning="probability that the output has the value",
    ),
    "absorbed": Variable(
        dims=("point", "output"), dtype="float64", unit="1", meaning="probability that no reaction can fire any more"
    ),
    "joint": Variable(
        dims=("point", "instant", "state"), dtype="float64", unit="1", meaning="probability of the state"
    ),
    "amount": Variable(dims=("state", "species"), dtype="int64", unit="1", meaning="amounts of the species in a state"),
    "unphysical": Variable(
        dims=("point",),
        dtype="bool",
        unit="1",
        meaning="whether values cannot be moments: not finite, a negative variance, an indefinite covariance",
    ),
    "in_domain": Variable(dims=("point",), dtype="bool", unit="1", meaning="whether theta lies inside the box"),
}


def variable(name: str, values: Any) -> tuple[tuple[str, ...], np.ndarray, dict[str, str]]:
    """The (dims, values, attrs) of a variable by its entry, as xarray's constructors take it."""
    entry = VARIABLES[name]
    return entry.dims, np.asarray(values, entry.dtype), {"unit": entry.unit, "long_name": entry.meaning}


def output_coords(problem: Problem | CallableProblem, dim: str) -> dict[str, tuple[str, Any]]:
    """The coordinates component and time of the dimension `output` (or `output_`)."""
    suffix = dim.removeprefix("output")
    return {
        f"component{suffix}": (dim, np.asarray(problem.output_components, dtype=object).astype(str)),
        f"time{suffix}": (dim, np.asarray(problem.output_times, np.float64)),
    }


def dataset_attrs(problem: Problem | CallableProblem, source: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    """The attrs of every dataset: source, problem, version, and what the maker adds."""
    from ctmoments import __version__

    attrs = {"source": source, "problem": problem.to_toml(), "ctmoments_version": __version__}
    return attrs | {key: attr_value(value) for key, value in extra.items() if value is not None}


def attr_value(value: Any) -> Any:
    """A value that NetCDF and Zarr attributes can hold: numbers and text as they are, the rest as JSON."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, np.integer)):
        return int(value) if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, (str, float, np.floating)):
        return value
    return json.dumps(value)


def require_memory(what: str, size: float) -> None:
    """Refuse arrays that this machine cannot hold, before anything runs. `size` is in bytes."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on this system: let the allocation speak
        return
    if size > 0.8 * memory:
        raise SizeError(
            f"{what} would take {size / 1e9:,.0f} GB of memory and this machine has {memory / 1e9:,.0f}."
            " Take fewer points, replicates or outputs at a time."
        )


def moments_dataset(
    problem: Problem | CallableProblem,
    theta: xr.DataArray,
    mean: np.ndarray,
    cov: np.ndarray,
    mean_se: np.ndarray,
    cov_se: np.ndarray,
    *,
    source: str,
    replicates: np.ndarray | int = 0,
    status_count: np.ndarray | None = None,
    in_domain: np.ndarray | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """The one shape of moments: (point, output) and (point, output, output_), with everything that explains them."""
    points = theta.sizes["point"]
    variables = {
        "theta": variable("theta", theta.values),
        "mean": variable("mean", mean),
        "cov": variable("cov", cov),
        "mean_se": variable("mean_se", mean_se),
        "cov_se": variable("cov_se", cov_se),
        "replicates": variable("replicates", np.broadcast_to(replicates, points)),
    }
    coords: dict[str, Any] = {"point": theta["point"].values, "parameter": theta["parameter"].values}
    coords |= output_coords(problem, "output") | output_coords(problem, "output_")
    if status_count is not None:
        variables["status_count"] = variable("status_count", status_count)
        coords["status"] = [status.name.lower() for status in Status]
    if in_domain is not None:
        variables["in_domain"] = variable("in_domain", in_domain)
    return xr.Dataset(variables, coords, dataset_attrs(problem, source, attrs or {}))


def paths_array(
    problem: Problem | CallableProblem,
    theta: xr.DataArray,
    values: np.ndarray,
    status: np.ndarray,
    *,
    first_replicate: int,
    attrs: Mapping[str, Any] | None = None,
) -> xr.DataArray:
    """Paths (point, replicate, output) with their parameter values and their ends as coordinates."""
    dims, values, about = variable("paths", values)
    coords: dict[str, Any] = {
        "point": theta["point"].values,
        "replicate": first_replicate + np.arange(values.shape[1]),
        "status": variable("status", status),
    }
    # a coordinate of an array may only have the array's dims: one for each parameter instead of theta(point, parameter)
    for name, column in zip(theta["parameter"].values, theta.values.T, strict=True):
        coords[f"theta_{name}"] = ("point", column)
    coords |= output_coords(problem, "output")
    return xr.DataArray(
        values, coords, dims, name="paths", attrs=about | dataset_attrs(problem, "simulated", attrs or {})
    )
