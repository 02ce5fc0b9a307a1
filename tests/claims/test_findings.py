"""The small examples of docs/findings.md show what is said of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import planner

FINDINGS = (Path(__file__).resolve().parents[2] / "docs" / "findings.md").read_text()


@pytest.mark.parametrize(("cost_model", "time", "d"), [("paper", 1.0, 1), ("released", 0.75, 2)])
def test_a_second_replica_pays_under_one_formula_only(cost_model: str, time: float, d: int, tmp_path: Path) -> None:
    example = re.search(r"```json\n(.*?)```", FINDINGS, flags=re.DOTALL)
    assert example is not None
    file = tmp_path / "one.json"
    file.write_text(json.dumps(json.loads(example[1])))
    found = planner.solve(planner.load(file, cost_model=cost_model), exact=True)
    assert found.objective == time and found.plan is not None and found.plan["stages"][0]["dp_degree"] == d


@pytest.mark.parametrize(("order", "time"), [({}, 0.020), ({"linearize": "lifo"}, 0.024)])
def test_a_chain_can_hide_the_best_plan(order: dict[str, Any], time: float) -> None:
    found = planner.solve(planner.load("diamond", devices=2, memory="30MB", **order), exact=True)
    assert found.objective == pytest.approx(time, rel=1e-9)


@pytest.mark.paper
@pytest.mark.parametrize(("fix", "time"), [(False, "63.44"), (True, "82.40")])
def test_the_unit_of_resnet(published: Path, fix: bool, time: str) -> None:
    instance = planner.load(
        published / "piper" / "resnet.json", devices=8, memory="8GiB", bandwidth="25GiB/s", fix_units=fix
    )
    assert f"{planner.solve(instance, exact=True).objective:.2f}" == time and time in FINDINGS
