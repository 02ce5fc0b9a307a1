"""Models of one instance compared: figures that belong together, what is left out and why, files."""

import json
from pathlib import Path

import pytest

import planner
from planner.analysis.compare_models import _is_near, formulations
from planner.cli.app import main
from solvers.outcome import Limits


def test_rows_belong_together() -> None:
    found = formulations(planner.load("layers", layers=10, stages=3), limits=Limits(time_s=20))
    best = planner.solve(planner.load("layers", layers=10, stages=3), exact=True).objective
    assert found.optimum == pytest.approx(best, rel=1e-9)
    assert [row.method for row in found.rows] == ["cpsat", "milp"]
    for row in found.rows:
        assert row.status == "optimal" and row.variables and row.constraints and row.nonzeros
        assert row.first_plan_s is not None and row.one_percent_s is not None and row.proof_s is not None
        assert row.first_plan_s <= row.one_percent_s <= row.proof_s + 1e-3
    assert found.search is not None and found.search.method == "exact" and found.search.proof_s is not None
    assert found.search.variables is None and found.search.objective == pytest.approx(best, rel=1e-9)
    milp = found.rows[1]
    assert milp.root_bound is not None and milp.root_share == pytest.approx(milp.root_bound / found.optimum)
    assert 0.5 < milp.root_share < 1


def test_complete_models_stand_beside_pruned_ones_and_methods_are_named() -> None:
    layers = planner.load("layers", layers=10, stages=3)
    found = formulations(layers, methods=["milp", "amp"], limits=Limits(time_s=20))
    milp, amp = found.rows
    assert milp.complete is not None and milp.complete["variables"] > (milp.variables or 0)
    whole = planner.model(layers, "milp", complete=True)
    assert milp.complete["root_bound"] == pytest.approx(whole.root().bound)
    assert milp.complete["root_share"] == pytest.approx(milp.complete["root_bound"] / found.optimum)
    assert amp.complete is None and amp.variables is None and amp.objective is not None
    lines = [(line["method"], line["model"]) for line in found.cells()]
    assert lines == [("exact", "none"), ("milp", "as solved"), ("milp", "complete"), ("amp", "none")]
    head, headings, first, *_ = str(found).splitlines()
    assert head.startswith(f"{layers.name}: models of layer_assignment, optimum ") and headings.split()[0] == "method"
    assert first.split()[:2] == ["exact", "none"]
    with pytest.raises(planner.UsageError, match="not all take the instance"):
        formulations(planner.load("layers", layers=10, stages=3, require="layers(0) >= 2"), methods=["milp", "amp"])


def test_a_limit_before_a_proof_leaves_its_seconds_out() -> None:
    found = formulations(planner.load("layers", layers=60, stages=8), limits=Limits(time_s=0.02))
    for row in found.rows:
        assert row.proof_s is None or row.status == "optimal"
    assert any(row.proof_s is None for row in found.rows)


def test_building_is_limited_as_well() -> None:
    found = formulations(planner.load("bert32", first=20, devices=32), limits=Limits(time_s=0.2))
    assert any("not built" in row.reason and row.variables is None for row in found.rows)


def test_instances_that_no_model_takes() -> None:
    with pytest.raises(planner.UsageError, match="no declarative method takes the instance"):
        formulations(planner.load("layers", layers=3000, stages=40))


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["formulations", "layers", "--layers", "8", "--stages", "3", "--time-limit", "20"]
    assert main([*given, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert set(shown) == {"problem", "instance", "unit", "optimum", "rows", "search"} and len(shown["rows"]) == 2
    picture = tmp_path / "roots.svg"
    assert main([*given, "--plot", str(picture)]) == 0
    assert "milp" in capsys.readouterr().out and "% of the optimum" in picture.read_text()
    assert main([*given, "--plot", str(tmp_path / "roots.xyz")]) == 2


def test_near_is_within_a_percent() -> None:
    assert _is_near(1.01, 1.0) and _is_near(1.0, 1.0)
    assert not _is_near(1.011, 1.0) and not _is_near(None, 1.0)
