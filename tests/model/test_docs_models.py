"""The page on models is true: its examples run, its tables name what the grammar knows."""

import re

import pytest

import ctmoments as ctm
from ctmoments.model.expressions import FUNCTIONS, parse_expression
from ctmoments.model.reaction import parse_reaction
from ctmoments.model.toml import problem_from_toml


@pytest.fixture
def page(root):
    return (root / "docs" / "models.md").read_text()


def test_the_examples_agree(page, capsys):
    python, toml = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL)[1] for kind in ("python", "toml"))
    names = {}
    exec(python, names)  # our own page
    assert "Problem mine" in capsys.readouterr().out
    problem = problem_from_toml(toml)
    assert (problem.space, problem.observe, problem.times) == tuple(
        getattr(names["problem"], field) for field in ("space", "observe", "times")
    )
    assert isinstance(problem, ctm.Problem) and problem.name == "mine"


def test_the_table_of_reactions(page):
    rows = re.findall(r"^\| `(.*? @ .*?)`.*? \| `(.*?)`", page, re.MULTILINE)
    assert len(rows) == 4
    for text, rate in rows:
        assert parse_reaction(text).rate == parse_expression(rate)


def test_every_function_is_named(page):
    section = page[page.index("## Expressions") : page.index("## What is watched")]
    assert [name for name in FUNCTIONS if not re.search(rf"\b{name}\b", section)] == []
