"""Weights take memory: what is held of them is declared, derived by a named rule, or the input is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

import planner
from instances.errors import InstanceError
from instances.memory_schemes import SCHEMES
from planner.cli.app import main

#: Bytes for each byte of weights: always, and for each micro-batch in flight.
HELD = {"weights": (1, 0), "adam": (4, 0), "mixed": (8, 0), "2bw": (9, 0), "pipedream": (7, 1)}
TABLE = "name,time,weight_bytes,output_bytes\nfirst,1.3ms,4MB,2MB\nsecond,2ms,8MB,\n"
MACHINE = {"devices": 4, "bandwidth": "25GB/s", "microbatches": 8}


def tmpc(**more: Any) -> dict[str, Any]:
    return {"id": "only", "time": 1, "weight_bytes": 10, "activation_bytes": 3, **more}


def instance(*tmpcs: dict[str, Any], **more: Any) -> dict[str, Any]:
    layers = [{"id": number, "tmpcs": {"1": [each]}} for number, each in enumerate(tmpcs)]
    machine = {"num_devices": 1, "memory_bytes": 1000, "bandwidth": 1, "num_microbatches": 1}
    return {"problem": "stage_partitioning", "schema_version": 1, **machine, "layers": layers, **more}


def held(instance: Any) -> list[tuple[float, float]]:
    found = [layer.tmpcs[1][0] for layer in getattr(instance, "flat", instance).layers]
    return [(x.static_bytes, x.activation_bytes) for x in found]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_rule_says_what_is_held_of_the_weights(scheme: str):
    static, in_flight = HELD[scheme]
    loaded = planner.load(instance(tmpc()), memory_scheme=scheme)
    assert held(loaded) == [(10 * static, 3 + 10 * in_flight)]
    result = planner.solve(loaded, exact=True)
    assert (result.status, result.options["memory-scheme"]) == ("optimal", scheme)
    assert planner.load(_json(loaded)) == loaded


def _json(loaded: Any) -> dict[str, Any]:
    from planner.files.load import family_of

    return json.loads(json.dumps(family_of(loaded).to_json(loaded)))


def test_the_rule_is_exact_to_the_byte(tmp_path: Path):
    file = tmp_path / "layers.csv"
    file.write_text(TABLE)
    for memory, status in ((47_999_999, "infeasible"), (48_000_000, "optimal")):  # 12 MB of weights on one device
        given = {**MACHINE, "devices": 1, "microbatches": 1}
        loaded = planner.load(str(file), memory=memory, memory_scheme="adam", **given)
        assert planner.solve(loaded, exact=True).status == status


@pytest.mark.parametrize("command", [["solve", "--exact"], ["crosscheck", "--methods", "exact"]])
def test_the_command_line_has_the_rule_and_names_it(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "layers.csv"
    file.write_text(TABLE)
    name, *options = command
    given = [name, str(file), *options, "--devices", "4", "--bandwidth", "25GB/s", "--microbatches", "8", "--quiet"]
    assert main([*given, "--memory", "1B"]) == 2
    said = capsys.readouterr().err
    assert "line 2: static_bytes is missing; expected a size, or --memory-scheme" in said
    assert "weights|adam|mixed|2bw|pipedream" in said and said.count("\n") == 1
    assert main([*given, "--memory", "1B", "--memory-scheme", "weights"]) == 4
    capsys.readouterr()
    assert main([*given, "--memory", "1GB", "--memory-scheme", "2bw"]) == 0
    assert "memory-scheme 2bw" in capsys.readouterr().out or name == "crosscheck"


@pytest.mark.parametrize(
    ("problem", "more"),
    [
        ("flushed_partitioning", {}),
        (
            "hierarchical_partitioning",
            {"devices_per_machine": 1, "num_machines": 1, "inner_bandwidth": 1, "outer_bandwidth": 1},
        ),
    ],
)
def test_what_is_inside_another_problem_has_the_same_rule(problem: str, more: dict[str, Any]):
    nested = {"problem": problem, "schema_version": 1, **more, "flat": instance(tmpc())}
    with pytest.raises(InstanceError, match=r"flat: layers\[0\].tmpcs.1\[0\].static_bytes is missing.*--memory-scheme"):
        planner.load(nested)
    loaded = planner.load(nested, memory_scheme="adam")
    assert held(loaded) == [(40, 3)] and planner.solve(loaded).options["memory-scheme"] == "adam"
    assert held(planner.load(instance(tmpc()), problem=problem, memory_scheme="adam", **more)) == [(40, 3)]


def test_a_file_may_name_the_rule():
    assert held(planner.load(instance(tmpc(), options={"memory-scheme": "mixed"}))) == [(80, 3)]
    with pytest.raises(InstanceError, match=r"options\.memory-scheme is 'sgd'; expected one of weights, adam"):
        planner.load(instance(tmpc(), options={"memory-scheme": "sgd"}))


def test_a_file_names_no_rule_that_it_does_not_keep():
    """A saved instance names the rule that its sizes come from; no other may be claimed."""
    kept, named = instance(tmpc(static_bytes=80), options={"memory-scheme": "mixed"}), {"memory-scheme": "mixed"}
    assert planner.load(kept).options["memory-scheme"] == "mixed"
    with pytest.raises(InstanceError, match=r"options.memory-scheme is 'mixed'; expected none"):
        planner.load(instance(tmpc(static_bytes=0), options=named))
    with pytest.raises(InstanceError, match=r"options.memory-scheme is 'mixed'; expected none"):
        planner.load(instance(tmpc(static_bytes=0), options=named), memory_scheme="mixed")


def test_what_is_declared_stays():
    mixed = planner.load(instance(tmpc(static_bytes=7), tmpc(static_bytes=0), tmpc()), memory_scheme="adam")
    assert held(mixed) == [(7, 3), (0, 3), (40, 3)]
    assert held(planner.load(instance(tmpc(weight_bytes=0)))) == [(0, 3)]
    with pytest.raises(InstanceError, match="--memory-scheme is 'adam'; expected none: no layer leaves out"):
        planner.load(instance(tmpc(static_bytes=7)), memory_scheme="adam")
    with pytest.raises(InstanceError, match="--memory-scheme is 'adam'; expected mixed: no layer leaves out"):
        planner.load(_json(planner.load(instance(tmpc()), memory_scheme="mixed")), memory_scheme="adam")


def operators(**more: Any) -> dict[str, Any]:
    found = [{"id": "a", "compute_s": 1, "parameter_bytes": 10}]
    return {"problem": "operator_partitioning", "num_stages": 1, "operators": found} | more


def placement(**more: Any) -> dict[str, Any]:
    matrix = {"bandwidth_bytes_per_s": [[0]]}
    return {"problem": "pipeline_placement", "schema_version": 1, **matrix, "operators": operators(**more)}


@pytest.mark.parametrize("made", [operators, placement])
def test_parameters_of_operators_take_memory(made: Any):
    with pytest.raises(InstanceError, match=r"training is missing; expected --weight-copies N .*operators\[0\]"):
        planner.load(made(memory_bytes=39))
    with pytest.raises(InstanceError, match="training is missing"):
        planner.load(made(), memory=39)
    planner.load(made())  # memory is not limited
    own = [{"id": "a", "compute_s": 1, "parameter_bytes": 10, "memory_bytes": 20}]  # what it holds is declared
    planner.load(made(memory_bytes=39, operators=own))
    for memory, status in ((39, "infeasible"), (40, "optimal")):
        result = planner.solve(planner.load(made(memory_bytes=memory), weight_copies=4), exact=True)
        assert (result.status, result.options["weight-copies"]) == (status, 4)
    nothing = planner.load(made(memory_bytes=39, training=None))
    assert planner.load(_json(nothing)) == nothing and planner.solve(nothing, exact=True).status == "optimal"


def test_results_of_stage_graphs_say_how_many_copies_are_held():
    loaded = planner.load("candle-uno", devices=2)
    assert planner.solve(loaded).options["weight-copies"] == 4


def test_the_example_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    page = (ROOT / "docs" / "your-own-model.md").read_text()
    heading, *lines = page.partition("printf '")[2].partition("'")[0].split(r"\n")
    monkeypatch.chdir(tmp_path)
    Path("layers.csv").write_text("\n".join([heading, *lines]))
    command = page.partition("planner solve layers.csv ")[2].partition("\n")[0].split()
    assert main(["solve", "layers.csv", *command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["options"]["memory-scheme"] == "mixed"
    for memory, code in (("1B", 4), ("95999999B", 4), ("96MB", 0)):  # of one device: no data parallelism, no cut
        command[command.index("--memory") + 1] = memory
        command[command.index("--devices") + 1] = "1"
        assert main(["solve", "layers.csv", *command, "--quiet"]) == code
