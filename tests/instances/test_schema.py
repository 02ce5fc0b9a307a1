"""The format of instance files as JSON Schema: it takes what is read, and refuses what breaks a field's rule."""

import functools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from random_instances import warmed
from small_instances import random_case

import planner
from formulations import FAMILIES
from planner.cli.app import main
from planner.files.schema import schema
from planner.files.write import plain


@functools.cache
def validator(problem: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rfc3987_syntax", None)  # takes seconds to load, for formats that no schema here has
        jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema, which notebooks bring along")
    return jsonschema.Draft202012Validator(schema(problem))


def faults(problem: str, content: Any) -> list[str]:
    return [error.message for error in validator(problem).iter_errors(content)]


def written(problem: str, number: int) -> Any:
    return json.loads(json.dumps(plain(warmed(problem).to_json(random_case(problem, 7, number)))))


@pytest.mark.parametrize("problem", [family.name for family in FAMILIES])
def test_it_takes_what_is_written_and_refuses_other_fields(problem: str) -> None:
    for number in range(3):
        content = written(problem, number)
        assert faults(problem, content) == []
        assert faults(problem, {**content, "colour": "red"})
        assert faults(problem, {**content, "problem": "another"})
        assert faults(problem, {**content, "schema_version": 2})
        for name in validator(problem).schema["required"]:
            assert faults(problem, {key: value for key, value in content.items() if key != name})


def test_numbers_and_inner_objects_keep_their_rules() -> None:
    content = written("tmpc_knapsack", 1)
    option = content["nodes"][0]["options"][0]
    for key, wrong in (
        ("time", -1.0),
        ("time", 1e-31),
        ("time", 1e31),
        ("time", "1"),
        ("memory_bytes", None),
        ("id", 3),
    ):
        node = {**content["nodes"][0], "options": [{**option, key: wrong}]}
        assert faults("tmpc_knapsack", {**content, "nodes": [node]}), (key, wrong)
    described = schema("tmpc_knapsack")["$defs"]["Choice"]["properties"]["time"]["description"]
    assert described == "0 or a positive number from 1e-30 to 1e+30"


def test_what_a_rule_gives_may_be_left_out_and_inner_instances_have_their_own_schema() -> None:
    content = written("stage_partitioning", 1)
    for layer in content["layers"]:
        for tmpc in (each for found in layer["tmpcs"].values() for each in found):
            del tmpc["static_bytes"]
    assert faults("stage_partitioning", content) == []
    for problem, inner, part in (
        ("flushed_partitioning", "flat", "layers"),
        ("pipeline_placement", "operators", "operators"),
    ):
        whole = written(problem, 1)
        assert faults(problem, whole) == [] != faults(problem, {**whole, inner: {**whole[inner], part: 3}})


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "layer_assignment"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["$schema"].endswith("2020-12/schema") and "problem" in shown["required"]
    assert main(["schema", "layer_assignment", "--out", str(tmp_path / "s.json")]) == 0
    assert json.loads((tmp_path / "s.json").read_text()) == shown
    capsys.readouterr()
    assert main(["schema", "layers"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_time_factor_of_a_layer_lengthens_all_its_times() -> None:
    declared = json.loads(json.dumps(plain(warmed("stage_partitioning").to_json(planner.load("chain8")))))
    declared["layers"][3] |= {"time_factor": 1.5, "weight_times": {"1": 1e-3}}
    was, made = planner.load("chain8").layers, planner.load(declared).layers
    longer = {t: tuple(replace(x, time=1.5 * x.time) for x in found) for t, found in was[3].tmpcs.items()}
    assert made[3] == replace(was[3], tmpcs=longer, weight_times={1: 1.5e-3})
    assert (*made[:3], *made[4:]) == (*was[:3], *was[4:])
