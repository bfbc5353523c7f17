"""Problem files: TOML in and out. tomllib reads; the writer is ours, so that the text of a problem is stable.

In: text or tables. Out: a `Problem`, a `Model`, or text; reading what was written gives back an equal problem.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from ctmoments.errors import FileError, ModelError
from ctmoments.model.callable import CallableProblem, callable_from_tables
from ctmoments.model.checks import check_keys, check_mapping, check_number, is_number
from ctmoments.model.expressions import Number
from ctmoments.model.model import Model
from ctmoments.model.problem import Problem
from ctmoments.model.space import Dimension, Integer, Linear, Log, Space
from ctmoments.model.tree import number_text

PROBLEM_KEYS = ("name", "description", "source", "model", "space", "observe")
MODEL_KEYS = ("name", "species", "parameters", "constants", "reactions")
SCALES = {"linear": Linear, "log": Log, "integer": Integer}
MAX_INLINE = 8  # longer tables get a line for each entry
MAX_TIMES = 1_000_000


def read_toml(text: str, where: str = "problem") -> dict[str, Any]:
    """The tables of a TOML text; errors name the file, line and column."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{where} must be valid TOML: {error}.") from None
    except (RecursionError, ValueError) as error:
        raise FileError(f"{where} must be plain TOML, got {type(error).__name__}: {error}.") from None


def problem_from_toml(text: str, where: str = "problem") -> Problem:
    """Read a problem file's text."""
    return problem_from_tables(read_toml(text, where), where)


def problem_from_tables(tables: Mapping[str, Any], where: str = "problem") -> Problem:
    """A problem from the tables of its file: name, description, source, [model], [space], [observe], nothing else."""
    try:
        if "callable" in tables:
            _check_present(tables, ("callable", "space"), "top level")
            return callable_from_tables(tables, _space(tables["space"]))  # pyright: ignore[reportReturnType]
        check_keys(tables, PROBLEM_KEYS, "top level")
        _check_present(tables, ("model", "space", "observe"), "top level")
        observe = check_mapping(tables["observe"], "[observe]")
        check_keys(observe, ("outputs", "times"), "[observe]")
        _check_present(observe, ("outputs", "times"), "[observe]")
        return Problem(
            model_from_table(tables["model"], tables["space"]),
            _space(tables["space"]),
            observe=observe["outputs"],
            times=_times(observe["times"]),
            **{key: tables.get(key, "") for key in ("name", "description", "source")},
        )
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from None


def model_from_table(table: Any, space: Any = None) -> Model:
    """A model from its table; its parameters, where it does not list them, are the names of [space] in order."""
    table = check_mapping(table, "[model]")
    check_keys(table, MODEL_KEYS, "[model]")
    _check_present(table, ("species", "reactions"), "[model]")
    if "parameters" not in table and space is None:
        raise ModelError("[model] must list its `parameters` where the file has no [space].")
    parameters = table["parameters"] if "parameters" in table else list(check_mapping(space, "[space]"))
    return Model(
        table["species"], parameters, table["reactions"], table.get("constants", {}), name=table.get("name", "")
    )


def _check_present(table: Mapping[str, Any], keys: Iterable[str], place: str) -> None:
    for key in keys:
        if key not in table:
            raise ModelError(f"{place} must hold {key!r}, got only {', '.join(map(str, table)) or 'nothing'}.")


def _space(table: Any) -> Space:
    return Space(**{name: _entry(name, entry) for name, entry in check_mapping(table, "[space]").items()})


def _entry(name: str, entry: Any) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    place = f"[space] {name!r}"
    check_keys(entry, ("low", "high", "scale"), place)
    _check_present(entry, ("low", "high"), place)
    scale = entry.get("scale", "linear")
    if not isinstance(scale, str) or scale not in SCALES:
        raise ModelError(f"{place}: `scale` must be one of {', '.join(SCALES)}, got {scale!r}.")
    try:
        return SCALES[scale](entry["low"], entry["high"])
    except ModelError as error:
        raise ModelError(f"{place}: {error}") from None


