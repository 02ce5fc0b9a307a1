"""Explanations of every problem: conflicts and repairs against what brute force says with the same rules left out."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import pytest
from conflicts import HAS_PLAN, NOTHING, infeasible, left, small
from small_instances import known_optimum, random_case
from thinned import thinned

import planner
from formulations.contract.rounding import step_below
from instances.problems.flushed_partitioning import Schedule, flush_pipeline
from instances.problems.hierarchical_partitioning import MemoryModel, on_machines
from instances.problems.stage_graph import AffineTime, DeviceGraph, Operator, OperatorEdge, StageGraph
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.problems.training_strategy import Exchanged, StrategyInstance
from planner.files.load import family_of
from solvers.outcome import Status, Stop

#: A part of the cases: each takes many proofs, some by models. Of stage partitioning, by searches alone, there are all.
SHARE = 20

#: Brute force of these takes some milliseconds.
FAST = ("stage_partitioning", "stage_graph", "tmpc_knapsack", "mesh_tiling", "operator_partitioning")

#: No requirements are drawn for these: the rooms have none of their own.
WITHOUT = ("stage_partitioning", "flushed_partitioning", "hierarchical_partitioning")


#: Numbers of those without a plan that show every kind of rule and repair, or take little time.
SHOWING = {"stage_partitioning": (9, 12, 15, 24, 69, 77, 80, 88), "flushed_partitioning": (10,)}


def count(name: str, cases: int) -> int:
    return max(cases, 40) if name == "stage_partitioning" else max(1, cases // SHARE)


def examined(name: str, many: int) -> Iterator[tuple[int, Any]]:
    if many or name not in SHOWING:
        return infeasible(name, count(name, many))
    return (each for each in islice(small(name), max(SHOWING[name]) + 1) if each[0] in SHOWING[name])


@pytest.mark.parametrize("name", HAS_PLAN)
def test_what_is_left_out_is_what_the_page_says(name: str, cases: int) -> None:
    seen: Counter[bool] = Counter()
    for number, instance in islice(small(name), cases // 2 if name in FAST else cases // 8):
        room, rng = family_of(instance).questions(), random.Random(f"left {number}")
        every = room.members(instance)
        dropped = frozenset(each for each in every if rng.random() < (0.3 if each.kind == "layer" else 0.4))
        expected = HAS_PLAN[name](instance, left(dropped))
        assert any(HAS_PLAN[name](each, NOTHING) for each in room.relaxed(instance, dropped)) is expected, number
        seen[expected] += 1
    assert cases < 100 or (seen[True] and seen[False])


def test_an_operator_that_is_left_out_takes_in_nothing() -> None:
    """Two operators that fill a device each, and one that takes in from both: it cannot join both of them."""
    time = AffineTime(1.0, 1.0)
    operators = tuple(Operator(name, time, time, weight, 0.0) for name, weight in (("a", 1.0), ("b", 1.0), ("c", 0.5)))
    edges = (OperatorEdge(0, 2, 10.0), OperatorEdge(1, 2, 10.0))
    instance = StageGraph("join", operators, edges, 3, 5.0, 1.0, 0.0, 1)
    found = planner.explain(instance)
    assert [(each.kind, each.name) for each in found.conflict] == [("rule", "memory"), ("layer", 2), ("layer", 1)]
    assert [repair.change for repair in found.repairs] == ["memory"] and found.repairs[0].amount == 10


def test_devices_without_a_link() -> None:
    """Two operators, one for each device, and a tensor that cannot go from one to the other."""
    time = AffineTime(1.0, 1.0)
    operators = tuple(Operator(name, time, time, 1.0, 0.0) for name in "ab")
    graph = DeviceGraph((5.0, 5.0), ((0.0, 0.0), (0.0, 0.0)))
    instance = StageGraph("apart", operators, (OperatorEdge(0, 1, 1.0),), 2, 0.0, 1.0, 0.0, 1, device_graph=graph)
    found = planner.explain(instance)
    assert [each.name for each in found.conflict] == ["links", "devices", "memory", 0, 1]
    assert [(each.change, each.amount) for each in found.repairs] == [("memory", 8)]
    linked = replace(instance, device_graph=DeviceGraph((5.0, 5.0), ((0.0, 2.0), (2.0, 0.0))))
    found = planner.explain(linked)
    assert (
        found.status is Status.OPTIMAL and not found.gains and [row["memory_share"] for row in found.rows] == [0.8, 1]
    )


def layers_of(memory: float, activation: float, static: float, count: int, devices: int) -> StageInstance:
    """Layers of one TMPC each, for two micro-batches."""
    layers = tuple(Layer(node, {1: (Tmpc("x", 1.0, 0.0, activation, static),)}) for node in range(count))
    edges = tuple(Edge(node, node + 1, 0.0) for node in range(count - 1))
    return StageInstance("chain", layers, edges, devices, memory, 1.0, 2)


def test_machines_and_memory_models_by_hand() -> None:
    crowded = planner.explain(on_machines(layers_of(5.0, 0.0, 4.0, 2, 1), 1, 1, 1.0, 1.0))
    assert [each.name for each in crowded.conflict] == ["machines", "devices", "memory", 0, 1]
    named = {each.change: each.amount for each in crowded.repairs}
    assert named == {"memory": 8, "machines": 2, "devices": 2}
    crude = planner.explain(on_machines(layers_of(1.0, 1.0, 0.0, 1, 2), 1, 2, 1.0, 1.0, MemoryModel.CRUDE))
    assert [each.name for each in crude.conflict] == ["memory-model", "memory", 0]
    assert {each.change for each in crude.repairs} == {"memory", "memory-model", "tmpc", "microbatch-size"}


def test_a_schedule_by_hand() -> None:
    found = planner.explain(flush_pipeline(layers_of(1.0, 1.0, 0.0, 1, 1), Schedule.GPIPE))
    assert [each.name for each in found.conflict] == ["schedule", "devices", "memory", 0]
    named = {each.change: each.amount for each in found.repairs}
    assert named["memory"] == named["devices"] == 2 and "schedule" in named and "microbatches" not in named
    assert found.reason.endswith("; so would --schedule 1f1b")
    less = planner.explain(flush_pipeline(layers_of(0.5, 1.0, 0.0, 1, 1), Schedule.GPIPE))
    assert less.reason and "schedule" not in less.reason


def test_strategies_by_hand() -> None:
    """Groups or experts that one sample has no replicas for, and machines of less bandwidth than is between them."""
    instance = StrategyInstance(layers_of(10.0, 1.0, 4.0, 2, 2), sharded_per_weight=1.0)
    instance = replace(instance, flat=replace(instance.flat, num_microbatches=1))
    experts = dict.fromkeys(range(2), Exchanged(0.0, 1.0, 0.0, 2))
    for name, own in (("shard-groups", {"shard_groups": (2,)}), ("ep", {"ep_degrees": (2,), "exchanged": experts})):
        found = planner.explain(replace(instance, **own))
        assert [each.name for each in found.conflict] == [name] and name in {each.change for each in found.repairs}
    for inner, then in ((0.5, {"memory": 0.5, "devices": 0.5, "bandwidth": 0.5}), (2.0, {"bandwidth": 1e9 + 1.0})):
        given = replace(instance, devices_per_machine=2, inner_bandwidth=inner)
        for more in family_of(given).questions().resources(given):
            changed = more.change.changed(more.amount)
            assert changed.inner_bandwidth == then.get(more.change.name, inner)


@thinned("name", HAS_PLAN)
def test_a_conflict_has_no_plan_and_one_without_any_of_its_members(name: str, many: int) -> None:
    seen: Counter[str] = Counter()
    for number, instance in examined(name, many):
        found = planner.explain(instance)
        assert (found.status, found.stop, found.irreducible) == (Status.INFEASIBLE, Stop.PROVED, True), number
        rest = set(family_of(instance).questions().members(instance)) - set(found.conflict)
        assert not HAS_PLAN[name](instance, left(rest)), number
        for member in found.conflict:
            assert HAS_PLAN[name](instance, left(rest | {member})), (number, member)
        _repaired(name, number, instance, found, seen)
        seen.update({kind for each in found.conflict for kind in (each.kind, each.name)})
    if name == "stage_partitioning":
        assert all(seen[each] for each in ("layer", "memory", "devices", "microbatches", "max-dp")), seen
        assert all(seen[f"repair {each}"] for each in ("memory", "devices", "tmpc")), seen
    assert many < 100 or (seen["rule"] and seen["repair"] and (seen["requirement"] or name in WITHOUT)), seen


def _repaired(name: str, number: int, instance: Any, found: Any, seen: Counter[str]) -> None:
    """Each repair has a plan, of the optimum that is stated; and no smaller amount of it, without requirements."""
    layers = [each.name for each in found.conflict if each.kind == "layer" and name == "stage_partitioning"]
    ways = defaultdict(list)
    for each in chain.from_iterable(family_of(instance).questions().repairs(instance, layers)):
        if each.name != "requirement" and (layers or each.name != "tmpc"):
            ways[each.name].append(each)
    for repair in found.repairs:
        assert HAS_PLAN[name](repair.instance, NOTHING), (number, repair)
        known, optimum = known_optimum(name, repair.instance)
        if known and repair.objective is not None and not repair.instance.requirements:
            assert repair.objective == pytest.approx(optimum, rel=2e-6), (number, repair)
        for change in ways[repair.change]:
            if change.says(repair.amount) != repair.says or instance.requirements:
                continue
            less = [step_below(repair.amount)] if change.needed and repair.amount else []
            before = less if change.needed else list(change.steps)[: list(change.steps).index(repair.amount)][-1:]
            assert not any(HAS_PLAN[name](change.changed(amount), NOTHING) for amount in before), (number, repair)
        seen["repair"] += 1
        seen[f"repair {repair.change}"] += 1
    for change in chain.from_iterable(ways.values()):  # what is not named does not help, however large
        if change.name not in {repair.change for repair in found.repairs} and (change.needed or change.steps):
            most = change.most if change.needed else change.steps[-1]
            assert instance.requirements or not HAS_PLAN[name](change.changed(most), NOTHING), (number, change.name)


@thinned("name", [*HAS_PLAN][::-1])
def test_gains_are_differences_of_optima(name: str, cases: int) -> None:
    tried = gained = later = 0
    for number in range(count(name, cases)):
        instance = random_case(name, 41, number)
        known, optimum = known_optimum(name, instance)
        if not known or not optimum:
            continue
        found = planner.explain(instance)
        assert found.result is not None and found.result.objective == pytest.approx(optimum, rel=2e-6), number
        assert found.bottleneck and all(row["time_share"] <= 1 for row in found.rows)
        for more, gain in zip(family_of(instance).questions().resources(instance), found.gains, strict=True):
            changed = more.change.changed(more.amount)
            known, then = known_optimum(name, changed)
            if known:
                assert gain.objective == (None if then is None else pytest.approx(then, rel=2e-6)), (number, gain)
                gained += gain.gain is not None and gain.gain > 1e-6
            if gain.next_amount is not None:
                known, then = known_optimum(name, more.change.changed(gain.next_amount))
                assert not known or optimum > then == pytest.approx(gain.next_objective, rel=2e-6), (number, gain)
                less = step_below(gain.next_amount) if more.change.needed else gain.next_amount - 1
                known, before = known_optimum(name, more.change.changed(less))
                assert not known or before == pytest.approx(optimum, rel=2e-6), (number, gain)
                later += 1
        tried += 1
    assert cases < 100 or (tried and gained)
    assert later or name != "stage_partitioning"
