"""The definition: hand-computed times, and for every rule a plan that breaks only that rule."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from flat_plans import place, spread_replicas, spread_time
from oracles.hierarchical_partitioning import random_hierarchical

import planner
from formulations.hierarchical_partitioning import FAMILY
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan, Superstage
from formulations.hierarchical_partitioning.definition.problem import (
    evaluate,
    flatten,
    link_time,
    violations,
    whole_weight,
)
from formulations.hierarchical_partitioning.paper import solve
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from instances.errors import InstanceError
from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel, on_machines
from instances.problems.published import UNIT_WARNING
from instances.problems.stage_partitioning import CostModel, Edge, Layer, StageInstance, Tmpc
from planner.files.load import published_file, read_content
from solvers.outcome import Limits, Watch


def chain(memory_model: MemoryModel = MemoryModel.PRECISE) -> HierarchicalInstance:
    """a -> b -> c on three machines of two devices; 10 bytes of weights, 2 per micro-batch and 1 besides, each."""
    layers = tuple(
        Layer(v, {1: (Tmpc("x", 12.0, 10.0, 2.0, 1.0),), 2: (Tmpc("y", 8.0, 6.0, 1.0, 1.0),)}) for v in "abc"
    )
    flat = StageInstance("abc", layers, (Edge("a", "b", 20.0), Edge("b", "c", 4.0)), 1, 100.0, 1.0, 6)
    return on_machines(flat, 2, 3, 10.0, 2.0, memory_model)


def stage(nodes: str, d: int, t: int = 1) -> Stage:
    return Stage(tuple(nodes), d, t, dict.fromkeys(nodes, "x" if t == 1 else "y"))


#: a and b share two machines, a device each; c has both devices of the third.
PLAN = HierarchicalPlan((Superstage(2, (stage("a", 1), stage("b", 1))), Superstage(1, (stage("c", 2),))))


def test_time_by_hand() -> None:
    instance = chain()
    # 4 * 1/2 * (10 + 10) bytes of weights and 2 * 4 bytes over b -> c, shared by two machines of 2 bytes/s
    assert link_time(instance, PLAN.stages[0]) == (40 + 8) / 2 / 2
    assert link_time(instance, PLAN.stages[1]) == 8 / 2
    # b: 12 + 2 (20 + 4) / 10 on two machines; c: (12 + 8/10)/2 + 4 * 1/2 * 10 / 2 / 10
    assert evaluate(instance, PLAN) == 12.0
    faster = replace(instance, outer_bandwidth=200.0)
    assert evaluate(faster, PLAN) == pytest.approx(max((12 + 4.8) / 2, 6.4 + 1.0))


def test_shards_of_a_weight_are_one_copy() -> None:
    assert whole_weight(chain().flat.layers[0]) == 10.0


def test_flattened_degrees_are_products() -> None:
    assert [found.dp_degree for found in flatten(PLAN).stages] == [2, 2, 2]
    assert violations(chain(), PLAN) == ()


@pytest.mark.parametrize(
    ("rule", "plan"),
    [
        ("cover", HierarchicalPlan(PLAN.stages[:1])),
        ("tmpc", HierarchicalPlan((Superstage(1, (replace(stage("abc", 1), tmpcs=dict.fromkeys("abc", "z")),)),))),
        ("order", HierarchicalPlan((PLAN.stages[1], PLAN.stages[0]))),
        ("superstage", HierarchicalPlan((*PLAN.stages, Superstage(1, ())))),
        ("superstage", HierarchicalPlan((Superstage(0, (stage("abc", 1),)),))),
        ("machines", HierarchicalPlan((Superstage(4, (stage("abc", 1),)),))),
        ("machine", HierarchicalPlan((Superstage(1, (stage("ab", 1), stage("c", 1, 2))),))),
        (
            "microbatches",
            HierarchicalPlan((Superstage(2, (stage("a", 1), stage("b", 1))), Superstage(1, (stage("c", 3),)))),
        ),
    ],
)
def test_every_rule_alone(rule: str, plan: HierarchicalPlan) -> None:
    instance = chain() if rule != "microbatches" else replace(chain(), devices_per_machine=3)
    assert {found.rule for found in violations(instance, plan)} == {rule}


def test_memory_to_the_byte() -> None:
    # a: s = 6 of d = 2, three in flight: 2 * 3 + 1; with S = 6 of d_1 = 1, six: 2 * 6 + 1
    for model, needs in ((MemoryModel.PRECISE, 7.0), (MemoryModel.CRUDE, 13.0), (MemoryModel.NONE, 0.0)):
        instance = chain(model)
        enough = replace(instance, flat=replace(instance.flat, memory_bytes=needs))
        assert violations(enough, PLAN) == ()
        if needs:
            short = replace(instance, flat=replace(instance.flat, memory_bytes=needs - 1))
            assert {found.rule for found in violations(short, PLAN)} == {"memory"}


def test_what_the_appendix_does_not_treat_is_refused() -> None:
    flat = chain().flat
    for wrong in (
        replace(flat, cost_model=CostModel.RELEASED),
        replace(flat, exactly=True),
        replace(flat, max_dp_degree=2),
    ):
        with pytest.raises(InstanceError):
            on_machines(wrong, 2, 3, 1.0, 1.0)


def test_overrides_reach_both_levels() -> None:
    given = {"num-machines": "2", "inner-bandwidth": "5GB/s", "memory-model": "crude", "memory": "7GB"}
    for content in (chain(), FAMILY.to_json(chain())):
        instance = FAMILY.read(content, "here", given)
        assert (instance.num_machines, instance.inner_bandwidth, instance.flat.memory_bytes) == (2, 5e9, 7e9)
        assert instance.memory_model is MemoryModel.CRUDE and instance.flat.num_devices == 4
    with pytest.raises(InstanceError, match="num-machines"):
        FAMILY.read(chain(), "here", {"num-machines": "0"})


def test_fixed_units_reach_both_networks() -> None:
    published = replace(chain(), flat=replace(chain().flat, time_unit="ms", warnings=(UNIT_WARNING,)))
    fixed = FAMILY.read(published, "here", {"fix-units": True})
    assert (fixed.inner_bandwidth, fixed.outer_bandwidth, fixed.flat.bandwidth) == (0.010, 0.002, 0.002)
    assert FAMILY.warnings(published) and not FAMILY.warnings(fixed)
    again = FAMILY.read(fixed, "here", {"fix-units": True})
    assert (again.inner_bandwidth, again.outer_bandwidth) == (0.010, 0.002)
    given = FAMILY.read(published, "here", {"fix-units": True, "inner-bandwidth": "5GB/s"})
    assert (given.inner_bandwidth, given.outer_bandwidth) == (5e6, 0.002)


@pytest.mark.paper
def test_fixed_units_of_a_published_file_inside(published: Path) -> None:
    content = {**FAMILY.to_json(chain()), "flat": read_content(published_file("resnet.json", str(published)))}
    fixed = FAMILY.read(content, "here", {"fix-units": True})
    assert (fixed.inner_bandwidth, fixed.outer_bandwidth) == (0.010, 0.002) and not FAMILY.warnings(fixed)


def test_an_optimum_is_placed_back_where_it_was(cases: int) -> None:
    placed = 0
    for seed in range(cases):
        instance = random_hierarchical(seed)
        answer = solve(instance, Limits(), Watch())
        if answer.plan is None:
            continue
        back = place(instance, flatten(answer.plan))
        assert back is not None and flatten(back) == flatten(answer.plan)
        # crude memory depends on how a degree is shared by the levels; nothing else does
        assert instance.memory_model == "crude" or violations(instance, back) == ()
        assert evaluate(instance, back) <= evaluate(instance, answer.plan)
        placed += 1
    assert placed


def test_spread_replicas_cost_on_superstages_what_the_appendix_says(cases: int) -> None:
    checked = 0
    for seed in range(cases):
        instance = random_hierarchical(seed)
        answer = solve(instance, Limits(), Watch())
        if answer.plan is None:
            continue
        counts, first = [], 0
        for superstage in answer.plan.stages:
            for stage in superstage.inner:
                row = [0] * instance.num_machines
                row[first : first + superstage.dp_degree] = [stage.dp_degree] * superstage.dp_degree
                counts.append(row)
            first += superstage.dp_degree
        time = spread_time(instance, flatten(answer.plan), counts)
        assert math.isclose(time, evaluate(instance, answer.plan), rel_tol=1e-9), seed
        checked += 1
    assert checked


def test_replicas_stay_on_one_machine() -> None:
    instance = on_machines(planner.load("chain8"), 4, 2, 1e9, 1e8)
    whole = instance.flat.layers[0].id
    stages = [Stage((whole,), d, t, {}) for d, t in ((3, 1), (1, 2), (1, 2), (1, 1))]
    assert spread_replicas(instance, StagePlan(tuple(stages))) == [[3, 0], [0, 1], [0, 1], [1, 0]]
    assert spread_replicas(instance, StagePlan((*stages[1:3], stages[0], stages[1]))) is None
    assert spread_replicas(instance, StagePlan((stages[0], stages[0], stages[1]))) == [[3, 0], [1, 2], [0, 1]]


def promised_and_taken(instance: HierarchicalInstance) -> list[tuple[float, float | None]]:
    """What the flat optimum at each bandwidth promises, and the time of its plan on the machines."""
    found = []
    for bandwidth in (instance.inner_bandwidth, instance.outer_bandwidth):
        flat = planner.solve(replace(instance.flat, bandwidth=bandwidth), exact=True)
        placed, counts = place(instance, flat.own_plan), spread_replicas(instance, flat.own_plan)
        times = [evaluate(instance, placed)] if placed else []
        times += [spread_time(instance, flat.own_plan, counts)] if counts else []
        found.append((flat.objective, min(times, default=None)))
    return found


def test_the_hierarchical_plan_is_never_worse_than_a_flat_one() -> None:
    instance = on_machines(planner.load("chain8"), 2, 2, 1e9, 1e7)
    optimum = planner.solve(instance, exact=True).objective
    losses = [time / optimum - 1 for _, time in promised_and_taken(instance) if time is not None]
    assert losses and min(losses) >= 0 and max(losses) > 0


@pytest.mark.paper
@pytest.mark.parametrize(
    ("memory", "flat", "optimum"),
    [("80GB", [(0.0164, 0.1029), (0.0297, 0.1016)], 0.0286), ("2GiB", [(0.0257, 0.0801), (0.0397, 0.0743)], 0.0411)],
)
def test_what_a_flat_network_promises_on_the_machines_of_the_paper(
    memory: str, flat: list[tuple[float, float]], optimum: float, published: Path
) -> None:
    """The figures of docs/findings.md: the time that each bandwidth promises, and that of its plan on the machines."""
    instance = planner.load(
        published / "piper" / "bert32a100.json", problem="hierarchical_partitioning", memory=memory,
        devices_per_machine=8, num_machines=8, inner_bandwidth="300GB/s", outer_bandwidth="25GB/s",
        memory_model="precise",
    )  # fmt: skip
    assert planner.solve(instance, exact=True).objective == pytest.approx(optimum, abs=5e-5)
    assert promised_and_taken(instance) == [pytest.approx(each, abs=5e-5) for each in flat]
