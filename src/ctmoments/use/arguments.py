"""Arguments of the command line: a parser that complains in one line, and the forms that values take.

In: words. Out: a namespace, or an `InputError` that names the argument, what must hold and what came.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ctmoments.errors import FileError, InputError, nearest

if TYPE_CHECKING:
    import xarray as xr

    from ctmoments.model.problem import Problem

MOST = 2**63 - 1
COMMON = "how to talk"


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations, whose complaints are one line that is raised, not printed."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            allow_abbrev=False,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=30, width=100),
        )

    def error(self, message: str) -> NoReturn:
        """Raise the complaint."""
        text = message.removeprefix("argument ").removesuffix(".")
        if ", got " in text:
            raise InputError(text.replace(": must", " must", 1) + ("" if text.endswith("?") else "."))
        text = text.replace("the following arguments are required:", "missing:").replace(
            ": expected one", " must have one"
        )
        raise InputError(f"{text}. See `{self.prog} --help`.")


def parse(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """The settings that the words give; what is not known is refused with the nearest that is."""
    settings, unknown = parser.parse_known_args(words)
    if unknown:
        word = unknown[0].split("=")[0]
        if word.startswith("-"):
            known = [option for action in parser._actions for option in action.option_strings]
            raise InputError(f"{word} must be an option of `{parser.prog}`. {nearest(word, known)}")
        raise InputError(f"{word!r} came after all that `{parser.prog}` takes. See `{parser.prog} --help`.")
    return settings


def add_common(parser: Parser) -> None:
    """What every verb takes."""
    group = parser.add_argument_group(COMMON)
    group.add_argument("--json", action="store_true", help="print the result as one JSON object")
    group.add_argument("--quiet", action="store_true", help="no progress, no messages; errors only")
    group.add_argument("--verbose", action="store_true", help="tell what was chosen, and where errors come from")


def whole(least: int = 0, most: int = MOST) -> Callable[[str], int]:
    """A whole number within bounds; 1e5 and 100_000 are whole numbers too."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            try:
                number = int(float(text)) if float(text).is_integer() else least - 1
            except (ValueError, OverflowError):
                number = least - 1
        if not least <= number <= most:
            bound = f" to {most}" if most < MOST else ""
            raise argparse.ArgumentTypeError(f"must be a whole number from {least}{bound}, got {text!r}")
        return number

    return read


