"""Moments datasets as text for people and as records for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctmoments.use.talk import short, table

if TYPE_CHECKING:
    import xarray as xr

ROWS = 12  # points in the printed table
COMPONENTS = 3  # components in the printed table


def moments_record(data: xr.Dataset) -> dict[str, Any]:
    """Parameter values, mean, its standard error and the standard deviation, for JSON; covariances are for files."""
    return {
        "component": data["component"].values,
        "time": data["time"].values,
        "theta": {str(name): data["theta"].sel(parameter=name).values for name in data["parameter"].values},
        "mean": data["mean"].values,
        "mean_se": data["mean_se"].values,
        "sd": np.sqrt(np.diagonal(data["cov"].values, axis1=1, axis2=2)),
    }


def moments_table(data: xr.Dataset) -> str:
    """Mean, its standard error and the standard deviation at the last time, point by point."""
    components = list(dict.fromkeys(data["component"].values.tolist()))
    times = data["time"].values
    last = [np.flatnonzero(data["component"].values == component)[-1] for component in components[:COMPONENTS]]
    errors = bool(data["mean_se"].any())  # exact moments have none
    header = [*map(str, data["parameter"].values)]
    for component, output in zip(components, last, strict=False):
        header += [f"mean {component}({short(float(times[output]))})", *(["se"] if errors else []), "sd"]
    rows = []
    for point in range(min(ROWS, data.sizes["point"])):
        row = [short(value, 6) for value in data["theta"].values[point].tolist()]
        for output in last:
            mean, error, variance = (data[name].values[point, ..., output] for name in ("mean", "mean_se", "cov"))
            row += [short(float(number)) for number in (mean, error)[: 1 + errors]]
            row.append(short(float(np.sqrt(variance[output]))))
        rows.append(row)
    lines = table(header, rows)
    more = data.sizes["point"] - ROWS
    left = [f"{more} more points"] if more > 0 else []
    left += [f"{len(components) - COMPONENTS} more components"] if len(components) > COMPONENTS else []
    return lines + (f"\n  ... and {' and '.join(left)}" if left else "")
