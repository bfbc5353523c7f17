"""Who a campaign is: everything that its numbers depend on, as JSON; and what differs when two are not the same.

In: a problem, a seed, a purpose, settings. Out: a mapping that is stored with the campaign and compared on resume.
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from typing import Any

import numpy as np

from ctmoments.errors import FileError
from ctmoments.model.callable import CallableProblem
from ctmoments.model.expressions import Call, Expression
from ctmoments.model.problem import Problem
from ctmoments.simulate.network import lower
from ctmoments.simulate.streams import Purpose

LIBRARY_FUNCTIONS = ("exp", "log", "pow")
PROBES = 4096
PATHS = 1  # to be raised by any change that makes another path from the same address


def identity_of(problem: Problem | CallableProblem, seed: int, purpose: Purpose, max_events: int) -> dict[str, Any]:
    """What numbers depend on, besides points, replicates and output times."""
    tables = tomllib.loads(problem.to_toml())
    if isinstance(problem, CallableProblem):
        return {
            "callable": {"name": problem.name, **tables["callable"]},
            "space": tables["space"],
            "parameters": list(problem.space.parameters),
            "seed": seed,
            "purpose": purpose.name.lower(),
        }
    model = {key: value for key, value in tables["model"].items() if key != "name"}
    return {
        "model": model,
        "space": tables["space"],
        "parameters": list(problem.space.parameters),
        "outputs": list(problem.observe),
        "seed": seed,
        "purpose": purpose.name.lower(),
        "max_events": max_events,
        "paths": f"{'sparse' if lower(problem).sparse else 'direct'} kernel, version {PATHS}",
        "arithmetic": arithmetic_class(problem),
    }


def arithmetic_class(problem: Problem | CallableProblem) -> str:
    """Where results may depend on the machine.

    Kernels compute the same everywhere. What depends on parameters alone is computed by NumPy before they start, and
    its exp, log and power may differ in the last bit from machine to machine: these are told apart by what they give.
    """
    if isinstance(problem, CallableProblem):
        return "the callable's own"
    outside = [*lower(problem).columns, *problem.model.species.values()]
    if not any(map(_uses_library, outside)):
        return "the same on every machine"
    x = np.exp2(np.arange(PROBES) / 256 - 8) * (1 + np.arange(PROBES) * math.pi % 1)
    with np.errstate(over="ignore"):
        values = np.concatenate([np.exp(x / 64), np.exp(-x), np.log(x), np.power(x, 0.3), np.power(x, -1.7)])
    return f"exp, log and power of {hashlib.sha256(values.tobytes()).hexdigest()[:12]}"


def _uses_library(expression: Expression) -> bool:
    if not isinstance(expression, Call):
        return False
    return expression.op in LIBRARY_FUNCTIONS or any(map(_uses_library, expression.arguments))


def check_identity(place: str, stored: dict[str, Any], asked: dict[str, Any]) -> None:
    """Refuse a store that belongs to another campaign: both values are named."""
    for key in asked:
        difference = _difference(key, stored.get(key), asked[key])
        if difference:
            name, held, wanted = difference
            raise FileError(
                f"{place} holds {name} = {_show(held)}, asked was {_show(wanted)}. Ask for the former, or take another"
                " store."
            )


def _difference(name: str, stored: Any, asked: Any) -> tuple[str, Any, Any] | None:
    """The first place at which two JSON values differ."""
    if stored == asked:
        return None
    if isinstance(stored, dict) and isinstance(asked, dict):
        for key in [*stored, *asked]:
            found = _difference(f"{name}.{key}", stored.get(key), asked.get(key))
            if found:
                return found
    if isinstance(stored, list) and isinstance(asked, list) and len(stored) == len(asked):
        for index, (mine, theirs) in enumerate(zip(stored, asked, strict=True)):
            found = _difference(f"{name}[{index}]", mine, theirs)
            if found:
                return found
    return name, stored, asked


def _show(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
