"""Learning methods by name, as a command line and a run file write them: `spectral:terms=100,size_terms=20`.

In: text. Out: a frozen settings object, or None where the choice is left to `learn_map`.
"""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import Any

from ctmoments.errors import InputError, nearest

AUTO = "auto"
METHODS = {
    "spectral": ("learn.spectral", "Spectral"),
    "momentnet": ("learn.momentnet", "MomentNet"),
    "paper": ("learn.paper", "PaperMLP"),
}


def read_method(text: str) -> Any:
    """The settings that the text names."""
    name, _, rest = text.partition(":")
    name = name.strip().lower()
    if name in (AUTO, ""):
        if rest:
            raise InputError(f"--method auto must stand alone, got {text!r}.")
        return None
    if name not in METHODS:
        raise InputError(
            f"--method must be one of {', '.join((AUTO, *METHODS))}, got {name!r}. {nearest(name, METHODS)}"
        )
    module, kind = METHODS[name]
    kind = getattr(importlib.import_module(f"ctmoments.{module}"), kind)
    known = {field.name: field.default for field in fields(kind)}
    given = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key not in known or not equals:
            raise InputError(f"--method {name}: {part!r} must be a setting like key=value. {nearest(key, known)}")
        given[key] = _value(value, known[key], f"--method {name}: {key!r}")
    return kind(**given)


def _value(text: str, default: Any, place: str) -> Any:
    """A setting of the kind of its default; entries of a tuple stand with x between: 128x128."""
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(default, tuple):
            return tuple(type(default[0])(part) for part in text.split("x"))
        return _number_or_text(text) if default is None else type(default)(text)
    except (KeyError, ValueError):
        raise InputError(f"{place} must be like {default!r}, got {text!r}.") from None


def _number_or_text(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
