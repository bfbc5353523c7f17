"""The gate for parameter values: every form that a person may give becomes one DataArray (point, parameter).

In: an array in the space's order, a flat array (one point; for one parameter, as many points as numbers), a mapping,
a DataFrame, a DataArray. Out: float64, finite, with names and the integer coordinate `point` that addresses paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from ctmoments.errors import ThetaError, nearest
from ctmoments.model.callable import CallableProblem
from ctmoments.model.problem import Problem
from ctmoments.model.space import Integer, Space


def as_theta(problem: Problem | CallableProblem | Space, theta: Any, *, strict: bool = False) -> xr.DataArray:
    """Parameter values as (point, parameter) in the order of the space.

    `strict` refuses values outside the box; else they pass, and those who use them flag them.

    >>> space = Space(alpha=(0.1, 0.9), beta=(1, 2))
    >>> as_theta(space, {"beta": [1, 2], "alpha": 0.5}).values.tolist()
    [[0.5, 1.0], [0.5, 2.0]]
    """
    space = problem if isinstance(problem, Space) else problem.space
    values, points, attrs = _read(space, theta)
    if not len(values):
        raise ThetaError("`theta` must hold at least one point, got none.")
    points = np.arange(len(values)) if points is None else _check_points(points)
    _check_values(space, values, points, strict)
    coords = {"point": points, "parameter": list(space.parameters)}
    return xr.DataArray(values, coords, ("point", "parameter"), name="theta", attrs=attrs)


def _read(space: Space, theta: Any) -> tuple[np.ndarray, np.ndarray | None, dict]:
    """Values in the space's order, point labels where they came along, attrs."""
    if isinstance(theta, xr.Dataset):
        raise ThetaError("`theta` must be parameter values, got a Dataset. Give its variable, data['theta'].")
    if isinstance(theta, xr.DataArray):
        return _from_dataarray(space, theta)
    if isinstance(theta, Mapping):
        return _from_columns(space, theta), None, {}
    if hasattr(theta, "columns") and hasattr(theta, "to_numpy"):  # a DataFrame, without importing pandas
        labelled = getattr(theta.index, "name", None) == "point"
        columns = {name: theta[name].to_numpy() for name in theta.columns}
        return _from_columns(space, columns), theta.index.to_numpy() if labelled else None, {}
    return _from_array(space, _numbers(theta, "`theta`")), None, {}


def _from_array(space: Space, values: np.ndarray) -> np.ndarray:
    count = len(space.parameters)
    if values.ndim <= 1 and count == 1:
        return values.reshape(-1, 1)
    if values.ndim == 1 and len(values) == count:
        return values.reshape(1, -1)
    if values.ndim == 2 and values.shape[1] == count:
        return values
    wanted = f"(points, {count}) or ({count},), in the order {', '.join(space.parameters)}"
    raise ThetaError(f"`theta` must have shape {wanted}; got {values.shape}.")


def _from_columns(space: Space, columns: Mapping[Any, Any]) -> np.ndarray:
    for name in columns:
        if name not in space.entries:
            raise ThetaError(f"`theta`: unknown parameter {name!r}. {nearest(str(name), space.entries)}")
    for name in space.parameters:
        if name not in columns:
            raise ThetaError(f"`theta` must give every parameter that varies, but {name!r} is missing.")
    arrays = {name: np.atleast_1d(_numbers(column, f"`theta`: {name!r}")) for name, column in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items() if array.shape != (1,)}
    for name, array in arrays.items():
        if array.ndim > 1 or len(set(lengths.values())) > 1:
            shapes = {name: array.shape for name, array in arrays.items()}
            raise ThetaError(f"`theta`: columns must be numbers or flat arrays of one length, got shapes {shapes}.")
        if name in space.fixed and not (array == space.fixed[name]).all():
            raise ThetaError(
                f"`theta`: {name!r} is fixed at {space.fixed[name]!r} and must be left out or equal it, "
                f"got {array[array != space.fixed[name]][0].item()!r}."
            )
    count = next(iter(lengths.values()), 1)
    return np.stack([np.broadcast_to(arrays[name], count) for name in space.parameters], axis=1)


def _from_dataarray(space: Space, theta: xr.DataArray) -> tuple[np.ndarray, np.ndarray | None, dict]:
    if "parameter" not in theta.dims or not {"point", "parameter"} >= set(theta.dims):
        raise ThetaError(f"`theta` must have the dims (point, parameter), got {theta.dims}.")
    points = np.atleast_1d(theta["point"].values) if "point" in theta.coords else None
    theta = theta.expand_dims("point") if "point" not in theta.dims else theta.transpose("point", "parameter")
    values = _numbers(theta.values, "`theta`")
    if "parameter" in theta.coords:
        names = theta["parameter"].values.tolist()
        if len(set(names)) < len(names):
            raise ThetaError(f"`theta`: parameters must differ, got {names}.")
        values = _from_columns(space, dict(zip(names, values.T, strict=True))) if len(values) else values
    return _from_array(space, values) if len(values) else values, points, dict(theta.attrs)


def _numbers(values: Any, place: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        raise ThetaError(f"{place} must be a rectangle of numbers, got rows of different lengths.") from None
    if array.dtype.kind not in "iuf":
        empty = array.size == 0 and array.dtype.kind == "O"
        raise ThetaError(f"{place} must be real numbers, got {'nothing' if empty else array.dtype.name}.")
    return array.astype(np.float64)


def _check_points(points: np.ndarray) -> np.ndarray:
    if points.dtype.kind not in "iu" or (points < 0).any() or (points > np.iinfo(np.int64).max).any():
        raise ThetaError("`theta`: the coordinate `point` must be whole numbers from 0 on, for it addresses paths.")
    labels, counts = np.unique(points, return_counts=True)
    if (counts > 1).any():
        raise ThetaError(f"`theta`: the coordinate `point` must not repeat, got {labels[counts > 1][0]} twice.")
    return points.astype(np.int64)


def _check_values(space: Space, values: np.ndarray, points: np.ndarray, strict: bool) -> None:
    for column, (name, dimension) in enumerate(space.dimensions.items()):
        got = values[:, column]
        checks = [("be finite", np.isfinite(got))]
        if isinstance(dimension, Integer):
            checks.append(("be a whole number", got == np.round(got)))
        if strict:
            box = f"lie in [{dimension.low!r}, {dimension.high!r}]"
            checks.append((box, (dimension.low <= got) & (got <= dimension.high)))
        for condition, holds in checks:
            if not holds.all():
                row = int(np.argmin(holds))
                raise ThetaError(f"`theta`: {name!r} must {condition}, got {got[row].item()!r} at point {points[row]}.")
