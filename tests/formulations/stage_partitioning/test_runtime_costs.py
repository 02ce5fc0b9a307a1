"""The cost model `runtime`: every plan's time by tensors that go on from stage to stage, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest
from oracles.stage_partitioning import plans
from strategies import with_shared

import planner
from formulations.stage_partitioning import FAMILY
from formulations.stage_partitioning.definition.plan import plan_from_json
from formulations.stage_partitioning.definition.problem import evaluate
from instances.errors import InstanceError
from instances.exchange import to_json
from instances.problems.stage_edits import as_run, linearise
from instances.problems.stage_partitioning import CostModel, StageInstance, check


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
