"""Pictures of moments: the mean with its band, the covariance and the correlation, a row for each parameter value.

In: any moments dataset (simulated, exact, approximated, predicted). Out: matplotlib axes (point, 3). Every picture of
the package has the look of `style.py`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ctmoments.errors import InputError
from ctmoments.evaluate.style import FAINT, INK, line, signed_colours, style

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

ROWS = 4  # parameter values in one picture unless asked for more
ROW_SIZE = (11.2, 2.9)  # inches
HEADLINE = 0.45  # inches
MARKED = 60  # in a larger matrix dashes would touch: a dashed line runs around what is negative
HARD_SPACE = "\N{NO-BREAK SPACE}"  # keeps a name and its value on one line
TITLE = 58  # characters in a line of a title
POINTS = 30  # a longer time axis has no markers on its lines
SMALL = 0.03  # share of the largest entry below which the sign of a cell is not marked
SHOWN_ERROR = 0.01  # standard errors are drawn where they pass this share of the panel's height


def plot_moments(
    data: xr.Dataset, point: int | Iterable[int] | None = None, figure: Figure | None = None
) -> np.ndarray:
    """Mean with a band of one standard deviation, covariance and correlation; axes (point, 3).

    `point` chooses rows by their position (default: the first 4); bars on the mean are two standard errors.

    >>> import ctmoments as ctm
    >>> data = ctm.simulate_moments(ctm.load_problem("sir"), [0.5, 0.002], replicates=100, seed=1)
    >>> ctm.plot_moments(data).shape
    (1, 3)
    """
    chosen = _chosen(data, point)
    with style():
        figure = sized_figure(figure, ROW_SIZE[0], ROW_SIZE[1] * len(chosen) + HEADLINE)
        return draw_moments(figure, data.isel(point=chosen), headline(data))


def sized_figure(figure: Figure | None, width: float, height: float) -> Figure:
    """A figure of this size in inches: the given one, or a new one that notebooks show."""
    if figure is None:
        from matplotlib import pyplot

        figure = pyplot.figure()
    figure.set_size_inches(width, height)
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08)
    return figure


def draw_moments(figure: FigureBase, data: xr.Dataset, title: str) -> np.ndarray:
    """A row for each point of `data` on a figure or a part of one."""
    axes = figure.subplots(data.sizes["point"], 3, squeeze=False, width_ratios=[1.45, 1, 1])
    write_headline(figure, title)
    for number, row in enumerate(axes):
        one = data.isel(point=number)
        _draw_mean(row[0], one, legend=number == 0)
        cov = one["cov"].values
        draw_matrix(row[1], one, cov, "covariance", np.nanmax(np.abs(cov), initial=0.0))
        draw_matrix(row[2], one, correlation(cov), "correlation", 1.0)
    return axes


def write_headline(figure: FigureBase, title: str) -> None:
    """The title of a figure or of a part of one."""
    figure.suptitle(title, x=0.012, ha="left", fontsize=11, fontweight="bold")


def correlation(cov: np.ndarray) -> np.ndarray:
    """The correlation of a covariance; NaN where an output does not vary.

    >>> correlation(np.array([[4.0, 1.0], [1.0, 1.0]])).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    sd = np.sqrt(np.diagonal(cov))
    sd = np.where(sd > 0, sd, np.nan)
    return cov / np.multiply.outer(sd, sd)


def theta_text(data: xr.Dataset) -> str:
    """The parameter values of one point as a title."""
    pairs = zip(data["parameter"].values, data["theta"].values, strict=True)
    return ", ".join(f"{name}{HARD_SPACE}={HARD_SPACE}{value:.4g}" for name, value in pairs)


def _chosen(data: xr.Dataset, point: int | Iterable[int] | None) -> list[int]:
    count = data.sizes["point"]
    if point is None:
        return list(range(min(ROWS, count)))
    chosen = [point] if isinstance(point, int | np.integer) else list(point)
    for index in chosen:
        if not -count <= index < count:
            raise InputError(f"`point` must be a position from 0 to {count - 1}, got {index}.")
    if not chosen:
        raise InputError("`point` must name at least one position, got none.")
    return [int(index) for index in chosen]


def headline(data: xr.Dataset) -> str:
    """What a dataset is, in a line."""
    import tomllib

    name = tomllib.loads(data.attrs.get("problem", "")).get("name", "")
    source = str(data.attrs.get("source", "moments"))
    words = {
        "simulated": "simulated moments",
        "exact": "exact moments",
        "lna": "linear noise approximation",
        "predicted": "predicted moments",
    }.get(source, source)
    most = int(data["replicates"].max())
    paths = f", {most:,} path{'s' if most > 1 else ''} at each value" if most else ""
    return f"{name}: {words}{paths}" if name else words[0].upper() + words[1:] + paths


