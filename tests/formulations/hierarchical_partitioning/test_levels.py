"""The appendix's recursion as printed, on two levels and on more: brute force, the other methods, and by hand."""

from dataclasses import replace

import pytest
from oracles.hierarchical_partitioning import (
    BruteForce,
    LevelsBruteForce,
    random_hierarchical,
    random_levels,
    same,
    tight_chain,
    tight_graph,
)

import planner
from formulations.hierarchical_partitioning import FAMILY, levels, paper
from formulations.hierarchical_partitioning.definition.plan import Group, HierarchicalPlan, Superstage
from formulations.hierarchical_partitioning.definition.problem import evaluate, flatten, violations
from formulations.stage_partitioning.definition.plan import Stage
from instances.errors import InstanceError
from instances.problems.hierarchical_partitioning import HierarchicalInstance, Level, MemoryModel, on_machines
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from solvers.outcome import Limits, Watch

RULES = ("rerank", "truncating")


def optimum(instance: HierarchicalInstance, knapsack: str = "exact") -> float | None:
    answer = levels.solve(instance, Limits(), Watch(), knapsack)
    if answer.infeasible:
        return None
    assert answer.plan is not None and answer.bound is not None
    assert violations(instance, answer.plan) == ()
    objective = evaluate(instance, answer.plan)
    assert answer.bound <= objective * (1 + 1e-12)
    return objective


def test_brute_force_agrees_on_three_and_four_levels(cases: int) -> None:
    infeasible = 0
    for seed in (1100, *range(cases)):  # 1100: no degree t has a choice that fits
        instance = random_levels(seed)
        expected = LevelsBruteForce(instance).solve()
        infeasible += expected is None
        assert same(optimum(instance), expected), seed
    assert 0 < infeasible < cases


def test_two_levels_are_those_of_the_other_methods(cases: int) -> None:
    """The threshold search shares only the tables of the flat problem; brute force nothing."""
    for seed in range(cases):
        make = (random_hierarchical, tight_graph, tight_chain)[seed % 3]
        instance = make(seed)
        found = optimum(instance)
        answer = paper.solve(instance, Limits(), Watch())
        assert same(found, None if answer.plan is None else evaluate(instance, answer.plan)), seed
        if seed % 3 < 2:
            assert same(found, BruteForce(instance).solve()), seed
            assert same(found, LevelsBruteForce(instance).solve()), seed


def test_the_knapsack_heuristic_is_never_better_and_sometimes_worse(cases: int) -> None:
    worse = 0
    for seed in range(2 * cases):
        instance = tight_chain(seed)
        best = optimum(instance)
        for knapsack in RULES:
            found = optimum(instance, knapsack)
            assert (found is None) == (best is None), seed
            if found is not None and best is not None:
                assert found >= best * (1 - 1e-12)
                worse += found > best * (1 + 1e-9)
    assert worse or cases < 50


