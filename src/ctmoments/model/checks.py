"""The small checks of the gate that models, spaces and problems enter by. In: what came. Out: the clean value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ctmoments.errors import ModelError, nearest
from ctmoments.model.expressions import RESERVED

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_AMOUNT = 2**52  # float64 holds every whole number up to here, and the kernels' rates are float64


def check_name(name: Any, place: str) -> str:
    """A name is an identifier and no word of the grammar."""
    if not isinstance(name, str) or not IDENTIFIER.fullmatch(name):
        raise ModelError(f"{place}: a name must be letters, digits and _, not first a digit, got {name!r}.")
    if name in RESERVED:
        raise ModelError(f"{place}: a name must not be a word of the grammar, got {name!r}. Rename it.")
    return name


def check_names(names: Any, place: str) -> tuple[str, ...]:
    """A list of different names."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ModelError(f"{place} must be a list of names, got {names!r}.")
    names = tuple(check_name(name, place) for name in names)
    check_different(names, place)
    return names


def check_different(names: Iterable[str], place: str) -> None:
    """No name twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f"{place} must differ, got {name!r} twice.")
        seen.add(name)


def is_number(value: Any) -> bool:
    """Whether a value is a real number that a float64 can hold; True and False are not."""
    if isinstance(value, int):  # of any length in Python
        return not isinstance(value, bool) and abs(value) < 2**1023
    return isinstance(value, float | np.integer | np.floating)


def check_number(value: Any, place: str) -> float:
    """A finite real number."""
    if not is_number(value) or not math.isfinite(value):
        raise ModelError(f"{place} must be a finite number, got {value!r}.")
    return float(value)


def check_text(value: Any, place: str) -> str:
    """Text that a file can hold."""
    if not isinstance(value, str):
        raise ModelError(f"{place} must be text, got {value!r}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ModelError(f"{place} must be valid Unicode, got {value!r}.") from None
    return value


def check_mapping(value: Any, place: str) -> Mapping:
    """A mapping."""
    if not isinstance(value, Mapping):
        raise ModelError(f"{place} must be a mapping of names, got {value!r}.")
    return value


def check_keys(keys: Iterable[str], known: Iterable[str], place: str) -> None:
    """Only known keys."""
    known = tuple(known)
    for key in keys:
        if key not in known:
            raise ModelError(f"{place}: unknown key {key!r}. {nearest(str(key), known)}")
