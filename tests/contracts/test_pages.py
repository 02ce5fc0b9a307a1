"""The pages of problems: their Python is run, their commands end well, their pictures can be drawn."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

from planner.cli.app import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((DOCS / "problems").glob("*.md"))

each = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)


@each
def test_the_python_of_a_page_does_what_it_shows(page: Path) -> None:
    outcome = doctest.testfile(str(page), module_relative=False)
    assert outcome.attempted >= 2 and outcome.failed == 0


@each
def test_the_commands_of_a_page_end_well(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^\$ planner (.*)$", page.read_text(), flags=re.MULTILINE)
    assert commands
    for command in commands:
        assert main(shlex.split(command)) == 0, capsys.readouterr().err


@each
def test_a_page_is_listed_and_shows_methods_and_pictures(page: Path) -> None:
    text = page.read_text()
    assert f"problems/{page.name}" in (DOCS.parent / "mkdocs.yml").read_text()
    assert "<!-- methods -->" in text and "<!-- figure -->" in text and text.startswith("---\ninstance:")
