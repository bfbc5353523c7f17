"""The pages are true: every Python example runs, every verb has help and an entry, every command shown exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ctmoments.use.arguments import parse
from ctmoments.use.cli import VERBS, parser_of

ROOT = Path(__file__).resolve().parents[2]
CLI = (ROOT / "docs" / "cli.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONTRACT = ROOT / "docs" / "design.md"  # names what is to come, too: not run
EXAMPLES = {page: re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) for page in PAGES if page != CONTRACT}
SHOWN = [
    pytest.param(line, id=line)
    for page in PAGES
    if page != CONTRACT
    for line in re.findall(r"^(?:    |\t)(ctmoments [a-z].*?)(?:  +#.*)?$", page.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("page", [page for page in EXAMPLES if EXAMPLES[page]], ids=lambda page: page.name)
def test_the_examples_of_a_page_run_one_after_the_other(page: Path, tmp_path, monkeypatch):
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    for number, code in enumerate(EXAMPLES[page]):
        exec(compile(code, f"{page.name}, example {number}", "exec"), names)  # our own pages
    pyplot.close("all")


def test_there_are_examples():
    assert len(EXAMPLES[ROOT / "README.md"]) >= 2 and len(SHOWN) >= 5


@pytest.mark.parametrize("line", SHOWN)
def test_a_command_that_is_shown_can_be_read(line: str):
    words = shlex.split(line)
    assert words[1] in VERBS
    parse(parser_of(words[1]), words[2:])


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_help_and_an_entry(verb: str):
    entry = re.search(rf"^## {verb}\n(.*?)(?=^## |\Z)", CLI, re.MULTILINE | re.DOTALL)
    assert entry and f"ctmoments {verb}" in entry[1]
    assert VERBS[verb].help
    for action in parser_of(verb)._actions:
        assert action.help, action.option_strings


def test_verbs_stand_in_the_page_in_the_order_of_the_command():
    assert re.findall(r"^## ([a-z]+)$", CLI, re.MULTILINE) == list(VERBS)