def _draw_mean(ax: Axes, one: xr.Dataset, legend: bool) -> None:
    components, times = one["component"].values, one["time"].values
    names = list(dict.fromkeys(components.tolist()))
    sd = np.sqrt(np.diagonal(one["cov"].values))
    mean, error = one["mean"].values, 2 * one["mean_se"].values
    reach: np.ndarray = np.concatenate([mean - np.nan_to_num(sd), mean + np.nan_to_num(sd)])
    visible = np.nan_to_num(error).max() > SHOWN_ERROR * np.ptp(reach)
    for index, name in enumerate(names):
        at, last = components == name, index == len(names) - 1
        look: dict[str, Any] = line(index) | ({"marker": ""} if at.sum() > POINTS else {})
        colour = look["color"]
        ax.plot(times[at], mean[at], label=f"mean of {name}" if len(names) == 1 else name, zorder=3, **look)
        if np.isfinite(sd).any():
            ax.fill_between(
                times[at], (mean - sd)[at], (mean + sd)[at], color=colour, alpha=0.16, linewidth=0,
                label="± 1 standard deviation" if last else None,
            )  # fmt: skip
        if visible and at.sum() > POINTS:
            ax.fill_between(
                times[at], (mean - error)[at], (mean + error)[at], color=colour, alpha=0.4, linewidth=0,
                label="± 2 standard errors" if last else None,
            )  # fmt: skip
        elif visible:
            ax.errorbar(
                times[at], mean[at], error[at], fmt="none", ecolor=colour, elinewidth=1.1, capsize=1.8, capthick=0.9,
                label="± 2 standard errors" if last else None,
            )  # fmt: skip
    outside = "in_domain" in one and not bool(one["in_domain"])
    ax.set_title(textwrap.fill(theta_text(one), TITLE) + ("  (outside the box)" if outside else ""))
    ax.set_xlabel("time")
    ax.set_ylabel(f"mean of {names[0]}" if len(names) == 1 else "mean")
    ax.margins(x=0.02)
    if not np.isfinite(mean).any():
        ax.text(0.5, 0.5, "no moments here: NaN", transform=ax.transAxes, ha="center", va="center", color=FAINT)
    elif legend:
        ax.legend(loc="best", handlelength=2.4, ncols=2 if len(names) > 3 else 1)


def draw_matrix(ax: Axes, one: xr.Dataset | xr.DataArray, matrix: np.ndarray, what: str, top: float) -> None:
    """A matrix over outputs as a picture; the first output is at the top left."""
    count = len(matrix)
    top = top or 1.0
    image = ax.imshow(matrix, cmap=signed_colours(), vmin=-top, vmax=top, interpolation="nearest", aspect="equal")
    ax.set_facecolor("#ececec")  # what is not known is grey
    if count <= MARKED:
        rows, columns = np.nonzero(matrix < -SMALL * top)
        ax.scatter(columns, rows, marker="_", s=max(3.0, 420 / count**1.5), linewidths=0.7, color=INK)
    elif (matrix < -SMALL * top).any():
        ax.contour(matrix, levels=[-SMALL * top], colors=INK, linewidths=0.7, linestyles="dashed")
    ax.set_title(what)
    for axis, at in ((ax.xaxis, "x"), (ax.yaxis, "y")):
        _label_outputs(ax, axis, one, at)
    ax.spines[:].set(visible=True, color=FAINT, linewidth=0.5)
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.92, pad=0.03, aspect=16)
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=2)
    if np.isfinite(matrix).any():
        bar.ax.set_ylim(min(0.0, float(np.nanmin(matrix))), max(0.0, float(np.nanmax(matrix))) or top)


def _label_outputs(ax: Axes, axis: Any, one: xr.Dataset | xr.DataArray, at: str) -> None:
    """Times as ticks; with several components their names, and lines between their blocks."""
    components, times = one["component"].values, one["time"].values
    names = list(dict.fromkeys(components.tolist()))
    each = len(times) // len(names)
    if len(names) == 1:
        ticks = np.unique(np.linspace(0, each - 1, min(each, 5)).round().astype(int))
        axis.set_ticks(ticks, [f"{times[tick]:.3g}" for tick in ticks])
        axis.set_label_text("time")
        return
    axis.set_ticks((np.arange(len(names)) + 0.5) * each - 0.5, names)
    axis.set_tick_params(length=0)
    draw = ax.axvline if at == "x" else ax.axhline
    for block in range(1, len(names)):
        draw(block * each - 0.5, color=FAINT, linewidth=0.7)
    axis.set_label_text(f"component, time {times[0]:.3g} to {times[-1]:.3g}")
