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


@pytest.mark.parametrize("family", ["stage_partitioning", "tmpc_knapsack"])
def test_schemas_shown_are_read_and_their_plans_check(family: str) -> None:
    section = (ROOT / "docs" / "interface.md").read_text().partition(f"### `{family}`")[2].partition("\n### ")[0]
    blocks = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", section, flags=re.DOTALL)]
    plans = [json.loads(text) for text in re.findall(r"Plan: `(.*?)`", section)]
    content, plan = [*blocks, *plans][:2]
    instance = recognised(content, "interface.md").read(content, "interface.md", {})
    assert planner.check(instance, plan).feasible
