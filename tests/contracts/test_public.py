"""The public names: sorted, each where it is said to be, each with a docstring, and cheap to import."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ctmoments as ctm

ROOT = Path(__file__).resolve().parents[2]
EXTRA = {"Linear", "as_theta", "list_problems"}  # public, and not named in docs/design.md

# Heavy packages that `import ctmoments` must leave alone: training, plots, statistics and the cluster are asked for.
LATE = ("jax", "optax", "matplotlib", "scipy.stats", "scipy.integrate", "distributed", "rich", "h5netcdf", "sympy")


def contract() -> set[str]:
    """Every word of docs/design.md."""
    return set(re.findall(r"\w+", (ROOT / "docs" / "design.md").read_text()))


def promised_to_checkers() -> set[str]:
    """The names that __init__ imports for type checkers only."""
    tree = ast.parse((ROOT / "src" / "ctmoments" / "__init__.py").read_text())
    blocks = [
        node for node in tree.body if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    ]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in imports for alias in node.names}


def test_names_are_sorted_and_alike_everywhere():
    assert list(ctm.__all__) == sorted(ctm.__all__)
    assert promised_to_checkers() == set(ctm.__all__)
    assert set(ctm.__all__) <= set(dir(ctm))


def test_names_are_those_of_the_design():
    assert set(ctm.__all__) - contract() <= EXTRA


@pytest.mark.parametrize("name", ctm.__all__)
def test_every_name_is_there_and_documented(name: str):
    assert len((getattr(ctm, name).__doc__ or "").strip()) > 20


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'simulate_path'"):
        _ = ctm.simulate_path


def test_importing_is_light():
    code = f"import json, sys, ctmoments; print(json.dumps([m for m in {LATE!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert json.loads(done.stdout) == []


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "src")}
