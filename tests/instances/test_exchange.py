"""How dataclasses stand in files: order of keys, what is left out and what is repeated, and what is refused."""

import functools
import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from random_instances import warmed
from small_instances import random_case
from thinned import thinned

import planner
from formulations import FAMILIES
from instances.errors import InstanceError
from instances.exchange import in_files, to_json
from instances.problems.stage_graph import NamedOperator
from instances.renamed import current_name
from instances.rules import Amount, Count, Facts, Identifier, Requirements, Whole
from instances.validation import json_schema, read_fields, read_instance
from planner.cli.app import main
from planner.files.schema import schema
from planner.files.write import plain

#: The keys that every file of a problem has, in their order.
KEYS = {
    "stage_partitioning": "name num_devices memory_bytes bandwidth num_microbatches time_unit cost_model exactly "
    "max_dp_degree layers edges",
    "tmpc_knapsack": "name capacity_bytes nodes",
    "layer_assignment": "name num_stages num_microbatches layer_time_s cut_cost_s",
    "mesh_tiling": "name rows tp_degree dp_degree num_microbatches compute_s tp_bytes dp_bytes stage_bytes ordered "
    "intra_bytes_per_s inter_bytes_per_s",
    "operator_strategies": "name nodes edges",
    "amp_strategy": "name nodes devices_per_node global_batch layers tied parameter_bytes passes head_layers "
    "tail_layers placement",
    "serving_strategy": "name layers heads kv_heads hidden_bytes boundary_bytes num_devices devices_per_machine "
    "memory_bytes flop_per_s memory_bandwidth_bytes_per_s inner_bandwidth_bytes_per_s outer_bandwidth_bytes_per_s "
    "prompt_tokens generated_tokens",
    "hierarchical_partitioning": "devices_per_machine num_machines inner_bandwidth outer_bandwidth memory_model flat",
    "flushed_partitioning": "schedule flat",
    "microbatch_schedule": "name minibatch stages edges latency_s objective",
    "operator_partitioning": "name num_stages replicas bandwidth_bytes_per_s operators tensors",
    "stage_graph": "name num_devices memory_bytes bandwidth_bytes_per_s latency_s minibatch schedule pass_ratio "
    "weight_copies objective operators edges",
    "device_mapping": "name objective ring microbatches replicas num_devices stages edges bandwidth_bytes_per_s",
    "pipeline_placement": "objective ring microbatches operators bandwidth_bytes_per_s",
}


@pytest.mark.parametrize("problem", KEYS)
def test_files_keep_the_order_of_their_keys(problem: str) -> None:
    for number in range(4):
        content = to_json(random_case(problem, 3, number))
        always = ["problem", "schema_version", *KEYS[problem].split()]
        assert [key for key in content if key in always] == always
        assert content["problem"] == problem and content["schema_version"] == 1


@in_files("cost", "name?")
@dataclass(frozen=True)
class Part:
    name: Identifier = "part"
    cost: Amount = 1.0


@in_files(
    "name", "size?", "parts", "num_parts", problem="toy", absent={"name": "toy"}, types={"num_parts": Count | None}
)
@dataclass(frozen=True)
class Toy:
    name: Identifier
    parts: tuple[Part, ...]
    size: Count = 4
    options: Mapping[str, Any] = field(default_factory=dict)
    requirements: Requirements = ()
    origin: Facts = field(default_factory=dict)

    @property
    def num_parts(self) -> int:
        return len(self.parts)


def read(content: Any) -> Toy:
    return read_instance(Toy, content, "toy.json", lambda *_: None)


def test_defaults_are_left_out_and_read_back() -> None:
    whole = Toy("toy", (Part(cost=2.0), Part("other")), 5, requirements=("num_parts <= 3",))
    content = to_json(whole)
    assert list(content) == ["problem", "schema_version", "requirements", "name", "size", "parts", "num_parts"]
    assert content["parts"] == [{"cost": 2.0}, {"cost": 1.0, "name": "other"}]
    assert read(content) == whole
    assert "size" not in to_json(Toy("toy", ())) and read({"parts": []}) == Toy("toy", ())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"parts": [{}], "num_parts": 2}, "toy.json: num_parts is 2; expected 1, as follows from the other fields"),
        ({"parts": [], "options": {}}, "toy.json: options is {}; expected no such field"),
        ({"parts": [{"cots": 2}]}, "toy.json: parts[0].cots is 2; expected no such field (closest: cost)"),
        ({"parts": [{"cost": -1}]}, "toy.json: parts[0].cost is -1; expected 0 or a positive number"),
        ({}, "toy.json: parts is missing; expected a list"),
        ({"problem": "other", "parts": []}, "toy.json: problem is 'other'; expected toy"),
        ([], "toy.json: content is []; expected "),
    ],
)
def test_what_is_wrong_is_named(content: Any, words: str) -> None:
    with pytest.raises(InstanceError) as refused:
        read(content)
    assert str(refused.value).startswith(words)


def test_what_is_missing_is_of_that_dataclass_of_several_which_has_the_field() -> None:
    with pytest.raises(InstanceError, match=r"forward.samples is missing; expected a list"):
        read_fields(NamedOperator, {"id": 0, "forward": {"seconds": [1.0]}, "backward": {"per_sample_s": 1.0}}, "toy")
    with pytest.raises(InstanceError, match=r"forward.per_sample_s is missing; expected a value"):
        read_fields(NamedOperator, {"id": 0, "forward": {"fixed_s": 1.0}, "backward": {"per_sample_s": 1.0}}, "toy")


def test_the_schema_is_that_of_the_file() -> None:
    schema = json_schema(Toy)
    assert schema["required"] == ["parts"] and "options" not in schema["properties"]
    assert schema["properties"]["name"]["default"] == "toy" and schema["properties"]["size"]["default"] == 4


@dataclass(frozen=True)
class Plan:
    chosen: tuple[Whole, ...]


def test_plans_may_have_other_keys() -> None:
    assert read_fields(Plan, {"chosen": [3, -1], "seconds": 2}, "plan", extra="ignore") == Plan((3, -1))
    for wrong in (True, 1.0, "1", None, 2**63):
        with pytest.raises(InstanceError, match=r"plan: chosen\[0\] is .*; expected an integer$"):
            read_fields(Plan, {"chosen": [wrong]}, "plan", extra="ignore")


#: Problems that came later have no old names.
NEWER = {"training_strategy", "serving_strategy", "operator_strategies"}


@pytest.mark.parametrize(
    "family", [each for each in FAMILIES if each.name not in NEWER], ids=lambda family: family.name
)
@pytest.mark.parametrize("old", ["instances.{}", "formulations.{}.problem"])
def test_old_names_of_a_problem(
    old: str, family: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = old.format(family.name)  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, name, raising=False)
    new = current_name(name)
    assert new is not None
    assert importlib.import_module(name) is importlib.import_module(new)
    monkeypatch.delitem(sys.modules, name)
    assert capsys.readouterr().err == f"{name} is {new} now: import it under that name\n"


@pytest.mark.parametrize("old", ["formulations.family", "planner.run", "planner.result", "planner.errors"])
def test_old_names_of_what_all_share(old: str) -> None:
    new = current_name(old)
    assert new is not None
    assert importlib.import_module(old) is importlib.import_module(new)
    del sys.modules[old]


def test_other_names_are_not_known() -> None:
    assert current_name("instances.nothing") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("formulations.stage_partitioning.nothing")


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


@thinned("problem", [family.name for family in FAMILIES])
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
