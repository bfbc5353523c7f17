"""Pictures of maps: what a map says and how sure it is over the box; errors against a reference; whitening.

In: a `MomentMap`, a score, paths before and after whitening. Out: matplotlib axes. The look is that of `style.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctmoments.errors import InputError
from ctmoments.evaluate.figures import HEADLINE, ROW_SIZE, draw_matrix, draw_moments, sized_figure, write_headline
from ctmoments.evaluate.style import FAINT, INK, amount_colours, line, style
from ctmoments.model.space import Log
from ctmoments.moments.whiten import correlation
from ctmoments.predict.account import own_errors

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ctmoments.predict.moment_map import MomentMap

SHOWN = (0.2, 0.5, 0.8)  # unit coordinates of the values that a picture of a map shows, alike in all parameters
ALONG = 31  # values along each parameter where errors over the box are drawn
NOTES = ("method", "paths", "training_paths", "events", "seconds", "seed")


def plot_map(map_: MomentMap, theta: Any = None, figure: Figure | None = None) -> np.ndarray:
    """Moments at a few values (default: three on the diagonal of the box), and the map's own error over the box.

    Axes (values + 1, 3); the last row holds the errors of mean and covariance, relative, and how the map was made.
    """
    data = map_.predict(diagonal(map_) if theta is None else theta)
    rows = data.sizes["point"]
    with style():
        figure = sized_figure(figure, ROW_SIZE[0], ROW_SIZE[1] * (rows + 1) + 2 * HEADLINE)
        parts: Any = figure.subfigures(2, 1, height_ratios=[rows + 0.15, 1.1])
        above, below = parts
        axes = draw_moments(above, data, f"{map_.problem.name or 'a map'}: what the map says")
        others = len(map_.problem.space.parameters) > 2
        where = " (other parameters in the middle of the box)" if others else ""
        write_headline(below, f"How sure it is, by its own account{where}")
        last = below.subplots(1, 3)
        draw_own_errors(last[:2], map_)
        _draw_notes(last[2], map_)
    return np.concatenate([axes, last[None]])


def diagonal(map_: MomentMap) -> np.ndarray:
    """Three values across the box."""
    space = map_.problem.space
    return space.from_unit(np.repeat(np.array(SHOWN)[:, None], len(space.parameters), axis=1))


def draw_own_errors(axes: np.ndarray, map_: MomentMap) -> None:
    """The map's own relative errors over its first two parameters, the others in the middle of the box."""
    space = map_.problem.space
    names = space.parameters[:2]
    unit = np.full((ALONG ** len(names), len(space.parameters)), 0.5)
    grid = np.meshgrid(*[np.linspace(0, 1, ALONG)] * len(names), indexing="ij")
    unit[:, : len(names)] = np.stack([part.ravel() for part in grid], axis=1)
    theta = space.from_unit(unit)
    for ax, what, errors in zip(axes, ("mean", "covariance"), own_errors(map_, theta), strict=True):
        ax.set_title(f"relative error of the {what}, %")
        if not np.isfinite(errors).any():
            _say(ax, "this method does not tell its errors")
        elif len(names) == 1:
            ax.plot(theta[:, 0], 100 * errors, color=line(0)["color"])
            _name_axis(ax, "x", map_, 0)
            ax.set_ylim(bottom=0)
        else:
            shape = (ALONG, ALONG)
            x, y, values = (part.reshape(shape) for part in (theta[:, 0], theta[:, 1], 100 * errors))
            top = float(np.nanpercentile(values, 98)) or 1.0
            image = ax.pcolormesh(x, y, values, cmap=amount_colours(), vmin=0, vmax=top, shading="gouraud")
            _bar(ax, image, "max" if np.nanmax(values) > top else "neither")
            _name_axis(ax, "x", map_, 0)
            _name_axis(ax, "y", map_, 1)


