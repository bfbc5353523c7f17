"""A problem whose paths come from the user's own simulator: what is asked of it, and what is known of it without it.

In: a Python callable, a space, outputs. Out: a frozen `CallableProblem` with the attributes of a `Problem` that data,
campaigns and learners read. Its text holds name, space and outputs; running it again needs the callable again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ctmoments.errors import ModelError
from ctmoments.model.checks import check_keys, check_mapping, check_text
from ctmoments.model.space import Space


@dataclass(frozen=True)
class CallableProblem:
    """The moments of the outputs of `simulate`, for every parameter value of `space`. See `Problem.from_callable`."""

    simulate: Callable[..., Any] | None  # None: read from a file, which cannot hold it
    space: Space
    output_names: tuple[str, ...]
    output_at: tuple[float, ...]
    vectorised: bool = False
    name: str = ""
    description: str = ""
    source: str = ""

    def __post_init__(self):
        if self.simulate is not None and not callable(self.simulate):
            raise ModelError(f"`simulate` must be a function, got {self.simulate!r}.")
        if not isinstance(self.space, Space):
            raise ModelError(f"`space` must be a Space, got {self.space!r}.")
        if not isinstance(self.vectorised, bool):
            raise ModelError(f"`vectorised` must be True or False, got {self.vectorised!r}.")
        outputs = list(zip(self.output_names, self.output_at, strict=True))
        if not outputs or len(set(outputs)) < len(outputs):
            raise ModelError(f"`outputs` must be different names, or pairs of name and time, got {outputs}.")

    @property
    def observe(self) -> tuple[str, ...]:
        """The components, each once."""
        return tuple(dict.fromkeys(self.output_names))

    @property
    def times(self) -> tuple[float, ...]:
        """The times, each once."""
        return tuple(sorted(set(self.output_at)))

    @property
    def output_components(self) -> tuple[str, ...]:
        """The component of each output."""
        return self.output_names

    @property
    def output_times(self) -> np.ndarray:
        """The time of each output: float64 (output,)."""
        return np.array(self.output_at, np.float64)

    def theta_mapping(self, values: np.ndarray) -> dict[str, float]:
        """One parameter value by name, fixed ones included."""
        return dict(zip(self.space.parameters, values.tolist(), strict=True)) | dict(self.space.fixed)

    def to_toml(self) -> str:
        """Name, space and outputs as text."""
        from ctmoments.model.toml import callable_to_toml

        return callable_to_toml(self)

    def __str__(self) -> str:
        return f"{self.name}: a Python callable with {len(self.output_names)} outputs\n\n{self.to_toml()}"

    __repr__ = __str__


def callable_problem(
    simulate: Callable[..., Any] | None,
    space: Space,
    outputs: Sequence[str | tuple[str, float]] | Mapping[str, Iterable[float]],
    vectorised: bool = False,
    name: str = "",
) -> CallableProblem:
    """Check and sort out what `Problem.from_callable` takes."""
    if isinstance(outputs, Mapping):
        pairs = [(text, time) for text, times in outputs.items() for time in times]
    elif isinstance(outputs, Sequence) and not isinstance(outputs, str):
        pairs = [(entry, 0.0) if isinstance(entry, str) else entry for entry in outputs]
    else:
        raise ModelError(f"`outputs` must be a list of names, or name -> times, got {outputs!r}.")
    try:
        names = tuple(check_text(text, "an output's name") for text, _ in pairs)
        times = tuple(float(time) for _, time in pairs)
    except (TypeError, ValueError) as error:
        raise ModelError(f"`outputs` must be names, or pairs of name and time, got {outputs!r}: {error}") from None
    if not np.isfinite(times).all():
        raise ModelError(f"`outputs`: times must be finite, got {times}.")
    name = name or getattr(simulate, "__qualname__", "") or type(simulate).__name__
    return CallableProblem(simulate, space, names, times, vectorised, name=check_text(name, "`name`"))


def callable_from_tables(tables: Mapping[str, Any], space: Space) -> CallableProblem:
    """A problem without its callable, from the tables of its file."""
    check_keys(tables, ("name", "callable", "space"), "top level")
    table = check_mapping(tables["callable"], "[callable]")
    check_keys(table, ("outputs", "times", "vectorised"), "[callable]")
    pairs = list(zip(table.get("outputs", ()), table.get("times", ()), strict=True))
    return callable_problem(None, space, pairs, table.get("vectorised", False), tables.get("name", "callable"))
