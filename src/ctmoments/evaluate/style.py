"""The one look of all pictures: colours, line styles, sizes. Readable in grayscale.

Ink is amount: white is zero, blue is positive, orange negative, and negative cells carry a dash, since grey prints
lose the hue. Components differ by colour and by line style. matplotlib is imported where a picture is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

INK = "#222222"
FAINT = "#8a8a8a"
LINES = (
    ("#1f4e79", "-", "o"),
    ("#c8553d", "--", "s"),
    ("#3a7d44", "-.", "^"),
    ("#7b4b94", ":", "D"),
    ("#b8860b", (0, (5, 1, 1, 1, 1, 1)), "v"),
)  # colour, dashes, marker of each component
NEGATIVE = ("#7a2e12", "#c8553d", "#eba98f", "#fbe9e2")
SHADES = 511  # odd: zero is exactly white
POSITIVE = ("#e4edf5", "#9dbfdc", "#4a83b5", "#1f4e79", "#0c2742")

RC: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 3.5,
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "savefig.dpi": 160,
    "savefig.facecolor": "white",
}


@contextmanager
def style() -> Iterator[None]:
    """A context in which pictures look like ours."""
    import matplotlib

    with matplotlib.rc_context(cast(Any, RC)):
        yield


def signed_colours() -> Colormap:
    """From orange over white, which is zero, to blue."""
    from matplotlib.colors import LinearSegmentedColormap

    half, other = len(NEGATIVE), len(POSITIVE)
    stops = [(0.5 * step / half, colour) for step, colour in enumerate(NEGATIVE)] + [(0.5, "#ffffff")]
    stops += [(0.5 + 0.5 * (step + 1) / other, colour) for step, colour in enumerate(POSITIVE)]
    return LinearSegmentedColormap.from_list("ctmoments", stops, N=SHADES)


def amount_colours() -> Colormap:
    """From white, which is zero, to blue."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ctmoments-amount", ["#ffffff", *POSITIVE], N=SHADES)


def line(index: int) -> dict[str, Any]:
    """Colour, dashes and marker of the component with this index."""
    colour, dashes, marker = LINES[index % len(LINES)]
    return {"color": colour, "linestyle": dashes, "marker": marker}
