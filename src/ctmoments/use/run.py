"""A run: a problem and every setting of `ctmoments learn`, as one TOML; and the folder that holds its results.

    runs/sir/
      run.toml         the problem and every setting, resolved; there from the start
      campaign.sqlite  what was simulated, as sums; where a run that was killed goes on
      map.ctm          the learned map, written last
      table.txt        what was printed
      result.json      the same for machines
      map.png          the map at a few values, its error over the box

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
STORE = "campaign.sqlite"
GROWING = ("target_error", "max_budget")  # what a finished run may be asked to go on with


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting of a run. A budget of 0 leaves it to points and replicates, to exact labels, or to the target."""

    budget: int = BUDGET
    points: int = 0
    replicates: int = 0
    labels: str = "simulate"
    method: str = "auto"
    seed: int = 0
    device: str = "cpu"
    target_error: str = ""
    max_budget: int = 0

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


def begin_run(folder: Path, text: str, *, resume: bool, overwrite: bool) -> Path | None:
    """The store for the paths of a run, whose settings are left in its folder; None where it is finished already.

    A finished folder is refused, unless it is to be resumed (nothing is left to do, or a target moves) or overwritten:
    then what is there stays until `write_run`.
    """
    from ctmoments.use.files import make_folder

    make_folder(folder)
    finished, file, store = (folder / "map.ctm").exists(), folder / "run.toml", folder / STORE
    if finished and not (resume or overwrite):
        raise FileError(
            f"{folder} holds a finished run; --resume keeps it, --overwrite replaces it, --out takes another."
        )
    if overwrite:
        beside = _beside(folder) if finished else store
        beside.unlink(missing_ok=True)
        if not finished:
            file.write_text(text, encoding="utf-8")
        return beside
    if file.exists() and (finished or store.exists()):
        grown = _check_same(file, file.read_text(encoding="utf-8"), text)
        if finished:
            return store if grown else None
    file.write_text(text, encoding="utf-8")
    return store


def _beside(folder: Path) -> Path:
    """Where paths go while a finished run is replaced."""
    return folder / f"{STORE}.part"


def write_run(folder: Path, run: str, table: str, record: Mapping[str, Any], map_: MomentMap) -> None:
    """All files of a run, its map last: what is there before stays until here, and a map says that all is there."""
    import json

    from ctmoments.evaluate.figures_map import plot_map
    from ctmoments.use.files import save_picture
    from ctmoments.use.talk import plain

    (folder / "map.ctm").unlink(missing_ok=True)
    if _beside(folder).exists():
        _beside(folder).replace(folder / STORE)
    (folder / "run.toml").write_text(run, encoding="utf-8")
    (folder / "table.txt").write_text(table + "\n", encoding="utf-8")
    (folder / "result.json").write_text(json.dumps(plain(record), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    save_picture(folder / "map.png", lambda figure: plot_map(map_, figure=figure))
    map_.save(folder / "map.ctm")


def leave_run(folder: Path) -> None:
    """Take back what a run that came to nothing has left; with paths in its store it can go on."""
    if not folder.is_dir() or any((folder / name).exists() for name in ("map.ctm", STORE)):
        return
    (folder / "run.toml").unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _check_same(file: Path, stored: str, asked: str) -> bool:
    """Whether only what a run may grow by differs; anything else is refused."""
    before, now = stored.splitlines(), asked.splitlines()
    if len(before) != len(now):
        raise FileError(
            f"{file} must be of the run that is asked for, and is longer or shorter; --overwrite starts anew."
        )
    differ = [(old, new) for old, new in zip(before, now, strict=True) if old != new]
    for old, new in differ:
        if old.partition(" = ")[0] not in GROWING:
            raise FileError(
                f"{file} must be of the run that is asked for; it says `{old}`, asked is `{new}`. "
                "--overwrite starts anew."
            )
    return bool(differ)