def _times(times: Any) -> Any:
    if not isinstance(times, Mapping):
        return times
    place = "[observe] times"
    check_keys(times, ("start", "stop", "step"), place)
    _check_present(times, ("start", "stop", "step"), place)
    start, stop, step = (
        Fraction(repr(check_number(times[key], f"{place}: `{key}`"))) for key in ("start", "stop", "step")
    )
    if step <= 0 or stop < start or (stop - start) % step != 0:
        raise ModelError(
            f"{place}: `stop` must be `start` plus whole steps above 0, got start {times['start']}, "
            f"stop {times['stop']}, step {times['step']}."
        )
    if (stop - start) / step >= MAX_TIMES:
        raise ModelError(f"{place} must be at most {MAX_TIMES}, got {int((stop - start) / step) + 1}.")
    return [float(start + index * step) for index in range(int((stop - start) / step) + 1)]


def problem_to_toml(problem: Problem) -> str:
    """The text of a problem, the same for equal problems."""
    lines = [f"{key} = {_value(getattr(problem, key))}" for key in PROBLEM_KEYS[:3] if getattr(problem, key)]
    lines += ["", *_model_lines(problem.model, tuple(problem.space.entries)), "", "[space]"]
    lines += [f"{name} = {_space_text(entry)}" for name, entry in problem.space.entries.items()]
    lines += ["", "[observe]", f"outputs = {_value(list(problem.observe))}", f"times = {_times_text(problem.times)}"]
    return "\n".join(lines).lstrip("\n") + "\n"


def callable_to_toml(problem: CallableProblem) -> str:
    """The text of a problem whose simulator is a Python callable: all but the callable."""
    lines = [f"name = {_value(problem.name)}", "", "[callable]", f"outputs = {_value(list(problem.output_names))}"]
    lines += [f"times = {_value(list(problem.output_at))}", f"vectorised = {_value(problem.vectorised)}"]
    lines += ["", "[space]", *(f"{name} = {_space_text(entry)}" for name, entry in problem.space.entries.items())]
    return "\n".join(lines) + "\n"


def _model_lines(model: Model, space: tuple[str, ...]) -> list[str]:
    lines = ["[model]"] + ([f"name = {_value(model.name)}"] if model.name else [])
    if model.parameters != space:
        lines.append(f"parameters = {_value(list(model.parameters))}")
    species = {
        name: amount.value if isinstance(amount, Number) else str(amount) for name, amount in model.species.items()
    }
    tables = {"species": species} | ({"constants": model.constants} if model.constants else {})
    lines += [f"{key} = {_inline(table)}" for key, table in tables.items() if len(table) <= MAX_INLINE]
    lines += ["reactions = [", *(f"  {_value(str(reaction))}," for reaction in model.reactions), "]"]
    for key, table in tables.items():
        if len(table) > MAX_INLINE:
            lines += ["", f"[model.{key}]", *(f"{name} = {_value(value)}" for name, value in table.items())]
    return lines


def _space_text(entry: Dimension | float) -> str:
    if isinstance(entry, Linear):
        return _value([entry.low, entry.high])
    if isinstance(entry, Log | Integer):
        return _inline({"low": entry.low, "high": entry.high, "scale": type(entry).__name__.lower()})
    return _value(entry)


def _times_text(times: tuple[float, ...]) -> str:
    if len(times) > 2:
        table = {
            "start": times[0],
            "stop": times[-1],
            "step": float(Fraction(repr(times[1])) - Fraction(repr(times[0]))),
        }
        try:
            if tuple(_times(table)) == times:
                return _inline(table)
        except ModelError:
            pass  # not equally spaced: a list says it
    return _value(list(times))


def _inline(table: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{name} = {_value(value)}" for name, value in table.items()) + " }"


def _value(value: Any) -> str:
    """A TOML value: text, a number (whole ones without a point), or a list of them."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if is_number(value):
        return number_text(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are TOML's, but for DEL
