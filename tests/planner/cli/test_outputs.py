"""Files that commands write: none is an input, no two are one, and what is refused is refused before any work."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import planner
from instances.errors import InstanceError
from planner.analysis.sweep import best_order, load_orders
from planner.cli.app import main
from planner.files.load import family_of

MODEL = ["solve", "resnet50", "--stages", "2", "--replicas", "1", "--quiet", "--method", "parmesan"]


def test_the_matrix_of_a_topology_is_never_written_over(tmp_path: Path, capsys: Any) -> None:
    matrix = tmp_path / "matrix.csv"
    matrix.write_text("0,1GB/s\n1GB/s,0\n")
    for option in ("--out", "--events"):
        assert main([*MODEL, "--topology", str(matrix), option, str(matrix)]) == 2
        assert capsys.readouterr().err.startswith(f"{option} is ")
    assert matrix.read_text() == "0,1GB/s\n1GB/s,0\n"


@pytest.mark.parametrize("command", ["solve", "crosscheck"])
def test_two_outputs_are_two_files(command: str, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("vl_convert")
    one = str(tmp_path / "one.svg")
    assert main([command, "mesh", "--plot", one, "--events", one]) == 2
    assert "--plot" in capsys.readouterr().err and not Path(one).exists()


def test_the_order_of_the_best_plan_is_the_one_that_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vl_convert")
    drawn = []
    monkeypatch.setattr("planner.display.pictures.draw", lambda _path, instance, _plan: drawn.append(instance))
    monkeypatch.setattr("planner.analysis.sweep.best_order", lambda _result, orders: list(orders)[-1])
    given = ["solve", "diamond", "--linearize", "id,lifo", "--plot", str(tmp_path / "plan.svg"), "--quiet"]
    assert main(given) == 0
    by_order = load_orders("diamond", linearize="id,lifo")
    assert drawn[0].edges == by_order["lifo"].edges != by_order["id"].edges

    class Found:
        stats: dict[str, Any] = {"orders": {"id": None, "lifo": 2.0, "name": 3.0}}  # noqa: RUF012

    assert best_order(Found(), {"id": 0, "lifo": 1, "name": 2}) == "lifo"  # type: ignore[arg-type]


def test_a_comparison_with_something_else_is_refused(tmp_path: Path, capsys: Any) -> None:
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG")
    assert main(["bench", "--compare", str(picture), str(picture)]) == 2
    assert "bench wrote" in capsys.readouterr().err


def test_a_row_that_was_cut_anywhere_is_measured_again(tmp_path: Path, capsys: Any) -> None:
    """The last row only, and only where its line has no end: also just behind a brace."""
    command = ["bench", "chain8", "--methods", "equi,exact", "--repeats", "1", "--out", str(tmp_path), "--quiet"]
    rows = tmp_path / "rows.jsonl"
    assert main(command) == 0
    whole = rows.read_text()
    first = whole.index("\n") + 1
    for cut in (first + 1, whole.index("}", first) + 1, whole.rindex("}"), len(whole) - 1):
        rows.write_text(whole[:cut])
        assert main(command) == 0
        assert rows.read_text().count("\n") == 2 and rows.read_text().startswith(whole[:first])
    rows.write_text(whole[: whole.rindex("}")] + "\n")
    capsys.readouterr()
    assert main(command) == 2
    assert "line 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("field", "value"), [("seconds", "x"), ("gap", []), ("settings", 5), ("seed", True), ("method", 1)]
)
def test_rows_of_other_types_are_refused(field: str, value: Any, tmp_path: Path, capsys: Any) -> None:
    rows = tmp_path / "rows.jsonl"
    assert main(["bench", "chain8", "--methods", "equi", "--repeats", "1", "--out", str(tmp_path), "--quiet"]) == 0
    rows.write_text(json.dumps({**json.loads(rows.read_text()), field: value}))
    capsys.readouterr()
    assert main(["bench", "--compare", str(rows), str(rows)]) == 2
    assert f"{field} is {value!r}" in capsys.readouterr().err


def test_a_proof_is_enough_for_any_gap(capsys: Any) -> None:
    """The exact method's bound lies a rounding below its plan, which is optimal as the interface says."""
    assert main(["solve", "chain8", "--exact", "--gap", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "optimal" and 0 < found["gap"] < 1e-6


def test_an_instance_from_a_dict_and_a_file(tmp_path: Path) -> None:
    instance = planner.load("chain8", memory="40MB")
    planner.save(instance, tmp_path / "saved.json")
    assert planner.load(tmp_path / "saved.json") == instance
    content = family_of(instance).to_json(instance)
    assert planner.load(content) == instance
    assert planner.load(content, devices=2).num_devices == 2
    with pytest.raises(InstanceError, match="num_devices is -1"):
        planner.load({**content, "num_devices": -1})


def test_a_result_is_saved_and_shown(tmp_path: Path) -> None:
    instance = planner.load("chain8", memory="40MB")
    result = planner.solve(instance, exact=True)
    planner.save(result, tmp_path / "result.json")
    saved = json.loads((tmp_path / "result.json").read_text())
    assert planner.check(instance, saved["plan"]).objective == result.objective
    with pytest.raises(InstanceError, match="schema_version is 2; expected 1"):
        planner.check(instance, {**saved["plan"], "schema_version": 2})
    records = result.to_records()
    assert [record["nodes"] for record in records] == [stage["nodes"] for stage in saved["plan"]["stages"]]
    assert replace(result, plan=None).to_records() == []
    shown = replace(result, instance="<b>&")._repr_html_()
    assert "&lt;b&gt;&amp;" in shown and "<b>" not in shown and shown.count("<tr>") == 3 + len(records)


def test_a_comparison_is_a_table() -> None:
    report = planner.crosscheck(planner.load("chain8", memory="40MB"), methods=["exact", "equi"])
    shown = replace(report, contradictions=("<i>",))._repr_html_()
    assert shown.count("<tr>") == 1 + 2 + 2 and "&lt;i&gt;" in shown and "<i>" not in shown
