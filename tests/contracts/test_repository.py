"""What the repository promises about itself: pins for every requirement, links that lead somewhere, short modules."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 320  # lines of a module: 300 is the aim, and a little grace keeps a fix from becoming a reorganisation
MODULES = sorted((ROOT / "src").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def required() -> set[str]:
    """Every distribution that pyproject.toml names, normalised."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    return {normal(re.split(r"[\[<>=!~; ]", line)[0]) for line in lines}


def pinned() -> set[str]:
    """Every distribution that constraints.txt pins, normalised."""
    return {normal(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_requirement_is_pinned():
    assert required() - pinned() == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    local = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_modules_are_short_and_say_what_they_hold(path: Path):
    text = path.read_text()
    assert len(text.splitlines()) <= LIMIT
    assert path.name == "__init__.py" or text.startswith('"""')


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_the_package_depends_on_no_machine(path: Path):
    assert not re.search(r"/work/|\.\./shared|/tmp/|/home/", path.read_text())