def one_of(*names: str) -> Callable[[str], str]:
    """A name of a list."""

    def read(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(
                f"must be one of {', '.join(names)}, got {text!r}. {nearest(text, names)}".rstrip(".")
            )
        return text

    return read


def file_named(*suffixes: str) -> Callable[[str], Path]:
    """A path with one of these endings."""

    def read(text: str) -> Path:
        path = Path(text)
        if path.suffix not in suffixes:
            raise argparse.ArgumentTypeError(f"must end in {' or '.join(suffixes)}, got {text!r}")
        return path

    return read


def positive(text: str) -> float:
    """A number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return number


def names_list(text: str) -> list[str]:
    """Names with commas between."""
    return [part.strip() for part in text.split(",")]


def number_list(text: str) -> list[float]:
    """Numbers with commas between, or start:stop:step, the stop included.

    >>> number_list("1,2.5"), number_list("0:1:0.25")
    ([1.0, 2.5], [0.0, 0.25, 0.5, 0.75, 1.0])
    """
    from fractions import Fraction

    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        start, stop, step = (Fraction(part.strip()) for part in text.split(":"))
        count = (stop - start) / step
        if count < 0 or count.denominator != 1 or count > 1_000_000:
            raise ValueError
        return [float(start + index * step) for index in range(int(count) + 1)]
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(
            f"must be numbers like 1,2,5 or start:stop:step in whole steps like 0:10:0.5, got {text!r}"
        ) from None


def assignments(text: str) -> dict[str, float]:
    """Parameter values as name=number with commas between.

    >>> assignments("alpha=.5,beta=2e-3")
    {'alpha': 0.5, 'beta': 0.002}
    """
    values: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        try:
            value = float(number)
        except ValueError:
            value = None
        if not name or not equals or value is None:
            raise argparse.ArgumentTypeError(f"must be like alpha=0.5,beta=0.002, got {text!r}")
        if name in values:
            raise argparse.ArgumentTypeError(f"must name each parameter once, got {name!r} twice in {text!r}")
        values[name] = value
    return values


def add_problem(parser: Parser) -> None:
    """The problem, and what may be watched instead of what it says."""
    parser.add_argument("problem", metavar="PROBLEM", help="a built-in problem (see `ctmoments info`) or a file")
    parser.add_argument("--times", type=number_list, metavar="T", help="other times: 1,2,5 or start:stop:step")
    parser.add_argument(
        "--observe", type=names_list, metavar="TEXT", help="other components, commas between: 'I,S + I'"
    )


def chosen_problem(settings: argparse.Namespace) -> Problem:
    """The problem of the settings."""
    from dataclasses import replace

    from ctmoments.model.library import load_problem

    problem = load_problem(settings.problem)
    changes: dict[str, Any] = {}
    if settings.times is not None:
        changes["times"] = settings.times
    if settings.observe is not None:
        changes["observe"] = settings.observe
    return replace(problem, **changes) if changes else problem


def add_seed(parser: Parser, help: str) -> None:
    """The seed."""
    parser.add_argument("--seed", type=whole(0, 2**64 - 1), default=0, metavar="S", help=help)


def add_targets(parser: Parser) -> None:
    """Files that a dataset goes to."""
    parser.add_argument("--out", type=file_named(".nc", ".zarr"), metavar="FILE", help="write the dataset: .nc, .zarr")
    parser.add_argument(
        "--plot", type=file_named(".png", ".svg", ".pdf"), metavar="FILE",
        help="draw mean and covariance at the first values: .png, .svg, .pdf",
    )  # fmt: skip


def add_threads(parser: Parser) -> None:
    """How many cores to use."""
    parser.add_argument("--threads", type=whole(1), metavar="N", help="default: all cores, or CTMOMENTS_THREADS")


def add_theta(parser: Parser) -> None:
    """Parameter values: drawn, or given."""
    parser.add_argument("--points", type=whole(1), metavar="N", help="parameter values to draw (10)")
    parser.add_argument(
        "--design",
        type=one_of("lhs", "sobol", "uniform", "grid"),
        metavar="KIND",
        help="lhs (default), sobol, uniform, grid",
    )
    add_given_theta(parser)


def add_given_theta(parser: Parser) -> None:
    """Parameter values that are given."""
    parser.add_argument(
        "--theta",
        type=assignments,
        action="append",
        metavar="A=V,...",
        help="a value: alpha=.5,beta=.002; repeat for more",
    )
    parser.add_argument("--csv", type=file_named(".csv"), metavar="FILE", help="values: a column for each parameter")


def chosen_theta(settings: argparse.Namespace, problem: Problem) -> xr.DataArray:
    """The design of the settings, or the values that they give."""
    from ctmoments.model.theta import as_theta
    from ctmoments.simulate.design import sample_design

    names = ("theta", "csv", "points", "design")
    given = [name for name in names if getattr(settings, name, None) is not None]
    if len(given) > 1 and given != ["points", "design"]:
        raise InputError(f"--{given[0]} must come without --{given[1]}: values are given or drawn, in one way.")
    if settings.theta is not None:
        for value in settings.theta[1:]:
            if set(value) != set(settings.theta[0]):
                raise InputError(
                    f"--theta must name the same parameters each time, got {value} after {settings.theta[0]}."
                )
        return as_theta(problem, {name: [value[name] for value in settings.theta] for name in settings.theta[0]})
    if settings.csv is not None:
        return as_theta(problem, read_columns(settings.csv))
    return sample_design(problem, settings.points or 10, settings.design or "lhs", settings.seed)


def read_columns(path: Path) -> dict[str, list[float]]:
    """The columns of a CSV file of numbers, its first line their names."""
    import csv

    from ctmoments.model.library import read_text

    rows = [row for row in csv.reader(read_text(path).splitlines()) if row]
    if len(rows) < 2:
        raise FileError(f"{path} must hold a line of parameter names and a line for each value, got {len(rows)} lines.")
    names = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise FileError(f"{path}, line {number}: must have {len(names)} numbers, got {len(row)}.")
    try:
        return {name: [float(row[column]) for row in rows[1:]] for column, name in enumerate(names)}
    except ValueError as error:
        raise FileError(f"{path}: every value must be a number: {error}.") from None
