"""Names beside node numbers in printed plans."""

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

import planner
from planner.display import tables
from planner.files.node_names import names_in_brief, names_of_nodes, with_names

Run = Callable[..., tuple[int, str, str]]


def test_a_plan_is_printed_with_the_names_of_its_nodes(run: Run) -> None:
    _, out, _ = run("solve", "chain8", "--memory", "40MB")
    assert [re.split("  +", line)[1:3] for line in out.splitlines() if "4 x keep" in line] == [
        ["0, 1, 2, 3", "layer 0 .. layer 3"],
        ["4, 5, 6, 7", "layer 4 .. layer 7"],
    ]
    _, out, _ = run("solve", "bert32", "--first", "8", "--devices", "2", "--memory", "40GiB")
    assert "token ids .. transformer layer" in out and " x transformer layer" in out
    _, out, _ = run("solve", "chain8-machines")  # a plan in a plan
    assert "inside" in out and "layer 4 .. layer 7" in out


def test_names_that_are_the_ids_are_not_repeated(run: Run) -> None:
    for instance in ("diamond", "mesh", "schedule"):
        code, out, _ = run("solve", instance, "--time-limit", "5")
        assert code == 0 and "names" not in out
        assert names_of_nodes(planner.load(instance)) == {}


def test_operators_have_names_and_edges_between_stages_have_none() -> None:
    instance = planner.load("gnmt")
    operators = tuple(replace(each, name=f"op {v}") for v, each in enumerate(instance.operators))
    names = names_of_nodes(replace(instance, operators=operators))
    first, second = operators[0].id, operators[1].id
    shown = with_names({"stages": [[first, second], [second]], "edges": [[0, 1]]}, names)
    assert shown["stages"] == [
        {"nodes": [first, second], "names": "op 0 .. op 1"},
        {"nodes": [second], "names": "op 1"},
    ]
    assert shown["edges"] == [[0, 1]]


def test_long_names_keep_their_ends() -> None:
    names = {"0": "transformer layer with attention 0", "1": "transformer layer with attention 1"}
    assert names_in_brief([0, 1], names) == "transfor...ention 0 .. transfor...ention 1"


def test_a_plan_with_names_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = planner.load("bert32", devices=8)
    result = planner.solve(instance)
    out = Console(file=io.StringIO(), width=80, soft_wrap=True, highlight=False)
    monkeypatch.setattr(tables, "console", lambda: out)
    tables.show_result(replace(result, stats={}))
    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    stages = lines[next(place for place, line in enumerate(lines) if line.startswith(" stage")) :]
    assert max(map(len, stages)) <= 80 and "memory" in stages[0]
