"""Notebooks are kept as pairs without output, and stand on the public packages alone. Building the site runs them."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

FOLDER = ROOT / "notebooks"
SCRIPTS = sorted(FOLDER.glob("[0-9]*.py"))
ALLOWED = {
    "highspy", "planner", "instances", "numpy", "os", "json", "tempfile", "importlib", "itertools", "math", "copy",
    "dataclasses", "fractions", "pathlib", "shutil", "subprocess", "sys",
}  # fmt: skip

each = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)


def cells_of(script: Path) -> list[dict[str, Any]]:
    """Of its notebook."""
    found: list[dict[str, Any]] = json.loads(script.with_suffix(".ipynb").read_text())["cells"]
    return found


def test_stories_are_numbered_and_listed() -> None:
    numbers = [int(path.name.partition("_")[0]) for path in SCRIPTS]
    assert numbers == list(range(1, len(SCRIPTS) + 1)) and numbers
    listed = (FOLDER / "README.md").read_text()
    assert all(path.with_suffix(".ipynb").name in listed for path in SCRIPTS)


@each
def test_the_pair_says_the_same_and_keeps_no_output(script: Path) -> None:
    paired = [(each["cell_type"], "".join(each["source"])) for each in cells_of(script)]
    begun = [each.partition("\n") for each in re.split(r"^# %%", script.read_text(), flags=re.MULTILINE)[1:]]
    written = [
        ("markdown", re.sub(r"^# ?", "", text.strip("\n"), flags=re.MULTILINE)) if kind else ("code", text.strip("\n"))
        for kind, _, text in begun
    ]
    assert paired == written and len(paired) > 5
    assert all(not each.get("outputs") and each.get("execution_count") is None for each in cells_of(script))


@each
def test_only_public_packages_are_imported(script: Path) -> None:
    found = set()
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    assert found <= ALLOWED
