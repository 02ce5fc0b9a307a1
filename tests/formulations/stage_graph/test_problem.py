"""The definition of stage graphs: costs by hand, a plan that breaks each rule, files."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from branching_cases import random_graph

from formulations.stage_graph import FAMILY
from formulations.stage_graph.costs.costs import Costs, assemble
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import (
    all_reduce_s,
    depth,
    evaluate,
    least_in_flight,
    memory_bytes,
    pass_times,
    tps,
    violations,
)
from instances.errors import InstanceError
from instances.problems.stage_graph import (
    AffineTime,
    DeviceGraph,
    Operator,
    OperatorEdge,
    StageGraph,
    TableTime,
    to_json,
)


def operator(fixed: float, per_sample: float, weights: float = 3.0, kept: float = 2.0) -> Operator:
    return Operator("op", AffineTime(fixed, per_sample), AffineTime(2 * fixed, 2 * per_sample), weights, kept)


#: A diamond: 0 -> 1, 2 -> 3.
DIAMOND = StageGraph(
    "diamond",
    tuple(operator(1.0, 1.0 + node) for node in range(4)),
    (OperatorEdge(0, 1, 4.0), OperatorEdge(0, 2, 6.0), OperatorEdge(1, 3, 2.0), OperatorEdge(2, 3, 8.0)),
    num_devices=6,
    memory_bytes=200.0,
    bandwidth_bytes_per_s=2.0,
    latency_s=0.5,
    minibatch=8,
)
#: {0}, {1}, {2, 3}; the last on two devices.
PLAN = StagePlan(
    (Stage((0,), 1, 4, 8), Stage((1,), 1, 4, 8), Stage((2, 3), 2, 4, 4)), ((0, 1), (0, 2), (1, 2)), idle_devices=2
)


def test_costs_by_hand() -> None:
    # Stage {2, 3} handles 2 samples a replica: forward (1 + 3 2) + (1 + 4 2), edges 0-2 and 1-3 of 6 + 2 bytes.
    moved = (6 + 2) * 2 / 2 + 2 * 0.5
    assert pass_times(DIAMOND, PLAN, 2) == (16 + moved, 32 + moved)
    # Ring of 2 devices: 2 (1/2) 6 bytes at 2 bytes/s, and 4 latencies.
    assert all_reduce_s(DIAMOND, PLAN.stages[2]) == 3 + 2
    assert tps(DIAMOND, PLAN, 2) == (48 + 2 * moved) / 4 + 5 / 8
    assert all_reduce_s(DIAMOND, PLAN.stages[0]) == 0
    # 4 copies of 6 bytes; 4 samples on two devices keep 4 bytes and the tensors of edges 0-2 and 1-3.
    assert memory_bytes(DIAMOND, PLAN.stages[2]) == 24 + 4 / 2 * (4 + 6 + 2)
    assert evaluate(DIAMOND, PLAN) == max(tps(DIAMOND, PLAN, stage) for stage in range(3))
    assert depth(PLAN) == 3


def test_in_flight_along_the_longest_path() -> None:
    stages = (Stage((0,), 1, 2, 6), Stage((1,), 1, 2, 4), Stage((2, 3), 2, 2, 2))
    plan = replace(PLAN, stages=stages)
    assert [least_in_flight(DIAMOND, plan, stage) for stage in range(3)] == [6, 4, 2]
    assert violations(DIAMOND, plan) == ()


def test_in_flight_never_exceeds_the_minibatch() -> None:
    assert [least_in_flight(DIAMOND, PLAN, stage) for stage in range(3)] == [8, 8, 4]
    assert violations(DIAMOND, PLAN) == ()


def _broken(**changed: Any) -> set[str]:
    return {violation.rule for violation in violations(DIAMOND, replace(PLAN, **changed))}


def _with(number: int, **changed: Any) -> tuple[Stage, ...]:
    return tuple(replace(stage, **changed) if index == number else stage for index, stage in enumerate(PLAN.stages))


def test_each_rule_is_named() -> None:
    assert _broken() == set()
    assert _broken(stages=_with(0, nodes=(0, 9))) == {"nodes"}
    assert _broken(stages=_with(0, nodes=())) == {"nodes"}
    assert _broken(stages=_with(1, nodes=(1, 2))) == {"partition"}
    assert "partition" in _broken(stages=_with(2, nodes=(3,)))
    assert _broken(edges=((0, 1), (0, 2))) == {"edges"}
    assert _broken(edges=(*PLAN.edges, (7, 1))) == {"edges"}
    assert _broken(stages=_with(0, devices=4)) == {"devices"}
    assert _broken(stages=_with(0, devices=0)) == {"devices"}
    assert _broken(idle_devices=1) == {"idle"}
    assert _broken(stages=_with(0, microbatch=3)) == {"microbatch"}
    assert _broken(stages=_with(0, microbatch=8)) == {"schedule"}
    assert _broken(stages=_with(1, k=2)) == {"schedule"}
    assert _broken(stages=_with(0, in_flight=4)) == {"in_flight"}
    assert _broken(stages=_with(2, in_flight=6)) == {"in_flight"}
    assert _broken(stages=(), edges=()) == {"partition"}


def test_memory_at_the_limit() -> None:
    needed = max(memory_bytes(DIAMOND, stage) for stage in PLAN.stages)
    assert violations(replace(DIAMOND, memory_bytes=needed), PLAN) == ()
    starved = violations(replace(DIAMOND, memory_bytes=math.nextafter(needed, 0)), PLAN)
    assert [violation.rule for violation in starved] == ["memory"]


def test_more_devices_than_samples() -> None:
    plan = StagePlan((Stage((0, 1, 2, 3), 4, 2, 2),), (), 2)
    assert {violation.rule for violation in violations(DIAMOND, plan)} == {"devices"}


def test_convex_stages_that_wait_for_each_other() -> None:
    # Two chains 0 -> 1 and 2 -> 3; stages {0, 3} and {1, 2} are convex each, but not acyclic together.
    crossed = replace(DIAMOND, edges=(OperatorEdge(0, 1, 1.0), OperatorEdge(2, 3, 1.0)))
    plan = StagePlan((Stage((0, 3), 1, 4, 8), Stage((1, 2), 1, 4, 8)), ((0, 1), (1, 0)), 4)
    assert "acyclic" in {violation.rule for violation in violations(crossed, plan)}
    assert "convex" not in {violation.rule for violation in violations(crossed, plan)}
    with pytest.raises(ValueError, match="wait for each other"):
        assemble(crossed, [(0b1001, 1), (0b0110, 1)], 4)


def test_a_stage_that_is_left_and_entered_again_is_not_convex() -> None:
    plan = StagePlan((Stage((0, 3), 1, 4, 8), Stage((1, 2), 1, 4, 8)), ((0, 1), (1, 0)), 4)
    assert {"convex", "acyclic"} <= {violation.rule for violation in violations(DIAMOND, plan)}


def test_per_stage_sizes_need_the_schedule() -> None:
    stages = (Stage((0,), 1, 2, 8), Stage((1,), 1, 4, 8), Stage((2, 3), 2, 4, 4))
    assert _broken(stages=stages) == {"schedule"}
    assert violations(replace(DIAMOND, schedule="per-stage"), replace(PLAN, stages=stages)) == ()
    blocks = tuple(replace(stage, k=2, in_flight=8) for stage in PLAN.stages)
    assert violations(replace(DIAMOND, schedule="kfkb"), replace(PLAN, stages=blocks)) == ()


def test_two_tiers() -> None:
    tiers = replace(DIAMOND, inner_bandwidth_bytes_per_s=6.0, devices_per_node=2)
    assert all_reduce_s(tiers, PLAN.stages[2]) == 1 + 2
    assert all_reduce_s(tiers, replace(PLAN.stages[2], devices=3)) == 2 * 2 / 3 * 6 / 2 + 3


def test_device_graph() -> None:
    links = tuple(tuple(0.0 if u == v else 4.0 if {u, v} != {0, 1} else 1.0 for v in range(3)) for u in range(3))
    devices = DeviceGraph((200.0, 200.0, 60.0), links)
    instance = replace(DIAMOND, num_devices=3, device_graph=devices)
    stages = (Stage((0,), 1, 4, 8, 1, (0,)), Stage((1,), 1, 4, 8, 1, (1,)), Stage((2, 3), 1, 4, 4, 1, (2,)))
    plan = StagePlan(stages, PLAN.edges)
    # {0} sends 4 bytes over the slow link and 6 over a fast one, for 4 samples.
    assert pass_times(instance, plan, 0)[0] == 1 + 4 + 4 * 4 / 1 + 6 * 4 / 4 + 2 * 0.5
    assert [violation.rule for violation in violations(instance, plan)] == ["memory"]
    swapped = (replace(stages[0], device_ids=(2,)), stages[1], replace(stages[2], device_ids=(0,)))
    assert violations(instance, replace(plan, stages=swapped)) == ()
    cut = DeviceGraph(
        (200.0,) * 3,
        tuple(tuple(0.0 if {u, v} == {0, 1} else x for v, x in enumerate(row)) for u, row in enumerate(links)),
    )
    missing = violations(replace(instance, device_graph=cut), plan)
    assert [violation.rule for violation in missing] == ["links"]
    twice = tuple(replace(stage, device_ids=(0,)) for stage in stages)
    assert {violation.rule for violation in violations(instance, replace(plan, stages=twice))} == {"devices"}
    refused = {method.name for method in FAMILY.methods if method.supports(instance) is not None}
    assert "levels" in refused and not refused & {"graphpipe", "pipedream", "device-sets", "cpsat"}
    with pytest.raises(ValueError, match="identical devices"):
        Costs(instance)


def test_tables_agree_with_the_definition(cases: int) -> None:
    for seed in range(cases):
        instance = random_graph(seed, (2, 7), 4, series_parallel=bool(seed % 2))
        costs = Costs(instance)
        half = instance.num_operators // 2
        lower = (1 << half) - 1
        for size in instance.microbatch_sizes:
            parts = [(part, 2 if size > 1 else 1) for part in (lower, costs.everything & ~lower) if part]
            plan = assemble(instance, parts, size)
            for number, (nodes, devices) in enumerate(parts):
                assert math.isclose(costs.tps(nodes, size, devices), tps(instance, plan, number), rel_tol=1e-12)
                stage = plan.stages[number]
                assert costs.memory(nodes, size, devices, stage.in_flight) == memory_bytes(instance, stage)


def test_table_times() -> None:
    table = TableTime((2, 4, 8), (3.0, 5.0, 8.0))
    assert [table.at(n) for n in (1, 2, 3, 4, 6, 8, 16)] == [3.0, 3.0, 4.0, 5.0, 6.5, 8.0, 16.0]


def test_names_sizes_and_machines_survive_being_text() -> None:
    named = replace(DIAMOND, ids=("a", "b", "c", "d"), schedule="kfkb", microbatches=(1, 4))
    named = replace(named, inner_bandwidth_bytes_per_s=6.0, devices_per_node=2)
    assert FAMILY.read(json.loads(json.dumps(to_json(named))), "x", {}) == named
    content = FAMILY.plan_to_json(named, PLAN)
    assert content["stages"][2]["nodes"] == ["c", "d"]
    assert FAMILY.plan_from_json(named, json.loads(json.dumps(content))) == PLAN


BAD: list[tuple[dict[str, Any], str]] = [
    ({"operators": []}, "operators is []"),
    ({"minibatch": 0}, "minibatch is 0"),
    ({"num_devices": -1}, "num_devices is -1"),
    ({"memory_bytes": -1}, "memory_bytes is -1"),
    ({"bandwidth_bytes_per_s": 0}, "bandwidth_bytes_per_s is 0"),
    ({"microbatches": [3]}, "microbatches is 3"),
    ({"schedule": "gpipe"}, "schedule is 'gpipe'"),
    ({"pass_ratio": [0, 1]}, "pass_ratio"),
    ({"devices_per_node": 2}, "inner_bandwidth_bytes_per_s is missing"),
    ({"edges": [{"source": 0, "target": 7}]}, "edges[0].target is 7"),
    ({"edges": [{"source": 0, "target": 0}]}, "edges[0] is [0, 0]"),
    ({"edges": [{"source": 0, "target": 1}] * 2}, "edges[1] is [0, 1]"),
    ({"edges": [{"source": 0, "target": 1}, {"source": 1, "target": 0}]}, "without cycles"),
    ({"device_graph": {"memory_bytes": [1], "bandwidth_bytes_per_s": [[1]]}}, "num_devices is 6"),
    ({"device_graph": {"memory_bytes": [1], "bandwidth_bytes_per_s": [[1, 2]]}}, "1 rows of 1 numbers"),
]


@pytest.mark.parametrize(("changed", "message"), BAD)
def test_bad_files_are_one_line(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InstanceError) as caught:
        FAMILY.read({**to_json(DIAMOND), **changed}, "bad.json", {})
    assert message in str(caught.value) and "\n" not in str(caught.value) and "bad.json" in str(caught.value)


@pytest.mark.parametrize(
    "forward",
    [
        {"samples": [1, 2], "seconds": [2, 1]}, {"samples": [2, 1], "seconds": [1, 2]},
        {"samples": [1, 2], "seconds": [1, 3]}, {"samples": [1], "seconds": []}, {"per_sample_s": -1}, {"fixed_s": 1},
    ],
)  # fmt: skip
def test_bad_times_are_one_line(forward: dict[str, Any]) -> None:
    content = to_json(DIAMOND)
    content["operators"][1]["forward"] = forward
    with pytest.raises(InstanceError, match=r"operators\[1\]\.forward"):
        FAMILY.read(content, "bad.json", {})


def test_overrides_are_checked() -> None:
    with pytest.raises(InstanceError, match="microbatches"):
        FAMILY.check(FAMILY.read(replace(DIAMOND, microbatches=(4,)), "x", {"minibatch": 6}), "x")
    changed = FAMILY.read(DIAMOND, "x", {"devices": 3, "memory": 5.0, "minibatch": 12, "ratio": (1, 1)})
    assert (changed.num_devices, changed.memory_bytes, changed.minibatch, changed.pass_ratio) == (3, 5.0, 12, (1, 1))
