"""Weights take memory: what is held of them is declared, derived by a named rule, or the input is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracles.stage_partitioning import plans
from paths import ROOT
from strategies import with_shared

import planner
from formulations.stage_partitioning import FAMILY
from formulations.stage_partitioning.definition.plan import plan_from_json
from formulations.stage_partitioning.definition.problem import evaluate
from instances.errors import InstanceError
from instances.exchange import to_json
from instances.memory_schemes import SCHEMES
from instances.problems.stage_edits import as_run, linearise
from instances.problems.stage_partitioning import CostModel, StageInstance, check
from planner.cli.app import main

#: Bytes for each byte of weights: always, and for each micro-batch in flight.
HELD = {"weights": (1, 0), "adam": (4, 0), "mixed": (8, 0), "2bw": (9, 0), "pipedream": (7, 1)}


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


def relayed_time(instance: StageInstance, stages: list[dict[str, Any]]) -> float:
    """Time per sample of a plan of an instance before `as_run`, tensor by tensor and boundary by boundary."""
    home = {node: number for number, stage in enumerate(stages) for node in stage["nodes"]}
    tensors = [(each.source, each.targets, each.bytes) for each in instance.shared]
    for edge in instance.edges:
        own = edge.bytes - sum(
            s for u, found, s in tensors if u == edge.source and edge.target in found and len(found) > 1
        )
        tensors.append((edge.source, (edge.target,), own))
    moved = [0.0] * len(stages)
    for source, targets, size in tensors:
        for boundary in range(home[source], max(home[target] for target in targets)):
            moved[boundary] += size  # sent on
            moved[boundary + 1] += size  # received
    layers, N, B = {layer.id: layer for layer in instance.layers}, instance.num_microbatches, instance.bandwidth
    times = []
    for number, stage in enumerate(stages):
        chosen = [next(x for x in layers[v].tmpcs[1] if x.id == stage["tmpcs"][str(v)]) for v in stage["nodes"]]
        d = stage["dp_degree"]
        work, weights = sum(x.time for x in chosen), sum(x.weight_bytes for x in chosen)
        times.append((work + 2 * moved[number] / B) / d + 4 * (d - 1) / d * weights / (N * B))
    return max(times)


def test_plans_take_what_their_tensors_take(cases: int) -> None:
    shared = feasible = 0
    for seed in range(max(10, cases // 3)):
        before = with_shared(seed)
        instance = as_run(before)
        check(instance, "run")
        assert planner.load(to_json(instance)) == instance
        best = None
        for content in plans(instance):
            time = relayed_time(before, content["stages"])
            assert evaluate(instance, plan_from_json(instance, content)) == pytest.approx(time, rel=1e-9), seed
            best = time if best is None else min(best, time)
        result = planner.solve(instance, exact=True)
        assert (result.objective is None) == (best is None), seed
        assert best is None or result.objective == pytest.approx(best, rel=1e-6), seed
        shared, feasible = shared + bool(before.shared), feasible + (best is not None)
    assert shared > cases / 12 and feasible > cases / 12


def test_the_order_and_the_degrees_of_a_run_are_needed() -> None:
    diamond = planner.load("diamond")
    with pytest.raises(
        InstanceError, match="--cost-model is 'runtime'; expected a cost model for layers with more than"
    ):
        planner.load("diamond", cost_model="runtime")
    made = planner.load("diamond", cost_model="runtime", linearize="id")
    assert made.cost_model is CostModel.RUNTIME and made.tp_degrees == (1,) and len(diamond.edges) == 4
    assert [edge.bytes for edge in made.edges] == [2e6, 2e6, 2e6]  # both branches' tensors pass the middle
    assert planner.load(to_json(made), cost_model="runtime", devices=2).edges == made.edges
    with pytest.raises(InstanceError, match="--cost-model is 'paper'; expected runtime: the edges"):
        planner.load(to_json(made), cost_model="paper")
    only_two = replace(diamond, layers=tuple(replace(each, tmpcs={2: each.tmpcs[1]}) for each in diamond.layers))
    with pytest.raises(ValueError, match="TMPCs of degree 1"):
        as_run(linearise(only_two, "id"))
    declared = to_json(made)
    declared["edges"][0]["target"] = declared["edges"][1]["target"]
    with pytest.raises(InstanceError, match="edges is '3 edges'; expected edges from each layer to the next one"):
        planner.load(declared)


@pytest.mark.parametrize(
    ("shared", "words"),
    [
        ({"source": "source", "targets": ["left"], "bytes": 1}, "targets is .*; expected at least two nodes"),
        ({"source": "source", "targets": ["left", "sink"], "bytes": 1}, "that edges from source lead to"),
        ({"source": "source", "targets": ["left", "right"], "bytes": 2e6}, "bytes is 2000000.0; expected no more than"),
    ],
)
def test_shared_tensors_are_those_of_edges(shared: dict[str, Any], words: str) -> None:
    content = to_json(planner.load("diamond")) | {"shared": [shared]}
    with pytest.raises(InstanceError, match=words):
        planner.load(content)
    fine = content | {"shared": [{"source": "source", "targets": ["left", "right"], "bytes": 1e6}]}
    loaded = planner.load(fine)
    assert FAMILY.to_json(loaded)["shared"] == fine["shared"]
    assert [edge.bytes for edge in planner.load(fine, cost_model="runtime", linearize="id").edges] == [1e6, 2e6, 2e6]
    assert planner.load(fine, first=2).shared == ()