def test_a_level_of_one_device_without_a_price_changes_nothing(cases: int) -> None:
    """Above all, or in between: K = 1 and a bandwidth of 1e30 bytes."""
    for seed in range(cases // 2):
        instance = tight_chain(seed)
        expected = paper.solve(instance, Limits(), Watch())
        free = Level(1, 1e30)
        own, flat = instance.levels[0], instance.flat
        for upper in ((own, free), (free, own), (free, own, free)):
            more = on_machines(
                flat, instance.devices_per_machine, upper[0].count, instance.inner_bandwidth, upper[0].bandwidth,
                instance.memory_model, "more", upper[1:],
            )  # fmt: skip
            found = optimum(more)
            assert same(found, None if expected.plan is None else evaluate(instance, expected.plan)), seed


def chain(model: MemoryModel = MemoryModel.PRECISE) -> HierarchicalInstance:
    """a -> b -> c on two racks of two machines of two devices; 10 bytes of weights, 2 a micro-batch and 1 besides."""
    layers = tuple(Layer(v, {1: (Tmpc("x", 12.0, 10.0, 2.0, 1.0),)}) for v in "abc")
    flat = StageInstance("abc", layers, (Edge("a", "b", 20.0), Edge("b", "c", 4.0)), 1, 100.0, 1.0, 8)
    return on_machines(flat, 2, 2, 10.0, 2.0, model, upper_levels=(Level(2, 0.5),))


def stage(nodes: str, d: int) -> Stage:
    return Stage(tuple(nodes), d, 1, dict.fromkeys(nodes, "x"))


#: a and b, each on a machine, on both racks.
AB = (Superstage(1, (stage("a", 1),)), Superstage(1, (stage("b", 1), stage("c", 1))))
PLAN = HierarchicalPlan(AB, ((Group(2, 2),),))


def test_three_levels_by_hand() -> None:
    instance = chain()
    assert violations(instance, PLAN) == ()
    assert [found.dp_degree for found in flatten(PLAN).stages] == [2, 2, 2]
    # rack: 4 * 1/2 * 30 bytes of weights, two at 0.5 bytes/s; machines: 2 * 20 bytes over a -> b at 2, on two racks
    assert evaluate(instance, PLAN) == 60 / 2 / 0.5
    fast = replace(instance, upper_levels=(Level(2, 50.0),))
    assert evaluate(fast, PLAN) == 40 / 2 / 2
    fast = replace(fast, outer_bandwidth=200.0)  # b: 12 + 2 (20 + 4)/10
    assert evaluate(fast, PLAN) == (12 + 4.8) / 2
    # One rack each: the edge is paid for at the links of racks and of machines.
    apart = replace(PLAN, groups=((Group(1, 1), Group(1, 1)),))
    assert violations(instance, apart) == () and evaluate(instance, apart) == 40 / 0.5


@pytest.mark.parametrize(
    ("rule", "plan"),
    [
        ("levels", replace(PLAN, groups=())),
        ("levels", replace(PLAN, groups=((Group(1, 1),),))),
        ("levels", replace(PLAN, groups=((Group(1, 3),),))),
        ("levels", replace(PLAN, groups=((Group(0, 2),),))),
        ("levels", replace(PLAN, groups=((Group(1, 2),), (Group(1, 1),)))),
        ("machines", HierarchicalPlan((replace(AB[0], dp_degree=2), AB[1]), ((Group(1, 2),),))),
        ("group", replace(PLAN, groups=((Group(2, 1), Group(1, 1)),))),
        ("microbatches", replace(PLAN, stages=(Superstage(1, (stage("a", 2),)), Superstage(1, (stage("bc", 2),))))),
    ],
)
def test_every_rule_of_the_levels_alone(rule: str, plan: HierarchicalPlan) -> None:
    instance = chain()
    if rule == "microbatches":
        instance = replace(instance, flat=replace(instance.flat, num_microbatches=7))
    assert {found.rule for found in violations(instance, plan)} == {rule}


def test_memory_divides_by_the_degrees_of_all_levels() -> None:
    # a: s = 6 of d = 2, three in flight: 2 * 3 + 1; crude: S = 8 of d_1 = 1: 2 * 8 + 1
    for model, needs in ((MemoryModel.PRECISE, 7.0), (MemoryModel.CRUDE, 17.0), (MemoryModel.NONE, 0.0)):
        instance = chain(model)
        assert violations(replace(instance, flat=replace(instance.flat, memory_bytes=needs)), PLAN) == ()
        if needs:
            short = replace(instance, flat=replace(instance.flat, memory_bytes=needs - 1))
            assert {found.rule for found in violations(short, PLAN)} == {"memory"}


@pytest.mark.parametrize("knapsack", ["exact", *RULES])
def test_a_choice_beyond_the_memory_by_more_than_the_slack_is_none(knapsack: str) -> None:
    """Both layers fast need 1.5e-12 of the memory more than there is, of which the definition admits 1e-12."""
    own = (Tmpc("f", 1.0, 0.0, 0.0, 5e11 * (1 + 1.5e-12)), Tmpc("s", 1.5, 0.0, 0.0, 0.0))
    flat = StageInstance("edge", tuple(Layer(v, {1: own}) for v in "ab"), (Edge("a", "b", 0.0),), 1, 1e12, 1.0, 1)
    assert optimum(on_machines(flat, 1, 1, 1.0, 1.0), knapsack) == 2.5


def test_files_and_settings() -> None:
    instance = chain()
    assert FAMILY.read(FAMILY.to_json(instance), "here", {}) == instance
    assert FAMILY.plan_from_json(instance, FAMILY.plan_to_json(instance, PLAN)) == PLAN
    assert "groups" not in FAMILY.plan_to_json(instance, HierarchicalPlan(AB))
    for given in ("3@4GB/s,2@1e9", (Level(3, 4e9), Level(2, 1e9)), ((3, 4e9), (2, 1e9))):
        found = FAMILY.read(instance, "here", {"upper-levels": given})
        assert (found.upper_levels, found.flat.num_devices) == ((Level(3, 4e9), Level(2, 1e9)), 24)
        assert FAMILY.read(instance, "here", {"upper-levels": found.options["upper-levels"]}) == found
    assert FAMILY.read(instance, "here", {"upper-levels": ""}).upper_levels == ()
    for wrong in ("3", "0@1GB/s", "2@0", "two", 3, "1000000@1"):
        with pytest.raises(InstanceError):
            FAMILY.read(instance, "here", {"upper-levels": wrong})


def test_figures_and_questions_know_all_levels() -> None:
    instance = chain()
    result = planner.solve(instance, exact=True)
    assert result.method == "piper-levels-exact-knapsack" and result.status == "optimal"
    plan = FAMILY.plan_from_json(instance, result.plan)
    found = FAMILY.breakdown(instance, plan)
    assert max(row["time_per_sample"] for row in found.rows) == pytest.approx(result.objective)
    assert sum(row["machines"] for row in found.rows) <= instance.all_machines == 4
    assert len(found.pictures) >= 4
    with pytest.raises(planner.UsageError, match="levels above machines"):
        planner.solve(instance, method="piper-hierarchical")
    for given, why in (({}, "levels above machines"), ({"upper-levels": "", "objective": "iteration"}, "steady")):
        [reason] = planner.crosscheck(FAMILY.read(instance, "here", given)).uncertified.values()
        assert why in reason
