"""Notebooks are kept as pairs without output, and stand on the public packages alone. Building the site runs them."""

import ast
import json
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


def test_stories_are_numbered_and_listed() -> None:
    numbers = [int(path.name.partition("_")[0]) for path in SCRIPTS]
    assert numbers == list(range(1, len(SCRIPTS) + 1)) and numbers
    listed = (FOLDER / "README.md").read_text()
    assert all(path.with_suffix(".ipynb").name in listed for path in SCRIPTS)


@each
def test_the_pair_says_the_same(script: Path) -> None:
    jupytext = pytest.importorskip("jupytext", reason="jupytext is not installed")
    written, paired = jupytext.read(script), jupytext.read(script.with_suffix(".ipynb"))
    assert [(cell.cell_type, cell.source) for cell in paired.cells] == [
        (cell.cell_type, cell.source) for cell in written.cells
    ]


@each
def test_no_output_is_kept(script: Path) -> None:
    cells: list[dict[str, Any]] = json.loads(script.with_suffix(".ipynb").read_text())["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)


@each
def test_only_public_packages_are_imported(script: Path) -> None:
    found = set()
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    assert found <= ALLOWED
