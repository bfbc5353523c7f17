"""A problem: a model, the box of its parameters, what is watched, and when.

In: a `Model`, a `Space`, components, times. Out: a frozen `Problem` that knows its outputs, its initial states,
and its text as TOML. `load_problem` and its kin stand in `library.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ctmoments.errors import FileError, ModelError, ThetaError, nearest
from ctmoments.model.callable import CallableProblem, callable_problem
from ctmoments.model.checks import check_text, is_number
from ctmoments.model.component import Component, parse_component
from ctmoments.model.expressions import evaluate
from ctmoments.model.model import Model, are_amounts
from ctmoments.model.space import Space


@dataclass(frozen=True)
class Problem:
    """What is asked: the moments of `observe` at `times` for every parameter value of `space`.

    `observe` is a species, a combination ("S + I"), or a list of them; times increase from 0 on.

    >>> model = Model({"X": 0}, ["k", "g"], ["0 -> X : k", "X -> 0 : g*X"])
    >>> problem = Problem(model, Space(k=(1, 10), g=0.5), observe="X", times=[1, 2.5])
    >>> problem.output_components, problem.output_times.tolist()
    (('X', 'X'), [1.0, 2.5])
    """

    model: Model
    space: Space
    observe: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    name: str = ""
    description: str = ""
    source: str = ""

    if TYPE_CHECKING:  # what may come in is wider than what is kept

        def __init__(
            self,
            model: Model,
            space: Space,
            observe: str | Sequence[str],
            times: Iterable[float],
            name: str = "",
            description: str = "",
            source: str = "",
        ): ...

    def __post_init__(self):
        fix = object.__setattr__
        for field, kind in (("model", Model), ("space", Space)):
            if not isinstance(getattr(self, field), kind):
                raise ModelError(f"`{field}` must be a {kind.__name__}, got {getattr(self, field)!r}.")
        for field in ("name", "description", "source"):
            fix(self, field, check_text(getattr(self, field), f"`{field}`"))
        self._check_parameters()
        fix(self, "observe", _check_observe(self.observe, self.model))
        fix(self, "times", _check_times(self.times))

    def _check_parameters(self) -> None:
        wanted, given = self.model.parameters, tuple(self.space.entries)
        for name in wanted:
            if name not in given:
                hint = (
                    nearest(name, set(given) - set(wanted)) if set(given) - set(wanted) else "Add it, or fix its value."
                )
                raise ModelError(f"`space` must hold every parameter of the model, but {name!r} is missing. {hint}")
        for name in given:
            if name not in wanted:
                raise ModelError(f"`space`: {name!r} must be a parameter of the model. {nearest(name, wanted)}")

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """What is watched, as whole-numbered weights over the species."""
        return tuple(parse_component(text, tuple(self.model.species)) for text in self.observe)

    @property
    def output_components(self) -> tuple[str, ...]:
        """The component of each output, component by component in time order."""
        return tuple(text for text in self.observe for _ in self.times)

    @property
    def output_times(self) -> np.ndarray:
        """The time of each output: float64 (output,)."""
        return np.tile(np.array(self.times, np.float64), len(self.observe))

    def parameter_columns(self, theta: Any) -> np.ndarray:
        """Varying and fixed values in the order of `model.parameters`: float64 (point, parameter)."""
        theta = np.asarray(theta, np.float64)
        columns = dict(zip(self.space.parameters, theta.T, strict=True)) | dict(self.space.fixed)
        stacked = [np.broadcast_to(columns[name], len(theta)) for name in self.model.parameters]
        return np.stack(stacked, axis=1)

    def initial_states(self, theta: Any) -> np.ndarray:
        """The amounts at time 0 at each point: int64 (point, species); whole numbers, or an error that names one."""
        columns = dict(zip(self.model.parameters, self.parameter_columns(theta).T, strict=True))
        columns |= self.model.constants
        points = theta["point"].values if isinstance(theta, xr.DataArray) else np.arange(len(theta))
        states = np.empty((len(points), len(self.model.species)), np.int64)
        for column, (name, amount) in enumerate(self.model.species.items()):
            amounts = np.broadcast_to(evaluate(amount, columns), len(points))
            wrong = ~are_amounts(amounts)
            if wrong.any():
                row = int(np.argmax(wrong))
                values = dict(zip(self.space.parameters, np.asarray(theta)[row].tolist(), strict=True))
                raise ThetaError(
                    f"initial amount of {name!r} = {amount} at point {points[row]}, {values}, "
                    f"must be a whole number from 0 to 2^52, got {amounts[row].item()!r}."
                )
            states[:, column] = np.round(amounts)
        return states

    @staticmethod
    def from_callable(
        simulate: Callable[..., Any],
        space: Space,
        outputs: Sequence[str | tuple[str, float]] | Mapping[str, Iterable[float]],
        *,
        vectorised: bool = False,
        name: str = "",
    ) -> CallableProblem:
        """A problem whose paths come from a simulator of your own.

        `simulate(theta, rng) -> (output,)` gives one path: `theta` is a dict, `rng` a NumPy generator at the path's own
        address. With `vectorised`, `simulate(theta, seeds) -> (n, output)` gives a path for each row of `theta` (n, p)
        and each of `seeds` uint64 (n,); a row may depend on its own theta and seed only. `outputs` are names, pairs
        (name, time), or name -> times; an output without a time stands at 0. A path that raises, or has another shape,
        or values that are not finite, counts as failed at its point.

        >>> problem = Problem.from_callable(lambda theta, rng: [rng.poisson(theta["k"])], Space(k=(1, 9)), ["X"])
        >>> problem.output_components
        ('X',)
        """
        return callable_problem(simulate, space, outputs, vectorised, name)

    def to_toml(self) -> str:
        """The problem file. `load_problem` reads it back to an equal problem."""
        from ctmoments.model.toml import problem_to_toml

        return problem_to_toml(self)

    def save(self, path: str | Path) -> None:
        """Write the problem file; its name must end in .toml."""
        path = Path(path)
        if path.suffix != ".toml":
            raise FileError(f"a problem file's name must end in .toml, got {str(path)!r}.")
        path.write_text(self.to_toml(), encoding="utf-8", newline="\n")

    def __str__(self) -> str:
        from ctmoments.model.describe import describe

        return describe(self)

    __repr__ = __str__


def _check_observe(observe: Any, model: Model) -> tuple[str, ...]:
    texts = (observe,) if isinstance(observe, str) else observe
    if not isinstance(texts, Sequence) or not texts:
        raise ModelError(
            f"`observe` must be a species, a combination like 'S + I', or a list of them, got {observe!r}."
        )
    seen: dict[tuple, str] = {}
    for text in texts:
        component = parse_component(text, tuple(model.species))
        key = component.weights, component.scale
        if key in seen:
            raise ModelError(f"`observe`: components must differ, got {text!r} after {seen[key]!r}.")
        seen[key] = component.text
    return tuple(seen.values())


def _check_times(times: Any) -> tuple[float, ...]:
    if isinstance(times, str) or not isinstance(times, Iterable):
        raise ModelError(f"`times` must be a list of numbers, got {times!r}.")
    values = list(times)
    if not values:
        raise ModelError("`times` must hold at least one time, got none.")
    for value in values:
        if not is_number(value) or not math.isfinite(value) or value < 0:
            raise ModelError(f"`times` must be finite numbers from 0 on, got {value!r}.")
    for before, after in itertools.pairwise(values):
        if not before < after:
            raise ModelError(
                f"`times` must increase, got {float(after)!r} after {float(before)!r}. Sort, drop repeats."
            )
    return tuple(float(value) for value in values)
