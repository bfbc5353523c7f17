"""Files of the command line: folders that must be there, datasets that are read, pictures.

In: paths. Out: a dataset, files, or one line that names the path.
"""

from __future__ import annotations

import os
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


def read_dataset(path: Path) -> xr.Dataset:
    """Read a moments dataset."""
    import xarray as xr

    if not path.exists():
        raise FileError(f"{path} must be a file of moments, and there is none.")
    try:
        if path.suffix == ".zarr":
            opened = xr.open_zarr(path)
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
        from ctmoments.moments.export import write_dataset

        write_dataset(data, out)
        talk.say(f"numbers: {out}")
    if plot is not None:
        from ctmoments.evaluate.figures import plot_moments

        save_picture(plot, lambda figure: plot_moments(data, figure=figure))
        talk.say(f"picture: {plot}")