def plot_errors(score: xr.Dataset, figure: Figure | None = None) -> np.ndarray:
    """Relative errors of mean and covariance: how they are distributed, and where in the box they lie; axes (3,).

    `score` is what `score_map` returns.
    """
    for name in ("rrmse", "rfe", "theta"):
        if name not in score:
            raise InputError(f"`score` must be a dataset of score_map with {name!r}.")
    errors = {"mean": 100 * score["rrmse"].values, "covariance": 100 * score["rfe"].values}
    names = {"mean": "reference_rrmse_noise", "covariance": "reference_rfe_noise"}
    noise = {what: score.attrs.get(name, 0.0) for what, name in names.items()}
    with style():
        figure = sized_figure(figure, ROW_SIZE[0], ROW_SIZE[1] + HEADLINE)
        write_headline(
            figure, f"Errors against {score.attrs.get('reference', 'a')} moments, {score.sizes['point']} values"
        )
        axes = figure.subplots(1, 3, width_ratios=[1.3, 1, 1])
        for index, (what, values) in enumerate(errors.items()):
            values = np.sort(values[np.isfinite(values) & (values > 0)])
            look = line(index) | {"marker": ""}
            if len(values):
                share = (np.arange(len(values)) + 1) / len(values)
                axes[0].step(values, share, where="post", label=f"{what}, mean {values.mean():.2g} %", **look)
            if noise[what]:
                axes[0].axvline(100 * float(noise[what]), color=look["color"], linestyle=":", linewidth=1)
            _scatter_errors(axes[1 + index], score, errors[what], what)
        axes[0].set_xscale("log")
        axes[0].set_xlabel("relative error, %" + ("  (dotted: noise of the reference)" if any(noise.values()) else ""))
        axes[0].set_ylabel("share of values below")
        axes[0].set_ylim(0, 1.02)
        axes[0].legend(loc="upper left", frameon=True, framealpha=0.9, edgecolor="none")
        axes[0].xaxis.set_major_formatter("{x:g}")
    return axes


def plot_whitening(before: np.ndarray, z: xr.DataArray, figure: Figure | None = None) -> np.ndarray:
    """Correlation of outputs before whitening, and of the whitened paths; axes (2,)."""
    panels = {"correlation of the paths": before, "after whitening": correlation(z.values)}
    with style():
        figure = sized_figure(figure, 0.7 * ROW_SIZE[0], 1.15 * ROW_SIZE[1] + HEADLINE)
        axes = figure.subplots(1, 2)
        for ax, (what, matrix) in zip(axes, panels.items(), strict=True):
            draw_matrix(ax, z, matrix, what, 1.0)
    return axes


def _scatter_errors(ax: Axes, score: xr.Dataset, values: np.ndarray, what: str) -> None:
    names = score["parameter"].values.tolist() if "parameter" in score.coords else ["first", "second"]
    theta = score["theta"].values
    ax.set_title(f"relative error of the {what}, %")
    ax.set_xlabel(names[0])
    if theta.shape[1] == 1:
        ax.scatter(theta[:, 0], values, s=12, color=line(0)["color"])
        return
    top = float(np.nanpercentile(values, 98)) if np.isfinite(values).any() else 1.0
    look: dict[str, Any] = {
        "cmap": amount_colours(),
        "vmin": 0,
        "vmax": top or 1.0,
        "edgecolors": FAINT,
        "linewidths": 0.4,
    }
    image = ax.scatter(theta[:, 0], theta[:, 1], c=values, s=22, **look)
    ax.set_ylabel(names[1])
    _bar(ax, image, "neither")


def _draw_notes(ax: Axes, map_: MomentMap) -> None:
    card = map_.card
    pairs = {name.replace("_", " "): card[name] for name in NOTES if name in card}
    ax.set_axis_off()
    ax.set_title("how it was made")
    lines = [f"{name}: {value:,}" if isinstance(value, int) and name != "seed" else f"{name}: {value}"
             for name, value in pairs.items()]  # fmt: skip
    ax.text(0, 0.96, "\n".join(lines), transform=ax.transAxes, va="top", color=INK, linespacing=1.6)


def _name_axis(ax: Axes, at: str, map_: MomentMap, index: int) -> None:
    name = map_.problem.space.parameters[index]
    if at == "x":
        ax.set_xlabel(name)
    else:
        ax.set_ylabel(name)
    if isinstance(map_.problem.space.dimensions[name], Log):
        (ax.set_xscale if at == "x" else ax.set_yscale)("log")


def _bar(ax: Axes, image: Any, extend: str) -> None:
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.92, pad=0.03, aspect=16, extend=extend)
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=2)


def _say(ax: Axes, text: str) -> None:
    ax.set_axis_off()
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=FAINT)
