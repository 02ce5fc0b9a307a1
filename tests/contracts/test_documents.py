"""Documents that can be run are run: doctests of all modules, and the JSON in docs/interface.md."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
from pathlib import Path

import pytest

import planner
from formulations import FAMILIES
from planner.loading import recognised

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("planner", "formulations", "solvers", "instances")
MODULES = sorted(
    {
        name
        for package in PACKAGES
        for name in [
            package,
            *(
                found.name
                for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
                if not found.name.endswith("__main__")
            ),
        ]
    }
)


def test_doctests() -> None:
    attempted = 0
    for name in MODULES:
        outcome = doctest.testmod(importlib.import_module(name))
        assert outcome.failed == 0, name
        attempted += outcome.attempted
    assert attempted >= 10


@pytest.mark.parametrize(
    "family",
    [
        "stage_partitioning",
        "tmpc_knapsack",
        "layer_assignment",
        "mesh_tiling",
        "amp_strategy",
        "operator_partitioning",
        "stage_graph",
        "microbatch_schedule",
    ],
)
def test_schemas_shown_are_read_and_their_plans_check(family: str) -> None:
    section = (ROOT / "docs" / "interface.md").read_text().partition(f"### `{family}`")[2].partition("\n### ")[0]
    blocks = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", section, flags=re.DOTALL)]
    plans = [json.loads(text) for text in re.findall(r"Plan: `(.*?)`", section)]
    content, plan = [*blocks, *plans][:2]
    instance = recognised(content, "interface.md").read(content, "interface.md", {})
    assert planner.check(instance, plan).feasible


def test_the_readme_names_every_method() -> None:
    table = (ROOT / "README.md").read_text().partition("## Problems and methods")[2].partition("\n## ")[0]
    family, shown = "", set()
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and "`" in cells[1]:
            family = cells[0].strip("`") or family
            shown |= {(family, name, cells[2]) for name in re.findall(r"`(.*?)`", cells[1])}
    assert shown == {(family.name, method.name, method.claim.value) for family in FAMILIES for method in family.methods}


def test_the_check_script_runs_the_readme() -> None:
    commands = re.findall(r"```sh\n(.*?)\n```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert [len(command.splitlines()) for command in commands] == [1, 1]
    assert commands[1].startswith("python3.11 -m venv .venv-test ")
