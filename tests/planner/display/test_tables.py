"""Templates of instances, tables of layers, plans in place of instances, and messages that name all that is missing."""

import gzip
import json
from pathlib import Path

import pytest
from thinned import thinned

import planner
from formulations import FAMILIES
from instances.errors import InstanceError
from planner.cli.app import main
from planner.files.load import family_of

TABLE = """name,time,weight_bytes,activation_bytes,output_bytes,role
first,1ms,4MB,1MB,2e6,embedding
second,0.002,8MB,,1MB,
"third, and last",3 ms,4MB,1MB,7MB,head
"""
MACHINE = {"devices": 2, "memory": "100MB", "bandwidth": "1GB/s", "microbatches": 4, "memory_scheme": "adam"}


def written(folder: Path, text: str, name: str = "table.csv") -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_a_table_is_a_chain(tmp_path: Path, separator: str):
    text = TABLE if separator == "," else TABLE.replace("third, and last", "third and last").replace(",", separator)
    instance = planner.load(written(tmp_path, text), **MACHINE)
    assert instance.name == "table"
    tmpcs = [layer.tmpcs[1][0] for layer in instance.layers]
    assert [x.time for x in tmpcs] == [0.001, 0.002, 0.003]
    assert [(x.weight_bytes, x.activation_bytes, x.static_bytes) for x in tmpcs] == [
        (4e6, 1e6, 16e6),
        (8e6, 0, 32e6),
        (4e6, 1e6, 16e6),
    ]
    assert [(each.source, each.target, each.bytes) for each in instance.edges] == [(0, 1, 2e6), (1, 2, 1e6)]
    assert (instance.layers[0].role, instance.layers[1].role) == ("embedding", "")
    assert (instance.num_devices, instance.memory_bytes, instance.bandwidth) == (2, 1e8, 1e9)
    assert planner.solve(instance, exact=True).status == "optimal"


def test_a_table_can_be_read_as_another_problem(tmp_path: Path):
    instance = planner.load(written(tmp_path, TABLE), problem="flushed_partitioning", **MACHINE)
    assert type(instance).__name__ == "FlushedInstance"


def test_all_that_a_table_lacks_is_named_at_once(tmp_path: Path):
    with pytest.raises(InstanceError) as refused:
        planner.load(written(tmp_path, TABLE), devices=2)
    assert "table.csv: memory, bandwidth, microbatches is missing" in str(refused.value)
    assert "--memory 16GiB, --bandwidth 25GB/s, --microbatches 32" in str(refused.value)


def test_weights_that_nothing_says_the_memory_of_are_named_by_their_line(tmp_path: Path):
    machine = {name: value for name, value in MACHINE.items() if name != "memory_scheme"}
    file = written(tmp_path, "time,weight_bytes\n1,0\n\n1,4MB\n")
    with pytest.raises(InstanceError, match=r"table\.csv: line 4: static_bytes is missing; expected a size, or --mem"):
        planner.load(file, **machine)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,time,wieght_bytes\na,1,2\n", "line 1 is 'wieght_bytes'; expected columns"),
        ("time,time\n1,2\n", "line 1 is 'time'; expected columns, each once"),
        ("name,time\na,fast\n", "line 2: time is 'fast'; expected a time such as 1.3ms"),
        ("name,time\na,\n", "line 2: time is ''; expected a time"),
        ("name,time\na,1\nb\n", "line 3: cells is 1; expected 2"),
        ("time,weight_bytes\n1,-4\n", "line 2: weight_bytes is '-4'; expected a size"),
        ("name,time\n", "layers is []; expected at least one node"),
    ],
)
def test_bad_tables(text: str, words: str, tmp_path: Path):
    with pytest.raises(InstanceError) as refused:
        planner.load(written(tmp_path, text), **MACHINE)
    assert words in str(refused.value)


