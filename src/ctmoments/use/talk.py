"""What a command says, and where: results on stdout, messages on stderr; and how tables and numbers read.

In: texts and records. Out: lines. With `--json` the result is one JSON object; what is not finite is null there.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Talk:
    """How a command talks."""

    quiet: bool = False
    verbose: bool = False
    json: bool = False

    @property
    def progress(self) -> bool | None:
        """What to hand on as `progress`."""
        return False if self.quiet else None

    def result(self, text: str, record: Mapping[str, Any]) -> None:
        """The result: a text for people, a record for machines."""
        print(json.dumps(plain(record), allow_nan=False) if self.json else text)

    def say(self, text: str) -> None:
        """A message."""
        if not self.quiet:
            print(text, file=sys.stderr)

    def detail(self, text: str) -> None:
        """A message for those who asked for more."""
        if self.verbose:
            print(text, file=sys.stderr)

    def warning(self, message: Warning | str, *_: Any, **__: Any) -> None:
        """A warning of the library, as one line."""
        self.say(f"warning: {' '.join(str(message).split())}")


def plain(value: Any) -> Any:
    """What JSON can hold: plain numbers, lists and texts; null for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers, without importing NumPy
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def short(value: float, digits: int = 4) -> str:
    """A number as people write it.

    >>> short(0.002), short(123.456), short(2.5e-9), short(float("nan")), short(45678.9)
    ('0.002', '123.5', '2.5e-09', '-', '45679')
    """
    if not math.isfinite(value):
        return "-" if math.isnan(value) else f"{value:g}"
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e9 else f"{value:.{digits}g}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Columns aligned to the right, under their names.

    >>> print(table(["a", "mean"], [["0.5", "3"], ["0.25", "12"]]))
         a  mean
       0.5     3
      0.25    12
    """
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)]
    return "\n".join(indent + line for line in lines)


def entries(pairs: Mapping[str, str], indent: str = "  ") -> str:
    """Names and texts, one line each."""
    width = max(map(len, pairs))
    return "\n".join(f"{indent}{name:{width}}  {text}" for name, text in pairs.items())
