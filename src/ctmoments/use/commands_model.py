"""`ctmoments info` and `ctmoments check`: what problems there are, what a file holds, whether it is valid."""

from __future__ import annotations

import shutil
import sys
import textwrap
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from ctmoments.errors import InputError
from ctmoments.use.arguments import Parser
from ctmoments.use.talk import Talk

if TYPE_CHECKING:
    from ctmoments.model.problem import Problem


def add_info(parser: Parser) -> None:
    """Arguments of `info`."""
    parser.add_argument("problem", metavar="PROBLEM", nargs="?", help="a built-in problem, or a problem or map file")
    parser.add_argument("--toml", action="store_true", help="print the problem file: a starter for your own")


def run_info(settings: Namespace, talk: Talk) -> None:
    """List, describe, or print a problem file."""
    from ctmoments.model.library import list_problems, load_problem

    if settings.problem is None:
        if settings.toml:
            raise InputError("--toml must come with a problem: `ctmoments info sir --toml`.")
        problems = {name: load_problem(name) for name in list_problems()}
        talk.result(_listing(problems), {"problems": {name: _record(entry) for name, entry in problems.items()}})
        return
    if settings.problem.endswith(".ctm"):
        from ctmoments.predict.mapfile import load_map

        map_ = load_map(settings.problem)
        if settings.toml:
            sys.stdout.write(map_.problem.to_toml())
        else:
            talk.result(str(map_), {"card": dict(map_.card), **_record(map_.problem)})
        return
    problem = load_problem(settings.problem)
    if settings.toml:
        talk.result(starter(settings.problem, problem).rstrip("\n"), {"toml": problem.to_toml()})
    else:
        talk.result(str(problem), _record(problem) | {"toml": problem.to_toml()})


def starter(name: str, problem: Problem) -> str:
    """The text of a problem file: of a built-in problem the file itself, with its comments."""
    from ctmoments.model.library import FOLDER, list_problems

    if name in list_problems():
        return (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    return problem.to_toml()


def add_check(parser: Parser) -> None:
    """Arguments of `check`."""
    parser.add_argument("problem", metavar="FILE", help="a problem file")


def run_check(settings: Namespace, talk: Talk) -> None:
    """Read a problem file, lower it as kernels need it, and try the corners of its box."""
    import numpy as np

    from ctmoments.model.library import load_problem
    from ctmoments.simulate.network import lower

    problem = load_problem(settings.problem)
    lower(problem)
    count = len(problem.space.parameters)
    corners = [np.zeros(count), np.ones(count), np.full(count, 0.5)]
    problem.initial_states(problem.space.from_unit(np.stack(corners)))
    record = _record(problem)
    talk.result(
        f"{settings.problem}: valid: {_counted(record['species'], 'species', 'species')}, "
        f"{_counted(record['reactions'], 'reaction')}, {_counted(record['parameters'], 'parameter')}, "
        f"{_counted(record['outputs'], 'output')}",
        {"file": settings.problem, "valid": True, **record},
    )


def _record(problem: Problem) -> dict[str, Any]:
    return {
        "name": problem.name,
        "description": problem.description,
        "source": problem.source,
        "species": list(problem.model.species),
        "reactions": [str(reaction) for reaction in problem.model.reactions],
        "parameters": list(problem.space.parameters),
        "observe": list(problem.observe),
        "times": list(problem.times),
        "outputs": list(problem.output_components),
    }


def _counted(items: list, one: str, many: str = "") -> str:
    return f"{len(items)} {one if len(items) == 1 else many or one + 's'}"


def _listing(problems: dict[str, Problem]) -> str:
    width = max(map(len, problems))
    room = max(60, shutil.get_terminal_size((100, 24)).columns) - width - 19
    lines = []
    for name, problem in problems.items():
        size = f"{len(problem.space.parameters)} par, {len(problem.output_components)} out"
        lines.append(f"{name:{width}}  {size:>14}  {textwrap.shorten(problem.description, room, placeholder=' ...')}")
    return "\n".join(lines)
