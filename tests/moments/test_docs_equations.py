"""The page on moment equations prints what the code prints."""

import re

import pytest


def test_the_examples_print_what_the_page_shows(root, capsys):
    page = (root / "docs" / "equations.md").read_text(encoding="utf-8")
    parts = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert len(parts) == 2
    names: dict = {}
    for code, shown in parts:
        exec(code, names)
        assert capsys.readouterr().out == shown


@pytest.mark.parametrize("name", ["closed", "missing", "derivative", "to_text", "to_latex"])
def test_the_page_names_what_exists(root, name):
    from ctmoments.moments.equations import MomentEquations

    assert hasattr(MomentEquations, name)
    assert name in (root / "docs" / "equations.md").read_text(encoding="utf-8")
