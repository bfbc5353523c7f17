"""The folders are the pipeline: a room imports only from rooms to its left and from the root modules."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOMS = ("model", "simulate", "moments", "predict", "learn", "evaluate", "use")
ROOT_MODULES = ("errors", "data", "progress")  # each may import only from those before it
ROOT_NAMES = ("__version__",)  # what may be taken from the package itself

# Third-party packages, and the first room that may import them (None: nobody). Simulation and prediction need no JAX.
FIRST_ROOM = {"jax": "learn", "jaxlib": "learn", "optax": "learn", "numba": None, "torch": None}

SOURCE = Path(__file__).resolve().parents[2] / "src" / "ctmoments"
FILES = sorted(SOURCE.rglob("*.py"))


def nodes_at_run_time(node: ast.AST):
    """Every node, but for what stands under `if TYPE_CHECKING`: annotations may name what cannot be imported."""
    yield node
    typing_only = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    for child in node.orelse if typing_only else ast.iter_child_nodes(node):
        yield from nodes_at_run_time(child)


def imported_names(code: str) -> list[str]:
    """Every module or name imported at run time, dotted, wherever in the file it stands."""
    names = []
    for node in nodes_at_run_time(ast.parse(code)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            names += [f"{start}.{alias.name}" for alias in node.names]
    return names


def rank(place: str) -> int:
    """How far right a place stands: root modules first, then the rooms."""
    return (*ROOT_MODULES, *ROOMS).index(place)


def complaints(place: str, code: str) -> list[str]:
    """What the file at `place` (a room or root module) imports and must not."""
    wrong = []
    for name in imported_names(code):
        head, _, rest = name.partition(".")
        if not head:
            wrong.append(f"relative import {name}")
        elif head == "ctmoments":
            target = rest.split(".")[0]
            if target in (*ROOT_MODULES, *ROOMS):
                allowed = rank(target) < rank(place) or (target == place and place in ROOMS)
            else:
                allowed = target in ROOT_NAMES
            if not allowed:
                wrong.append(f"{place} imports {name}")
        elif head in FIRST_ROOM:
            first = FIRST_ROOM[head]
            if first is None or rank(place) < rank(first):
                wrong.append(f"{place} imports {name}; first room allowed: {first}")
    return wrong


def place_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_file_belongs_to_a_room_or_is_a_root_module():
    places = {place_of(path) for path in FILES}
    assert places <= {*ROOMS, *ROOT_MODULES, "__init__", "__main__"}
    assert places >= set(ROOMS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_to_the_left(path: Path):
    if place_of(path) not in ("__init__", "__main__"):
        assert complaints(place_of(path), path.read_text()) == []


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("model", "from ctmoments.simulate import streams"),
        ("moments", "import ctmoments.learn.paper"),
        ("predict", "def f():\n    from ctmoments import learn"),
        ("use", "from ctmoments import simulate_paths"),
        ("errors", "from ctmoments.data import VARIABLES"),
        ("simulate", "from . import kernel"),
        ("simulate", "import jax.numpy as jnp"),
        ("evaluate", "import torch"),
        ("model", "if TYPE_CHECKING:\n    pass\nelse:\n    import ctmoments.use"),
    ],
)
def test_the_checker_sees_what_is_forbidden(place: str, line: str):
    assert len(complaints(place, line)) == 1


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("use", "from ctmoments.model.problem import Problem"),
        ("simulate", "from ctmoments.simulate.streams import Purpose"),
        ("data", "from ctmoments.errors import InputError"),
        ("learn", "import jax"),
        ("use", "from ctmoments import __version__"),
        ("data", "if TYPE_CHECKING:\n    from ctmoments.model.problem import Problem"),
    ],
)
def test_the_checker_lets_pass_what_is_allowed(place: str, line: str):
    assert complaints(place, line) == []
