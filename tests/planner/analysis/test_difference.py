"""What differs between two plans: nothing of a plan and itself; by hand; in every family; as text, JSON, picture."""

import json
from pathlib import Path
from typing import Any

import pytest
from random_instances import warmed
from small_instances import random_case

import planner
from formulations import FAMILIES
from instances.errors import InstanceError
from planner.analysis.difference import decisions, diff
from planner.cli.app import main
from planner.display.differences import panels

FIRST = {
    "stages": [
        {"nodes": [0, 1, 2, 3], "dp_degree": 1, "tp_degree": 2, "tmpcs": dict.fromkeys("0123", "keep")},
        {"nodes": [4, 5, 6, 7], "dp_degree": 1, "tp_degree": 2, "tmpcs": dict.fromkeys("4567", "keep")},
    ]
}
SECOND = {
    "stages": [
        {"nodes": [0, 1, 2], "dp_degree": 1, "tp_degree": 2, "tmpcs": dict.fromkeys("012", "keep")},
        {"nodes": [3], "dp_degree": 1, "tp_degree": 1, "tmpcs": {"3": "keep"}},
        {"nodes": [4, 5, 6, 7], "dp_degree": 1, "tp_degree": 1, "tmpcs": dict.fromkeys("4567", "keep")},
    ]
}


def files(tmp_path: Path) -> list[str]:
    for name, plan in (("a.json", FIRST), ("b.json", SECOND)):
        (tmp_path / name).write_text(json.dumps({"problem": "stage_partitioning", "instance": "chain8", **plan}))
    return [str(tmp_path / "a.json"), str(tmp_path / "b.json"), "chain8"]


def test_two_plans_by_hand() -> None:
    found = diff(FIRST, SECOND, planner.load("chain8"))
    assert {row.of: row.differs for row in found.decisions if row.differs} == {
        "node 3": ["stage", "tp_degree"],
        **{f"node {node}": ["stage", "tp_degree"] for node in (4, 5, 6, 7)},
    }
    assert found.decisions[3].second == {"stage": 1, "dp_degree": 1, "tp_degree": 1, "tmpc": "keep"}
    assert [(pair.first, pair.second, pair.differs) for pair in found.stages] == [
        (0, None, ["nodes"]), (1, 2, ["tp_degree"]), (None, 0, ["nodes"]), (None, 1, ["nodes"]),
    ]  # fmt: skip
    assert found.first.objective is not None and found.second.objective is not None
    assert found.loss == found.second.objective / found.first.objective - 1 > 0


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_plan_does_not_differ_from_itself_and_another_does(family: Any) -> None:
    warmed(family.name)
    seen: list[tuple[Any, Any]] = []
    for number in range(8):
        if len(seen) == 2:
            break
        instance = random_case(family.name, 7, number)
        result = planner.solve(instance)
        if result.plan is None:
            continue
        same = diff(result.plan, result.to_json(), instance)
        assert same.same and same.loss in (0, None)
        seen.append((instance, result.plan))
    assert len(seen) > 1
    for instance, plan in seen:
        for other in (other for _, other in seen if dict(decisions(other)) != dict(decisions(plan))):
            try:
                found = diff(plan, other, instance)
            except InstanceError:  # a plan of another instance, in another form
                continue
            assert not found.same


def test_as_text_as_json_and_as_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "both.svg"
    assert main(["diff", *files(tmp_path), "--plot", str(picture)]) == 0
    text = capsys.readouterr().out
    assert "node 4 .. node 7 (4): stage 1, tp_degree 2 -> stage 2, tp_degree 1" in text
    assert "differs 5 of 8 decisions" in text and "stages  1 of 4" in text
    assert "<svg" in picture.read_text()
    assert main(["diff", *files(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["same"] is False and shown["decisions"][3]["differs"] == ["stage", "tp_degree"]
    first = files(tmp_path)[0]
    assert main(["diff", first, first, "chain8"]) == 0
    assert "the plans are the same" in capsys.readouterr().out


def test_a_stage_has_one_colour_in_strips_and_bars() -> None:
    instance = planner.load("chain8")
    strip, *bars = panels(diff(FIRST, SECOND, instance))
    both = [row["stage"] for row in strip.datasets["runs"]]  # stages 0 and 1 of the first, 0, 1 and 2 of the second
    assert len(both) == 5 and both[4] == both[1] != both[3]
    for chart, expected in zip(bars, (both[:2], both[2:]), strict=True):
        assert list(dict.fromkeys(row["stage"] for row in chart.datasets["parts"])) == expected
    assert bars[0].top == bars[1].top and bars[0].unit == bars[1].unit


@pytest.mark.parametrize("content", ["", "[]", '{"stages": 3}', '{"status": "unknown", "plan": null}'])
def test_what_is_no_plan_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    first, second, instance = files(tmp_path)
    Path(second).write_text(content)
    assert main(["diff", first, second, instance]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and second in error


def test_plans_without_stages_of_nodes_have_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, picture = tmp_path / "plan.json", tmp_path / "no.png"
    assert main(["solve", "fig2", "--out", str(plan), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["diff", str(plan), str(plan), "fig2", "--plot", str(picture)]) == 2
    assert "stages" in capsys.readouterr().err and not picture.exists()
