"""Moments datasets in files: NetCDF (h5netcdf) and Zarr. Written beside first, then renamed.

In: a dataset and a path. Out: a file that xarray opens, equal to what was written; or a dataset.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ctmoments.errors import FileError
from ctmoments.use.talk import Talk

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

SUFFIXES = (".nc", ".zarr")
NEEDED = ("theta", "mean", "cov", "mean_se", "cov_se", "replicates")


def make_folder(folder: Path) -> None:
    """A folder that can be written to, made where it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} must be a folder: {error.strerror or error}.") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(f"{folder} must be a folder that can be written to, and it is read-only.")


def write_dataset(data: xr.Dataset, path: Path) -> None:
    """Write a dataset; an older file of that name is replaced."""
    beside = path.with_name(f"{path.stem}.part{path.suffix}")
    _remove(beside)
    try:
        if path.suffix == ".zarr":
            _write_zarr(data, beside)
        else:
            data.to_netcdf(beside, engine="h5netcdf")
        _remove(path) if path.is_dir() else None
        beside.replace(path)
    finally:
        _remove(beside)


def read_dataset(path: Path) -> xr.Dataset:
    """Read a moments dataset."""
    import xarray as xr

    if not path.exists():
        raise FileError(f"{path} must be a file of moments, and there is none.")
    try:
        if path.suffix == ".zarr":
            opened = xr.open_zarr(path, consolidated=False)
        else:
            opened = xr.open_dataset(path, engine="h5netcdf")
        with opened:
            data = opened.load()
    except ImportError:
        raise FileError(f"{path}: reading Zarr needs the package zarr: pip install 'ctmoments[zarr]'.") from None
    except (OSError, ValueError, KeyError) as error:
        raise FileError(f"{path} must be a dataset in {' or '.join(SUFFIXES)}: {error}.") from None
    missing = [name for name in NEEDED if name not in data]
    if missing:
        raise FileError(f"{path} must hold moments as ctmoments writes them, but {missing[0]!r} is missing.")
    return data


def _write_zarr(data: xr.Dataset, path: Path) -> None:
    try:
        import zarr  # noqa: F401
    except ImportError:
        raise FileError("writing Zarr needs the package zarr: pip install 'ctmoments[zarr]'.") from None
    # Zarr's third format has variable-length text and warns of NumPy's fixed-length text
    text = {name: variable.astype(object) for name, variable in data.coords.items() if variable.dtype.kind == "U"}
    data.assign_coords(text).to_zarr(path, mode="w", consolidated=False)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def save_picture(path: Path, draw: Callable[[Figure], object]) -> None:
    """Draw on a figure of its own, without a display, and write it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure()
    FigureCanvasAgg(figure)
    draw(figure)
    figure.savefig(path)


def check_targets(*paths: Path | None) -> None:
    """Refuse, before anything runs, a file that could not be written afterwards; missing folders are made."""
    for path in paths:
        if path is not None:
            make_folder(path.absolute().parent)


def write_results(data: xr.Dataset, out: Path | None, plot: Path | None, talk: Talk) -> None:
    """The dataset and its picture, where asked for."""
    if out is not None:
        write_dataset(data, out)
        talk.say(f"numbers: {out}")
    if plot is not None:
        from ctmoments.evaluate.figures import plot_moments

        save_picture(plot, lambda figure: plot_moments(data, figure=figure))
        talk.say(f"picture: {plot}")
