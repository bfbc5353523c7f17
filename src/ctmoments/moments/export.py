"""Moments as a file that others read: NetCDF or Zarr, through xarray.

In: a store, or a dataset. Out: the moments dataset, whole or nothing: it is written beside and then renamed.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import xarray as xr

from ctmoments.errors import FileError, InputError
from ctmoments.model.callable import CallableProblem
from ctmoments.model.problem import Problem
from ctmoments.moments.estimate import store_moments


def export_store(
    store: str | Path,
    out: str | Path,
    *,
    on_failure: str = "nan",
    problem: Problem | CallableProblem | None = None,
    overwrite: bool = False,
) -> xr.Dataset:
    """Write the moments of a finished store to `out` (.nc or .zarr), and return them."""
    out = Path(out)
    _check_target(out)
    if out.exists() and not overwrite:
        raise FileError(f"{out} exists already; allow it to be overwritten, or name another file.")
    data = store_moments(store, on_failure=on_failure, problem=problem)
    write_dataset(data, out)
    return data


def write_dataset(data: xr.Dataset, out: Path) -> None:
    """Write a moments dataset to `out` (.nc or .zarr); an older file of that name is replaced."""
    _check_target(out)
    beside = out.with_name(f".{out.name}.part")
    try:
        _remove(beside)
        if out.suffix == ".zarr":
            data.to_zarr(beside, zarr_format=2)  # read by every Zarr there is
        else:
            data.to_netcdf(beside, engine="h5netcdf")
        if out.is_dir():
            _remove(out)
        beside.replace(out)
    except OSError as error:
        _remove(beside)
        raise FileError(f"{out} cannot be written: {error.strerror or error}.") from None


def _check_target(out: Path) -> None:
    if out.suffix not in (".nc", ".zarr"):
        raise InputError(f"`out` must end in .nc or .zarr, got {str(out)!r}.")
    if out.suffix == ".zarr" and importlib.util.find_spec("zarr") is None:
        raise InputError("writing .zarr needs zarr: pip install 'ctmoments[zarr]', or write .nc.")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
