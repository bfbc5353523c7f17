"""Where problems come from: the built-in library (TOML files beside this module) and the user's files.

In: a name or a path. Out: a `Problem` or a `Model`. Each library file tells its source, its box, its times.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ctmoments.errors import FileError, ModelError, nearest
from ctmoments.model.model import Model
from ctmoments.model.problem import Problem
from ctmoments.model.toml import model_from_table, problem_from_toml, read_toml

FOLDER = Path(__file__).parent / "library"
MAX_BYTES = 16 * 2**20


def list_problems() -> tuple[str, ...]:
    """The names of the built-in problems.

    >>> "sir" in list_problems()
    True
    """
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_problem(name_or_path: str | Path) -> Problem:
    """A built-in problem by its name, or a problem file by its path.

    >>> load_problem("sir").observe
    ('I',)
    """
    path = _locate(name_or_path)
    return _reader(path, PROBLEM_READERS)(path)


def load_model(name_or_path: str | Path) -> Model:
    """The model of a built-in problem or of a file; the rest of the file is left alone.

    >>> load_model("sir").parameters
    ('alpha', 'beta')
    """
    path = _locate(name_or_path)
    return _reader(path, MODEL_READERS)(path)


def read_text(path: Path) -> str:
    """The text of a user's file, of reasonable size and in UTF-8."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise FileError(f"{path} must have at most {MAX_BYTES} bytes, got {path.stat().st_size}.")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} must be text in UTF-8, got {error}.") from None
    except OSError as error:
        raise FileError(f"{path} must be a readable file: {error.strerror or error}.") from None


def _read_problem(path: Path) -> Problem:
    return problem_from_toml(read_text(path), str(path))


def _read_model(path: Path) -> Model:
    tables = read_toml(read_text(path), str(path))
    try:
        return model_from_table(tables.get("model"), tables.get("space"))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


PROBLEM_READERS: dict[str, Callable[[Path], Problem]] = {".toml": _read_problem}
MODEL_READERS: dict[str, Callable[[Path], Model]] = {".toml": _read_model}


def _locate(name_or_path: str | Path) -> Path:
    if not isinstance(name_or_path, str | Path):
        raise FileError(f"a problem must be a name or a path, got {name_or_path!r}.")
    if str(name_or_path) in list_problems():
        return FOLDER / f"{name_or_path}.toml"
    path = Path(name_or_path)
    if path.suffix not in MODEL_READERS and not path.is_file():
        hint = nearest(str(name_or_path), list_problems())
        raise FileError(f"{str(name_or_path)!r} must be a built-in problem or the path of a file. {hint}")
    return path


def _reader(path: Path, readers: dict[str, Callable]) -> Callable:
    if path.suffix not in readers:
        raise FileError(f"{path} must end in {' or '.join(readers)}, got {path.suffix or 'no suffix'!r}.")
    return readers[path.suffix]
