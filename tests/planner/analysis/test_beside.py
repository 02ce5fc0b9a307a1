"""``solve --compare``: the paper's method and the exact one, whichever was requested, and plans from elsewhere."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import counting
import pytest

import formulations
import planner
from planner.analysis.compare_with_paper import papers_method

Run = Callable[..., tuple[int, str, str]]


def compared(run: Run, *given: str) -> dict[str, Any]:
    code, out, _ = run("solve", *given, "--compare", "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_papers_method_runs_beside_the_exact_one(run: Run) -> None:
    found = compared(run, "chain8", "--memory", "45MB")
    (other,) = found["compared"]
    assert (found["method"], found["status"], found["loss"]) == ("exact", "optimal", 0.0)
    assert (other["method"], other["loss"]) == ("piper", 0.0) and other["gap"] > 0.1
    _, out, _ = run("solve", "chain8", "--memory", "45MB", "--compare")
    assert "proved by search" in out and "piper: the time per sample" in out and "which is optimal" in out
    assert [line.split()[:2] for line in out.splitlines() if "4 x keep" in line] == [
        [method, stage] for method in ("exact", "piper") for stage in "01"
    ]


def test_the_exact_one_runs_beside_a_heuristic_that_is_named(run: Run) -> None:
    found = compared(run, "chain8", "--method", "equi-no-tp")
    (other,) = found["compared"]
    assert (found["method"], other["method"], other["loss"]) == ("equi-no-tp", "exact", 0.0)
    assert found["loss"] == pytest.approx(found["objective"] / other["objective"] - 1) and found["loss"] > 0.02
    _, out, _ = run("solve", "chain8", "--method", "equi-no-tp", "--compare")
    assert f", which is {100 * found['loss']:.3g} % above the optimum" in out
    named = compared(run, "chain8", "--method", "cpsat")
    assert (named["method"], named["compared"][0]["method"]) == ("cpsat", "piper")


def test_plans_from_elsewhere_are_compared_as_well(run: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert run("solve", "chain8", "--method", "equi-no-tp", "--out", str(plan))[0] == 0
    code, out, _ = run("solve", "chain8", "--plan", f"theirs={plan}", "--json")
    rows = json.loads(out)["compared"]
    assert code == 0 and [row["method"] for row in rows] == ["piper", "theirs"] and rows[1]["loss"] > 0.02
    for more in (["--batch-size", "8"], ["--linearize", "id,name"]):
        assert run("solve", "chain8", "--compare", *more)[0] == 2


def test_options_go_to_the_method_that_has_them(run: Run, problem: Any) -> None:
    found = compared(run, problem(), "--extra", "3")
    assert found["method"] == "exact" and found["compared"][0]["options"]["extra"] == 3
    assert run("solve", problem(), "--compare", "--variant", "rerank")[0] == 2


def test_a_contradiction_ends_it(run: Run, problem: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = [method for method in counting.FAMILY.methods if method.name in ("exact", "false-bound")]
    family = replace(counting.FAMILY, methods=tuple(methods))
    monkeypatch.setattr(formulations, "FAMILIES", (*formulations.FAMILIES[:-1], family))
    code, _, err = run("solve", problem(), "--compare")
    assert code == 5 and "false-bound claims the lower bound 100.0, but exact has a verified plan of 2.0" in err


def test_where_no_heuristic_takes_the_instance_the_exact_one_is_alone(run: Run) -> None:
    clusters = ["--problem", "flushed_partitioning"]
    code, out, err = run("solve", "chain8", "--first", "3", *clusters, "--compare", "--json")
    assert code == 0 and "compared" not in json.loads(out)
    assert "no heuristic of flushed_partitioning takes the instance" in err


def test_the_papers_method_is_the_first_heuristic_that_takes_the_instance() -> None:
    families = {family.name: family for family in formulations.FAMILIES}
    chain = planner.load("chain8")
    first = papers_method(families["stage_partitioning"], chain)
    assert first is not None and first.name == "piper"
    required = planner.load("chain8", require="num_stages <= 2")
    assert papers_method(families["stage_partitioning"], required) is None
