"""A problem or a model as one readable screen. In: the object. Out: text; long lists are cut, and say so."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ctmoments.model.model import Model
from ctmoments.model.problem import Problem
from ctmoments.model.space import Integer, Linear, Log
from ctmoments.model.tree import number_text

WIDTH = 100
INDENT = 14
MAX_REACTIONS = 24
MAX_NAMES = 60
HARD_SPACE = "\N{NO-BREAK SPACE}"  # keeps "S = 763" on one line
SCALE = {Linear: "", Log: "  (log)", Integer: "  (whole numbers)"}


def describe(problem: Problem) -> str:
    """The text of `ctmoments info NAME`.

    >>> from ctmoments.model.library import load_problem
    >>> print(describe(load_problem("sir")))  # doctest: +ELLIPSIS
    Problem sir
      An epidemic in a closed population of 766, three of them infected at the start.
      species     S = 763, I = 3, R = 0
      reactions   infection: S + I -> 2 I : beta*S*I
                  recovery: I -> R : alpha*I
      space       alpha  0.1 to 0.9
                  beta   0.00125 to 0.00325
      observed    I
      times       13: 1, 2, ..., 13
      outputs     13 means, 91 covariance entries
      source      Pratt & Prosper Feldman, ...
    """
    count = len(problem.observe) * len(problem.times)
    lines = [f"Problem {problem.name}".rstrip()]
    if problem.description:
        lines += textwrap.wrap(problem.description, WIDTH, initial_indent="  ", subsequent_indent="  ")
    lines += _model_lines(problem.model)
    lines += _entry("space", _space_lines(problem))
    lines += _entry("observed", [_listed(problem.observe)])
    lines += _entry("times", [_times(problem.times)])
    lines += _entry("outputs", [f"{count} means, {count * (count + 1) // 2} covariance entries"])
    if problem.source:
        lines += _entry("source", [problem.source])
    return "\n".join(lines)


def describe_model(model: Model) -> str:
    """A model as one screen."""
    lines = [f"Model {model.name}".rstrip(), *_model_lines(model)]
    return "\n".join(lines + (_entry("parameters", [_listed(model.parameters)]) if model.parameters else []))


def _model_lines(model: Model) -> list[str]:
    lines = _entry("species", [_listed([f"{name} = {amount}" for name, amount in model.species.items()])])
    if model.constants:
        pairs = [f"{name} = {number_text(value)}" for name, value in model.constants.items()]
        lines += _entry("constants", [_listed(pairs)])
    reactions = [str(reaction) for reaction in model.reactions[:MAX_REACTIONS]]
    if len(model.reactions) > MAX_REACTIONS:
        reactions.append(f"... {len(model.reactions)} reactions in all")
    return lines + _entry("reactions", reactions)


def _space_lines(problem: Problem) -> list[str]:
    width = max(map(len, problem.space.entries))
    lines = []
    for name, entry in problem.space.entries.items():
        if isinstance(entry, Linear | Log | Integer):
            text = f"{number_text(entry.low)} to {number_text(entry.high)}{SCALE[type(entry)]}"
        else:
            text = f"{number_text(entry)}  (fixed)"
        lines.append(f"{name:{width}}  {text}")
    return lines


def _times(times: Sequence[float]) -> str:
    texts = [number_text(time) for time in times]
    shown = texts if len(texts) <= 6 else [*texts[:2], "...", texts[-1]]
    return f"{len(texts)}: {', '.join(shown)}"


def _listed(items: Sequence[str]) -> str:
    cut = [*items[:MAX_NAMES], f"... {len(items)} in all"] if len(items) > MAX_NAMES else items
    return ", ".join(item.replace(" ", HARD_SPACE) for item in cut)


def _entry(title: str, values: Sequence[str]) -> list[str]:
    """Values under a title, wrapped, the title on the first line."""
    wrapper = textwrap.TextWrapper(WIDTH - INDENT, subsequent_indent="  ", break_on_hyphens=False)
    lines = [part.replace(HARD_SPACE, " ") for value in values for part in wrapper.wrap(value)]
    return [f"  {title if row == 0 else '':<{INDENT - 2}}{line}" for row, line in enumerate(lines)]