@pytest.mark.parametrize("name", ["layers.csv", "layers.txt", "layers.csv.gz"])
def test_a_table_without_times_is_answered_with_its_columns_and_a_heading_to_copy(name: str, tmp_path: Path):
    file, text = tmp_path / name, "layer,forward_ms,backward_ms\na,1,2\n"
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    with pytest.raises(InstanceError) as refused:
        planner.load(str(file), **MACHINE)
    heading = "name,time,weight_bytes,activation_bytes,output_bytes"
    assert f"line 1 is 'layer,forward_ms,backward_ms'; expected a column time, as in {heading}" in str(refused.value)
    planner.load(written(tmp_path, f"{heading}\na,1ms,4MB,0,0\n"), **MACHINE)
    with pytest.raises(InstanceError, match="content is 'text'"):
        planner.load(written(tmp_path, "once upon a time\n", "story.txt"))


def test_json_has_the_defaults_of_a_table(tmp_path: Path):
    """What a table leaves to defaults and options, layers written as JSON do as well."""
    rows = [{"time": 0.001, "output_bytes": 2e6}, {"time": 0.002, "weight_bytes": 8e6}, {"time": 0.003}]
    text = "time,output_bytes,weight_bytes\n0.001,2e6,0\n0.002,0,8e6\n0.003,0,0\n"
    file = written(tmp_path, json.dumps({"problem": "stage_partitioning", "layers": rows}), "table.json")
    from_json, from_table = planner.load(file, **MACHINE), planner.load(written(tmp_path, text), **MACHINE)
    assert (from_json.layers, from_json.edges) == (from_table.layers, from_table.edges)
    assert (from_json.num_devices, from_json.memory_bytes) == (2, 1e8)
    del rows[1]["time"]
    file = written(tmp_path, json.dumps({"problem": "stage_partitioning", "layers": rows}), "table.json")
    with pytest.raises(InstanceError, match=r"layers\[1\]\.tmpcs is missing; expected TMPCs, or the time of the layer"):
        planner.load(file, **MACHINE)


def test_a_stage_that_does_not_fit_says_how_much_it_needs():
    chain = planner.load("chain8", memory="20MiB")
    nodes = list(range(8))
    plan = {"nodes": nodes, "dp_degree": 1, "tp_degree": 1, "tmpcs": {str(node): "keep" for node in nodes}}
    [broken] = planner.check(chain, {"stages": [plan]}).violations
    assert str(broken) == "memory: stage 0 needs 122.1 MiB of 20 MiB with 1 micro-batch in flight"


def test_a_plan_or_a_certificate_in_place_of_an_instance(tmp_path: Path):
    plan, certificate = "a plan'; expected an instance, such as .* .bert32", "a certificate'; .*verify INSTANCE CERT"
    for own, rule in ('"instance": "bert32"', plan), ('"instance_sha256": "0"', certificate):
        with pytest.raises(InstanceError, match=rule):
            planner.load(written(tmp_path, f'{{"problem": "stage_partitioning", {own}}}', "other.json"))


def test_missing_fields_are_named_together(tmp_path: Path):
    file = written(tmp_path, '{"problem": "stage_partitioning", "num_devices": 2, "layers": []}', "bare.json")
    with pytest.raises(InstanceError) as refused:
        planner.load(file)
    assert "memory_bytes is missing; expected a value, as of bandwidth, num_microbatches" in str(refused.value)
    layers = [{"id": node, "tmpcs": {"1": [{"id": "x", "weight_bytes": 0}]}} for node in range(9)]
    bare = json.dumps({"problem": "stage_partitioning", "schema_version": 1, "layers": layers})
    written(tmp_path, bare, "bare.json")
    with pytest.raises(InstanceError, match=r"num_devices is missing.* layers\[0\]\.tmpcs\.1\[0\]\.time, .*8 more$"):
        planner.load(file)


@thinned("problem", [family.name for family in FAMILIES])
def test_templates_are_small_instances(problem: str, tmp_path: Path):
    out = tmp_path / "template.json"
    assert main(["make", "template", problem, "--out", str(out)]) == 0
    assert len(out.read_text()) < 16_000 and family_of(planner.load(str(out))).name == problem


def test_a_template_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["make", "template", "mesh_tiling", "--out", written(tmp_path, "mine", "there.json")]) == 2
    assert "expected a file that is not there yet" in capsys.readouterr().err
