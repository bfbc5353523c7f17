"""A run: a problem and every setting of `ctmoments learn`, as one TOML; and the folder that holds its results.

    runs/sir/
      run.toml      the problem and every setting, resolved
      map.ctm       the learned map
      table.txt     what was printed
      result.json   the same for machines
      map.png       the map at a few values, its error over the box

In: a name, a problem file, or a run file (a problem file with a table [run]). Out: `Run`; flags go before the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctmoments.errors import FileError, InputError

if TYPE_CHECKING:
    from ctmoments.model.problem import Problem
    from ctmoments.predict.moment_map import MomentMap

BUDGET = 100_000
FILES = ("run.toml", "map.ctm", "table.txt", "result.json", "map.png")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting of a run. A budget of 0 leaves it to points and replicates, or to exact labels."""

    budget: int = BUDGET
    points: int = 0
    replicates: int = 0
    labels: str = "simulate"
    method: str = "auto"
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self):
        for field in fields(self):
            value, kind = getattr(self, field.name), type(field.default)
            if isinstance(value, bool) or not isinstance(value, kind):
                word = "a whole number" if kind is int else "text"
                raise InputError(f"[run] {field.name!r} must be {word}, got {value!r}.")
            if kind is int and value < 0:
                raise InputError(f"[run] {field.name!r} must be at least 0, got {value!r}.")


def read_run(name_or_path: str, given: Mapping[str, Any]) -> tuple[Problem, Settings]:
    """The problem, and its settings: those given, else those of the file's [run], else the defaults."""
    from ctmoments.model.checks import check_keys, check_mapping
    from ctmoments.model.library import list_problems, load_problem, read_text
    from ctmoments.model.toml import problem_from_tables, read_toml

    stored: Mapping[str, Any] = {}
    if name_or_path not in list_problems() and name_or_path.endswith(".toml"):
        path = Path(name_or_path)
        tables = read_toml(read_text(path), str(path))
        try:
            stored = check_mapping(tables.pop("run", {}), "[run]")
            check_keys(stored, [field.name for field in fields(Settings)], "[run]")
        except InputError as error:
            raise FileError(f"{path}: {error}") from None
        problem = problem_from_tables(tables, str(path))
    else:
        problem = load_problem(name_or_path)
    return problem, Settings(**{**stored, **given})


def run_text(problem: Problem, settings: Settings) -> str:
    """The text of run.toml; `read_run` reads it back."""
    import json

    lines = [f"{name} = {json.dumps(value)}" for name, value in asdict(settings).items()]
    return f"{problem.to_toml()}\n[run]\n" + "\n".join(lines) + "\n"


def folder_for(name: str) -> Path:
    """Where a run of this problem goes; a name from a stranger's file leads nowhere else.

    >>> folder_for("sir").as_posix(), folder_for("../../my model").as_posix()
    ('runs/sir', 'runs/my-model')
    """
    return Path("runs") / (re.sub(r"[^\w.-]+", "-", name).strip(".-") or "unnamed")


def check_run(folder: Path, text: str, *, resume: bool, overwrite: bool) -> bool:
    """Whether the run is finished already; nothing is changed here but that the folder is made.

    A finished folder is refused, unless it is to be resumed (nothing is left to do) or overwritten.
    """
    from ctmoments.use.files import make_folder

    make_folder(folder)
    if not (folder / "map.ctm").exists():
        return False
    if not (resume or overwrite):
        raise FileError(
            f"{folder} holds a finished run; --resume keeps it, --overwrite replaces it, --out takes another."
        )
    file = folder / "run.toml"
    if overwrite or not file.exists():
        return False
    _check_same(file, file.read_text(encoding="utf-8"), text)
    return True


def write_run(folder: Path, run: str, table: str, record: Mapping[str, Any], map_: MomentMap) -> None:
    """All files of a run, its map last: what is there before stays until here, and a map says that all is there."""
    import json

    from ctmoments.evaluate.figures_map import plot_map
    from ctmoments.use.files import save_picture
    from ctmoments.use.talk import plain

    (folder / "map.ctm").unlink(missing_ok=True)
    (folder / "run.toml").write_text(run, encoding="utf-8")
    (folder / "table.txt").write_text(table + "\n", encoding="utf-8")
    (folder / "result.json").write_text(json.dumps(plain(record), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    save_picture(folder / "map.png", lambda figure: plot_map(map_, figure=figure))
    map_.save(folder / "map.ctm")


def leave_run(folder: Path) -> None:
    """Take back the folder of a run that came to nothing, if it is empty."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _check_same(file: Path, stored: str, asked: str) -> None:
    for before, now in zip(stored.splitlines(), asked.splitlines(), strict=False):
        if before != now:
            raise FileError(f"{file} must be of the run that is asked for; it says `{before}`, asked is `{now}`.")
    if stored != asked:
        raise FileError(f"{file} must be of the run that is asked for, and is longer or shorter.")
