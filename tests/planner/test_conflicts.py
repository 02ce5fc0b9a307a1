"""Explanations of every problem: conflicts and repairs against what brute force says with the same rules left out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from conflicts import HAS_PLAN, NOTHING, infeasible, left
from small_instances import known_optimum, random_case

import planner
from formulations.amounts import step_below
from planner.inputs.loading import family_of
from solvers.outcome import Status

#: A part of the cases, where each takes many proofs by models.
SHARE = {
    "layer_assignment": 8,
    "operator_partitioning": 8,
    "stage_graph": 8,
    "tmpc_knapsack": 4,
    "flushed_partitioning": 4,
    "hierarchical_partitioning": 8,
    "mesh_tiling": 8,
}

#: No requirements are drawn for these: the rooms have none of their own.
WITHOUT = ("flushed_partitioning", "hierarchical_partitioning")


@pytest.mark.parametrize("name", HAS_PLAN)
def test_a_conflict_has_no_plan_and_one_without_any_of_its_members(name: str, cases: int) -> None:
    seen: Counter[str] = Counter()
    for number, instance in infeasible(name, max(4, cases // SHARE[name])):
        found = planner.explain(instance)
        assert found.status is Status.INFEASIBLE and found.irreducible, number
        rest = set(family_of(instance).questions().members(instance)) - set(found.conflict)
        assert not HAS_PLAN[name](instance, left(rest)), number
        for member in found.conflict:
            assert HAS_PLAN[name](instance, left(rest | {member})), (number, member)
        _repaired(name, number, instance, found, seen)
        seen.update(each.kind for each in found.conflict)
    assert seen["rule"] and seen["repair"] and (seen["requirement"] or cases < 100 or name in WITHOUT), seen


def _repaired(name: str, number: int, instance: Any, found: Any, seen: Counter[str]) -> None:
    """Each repair has a plan, of the optimum that is stated; and no smaller amount of it, without requirements."""
    groups = family_of(instance).questions().repairs(instance, [])
    ways = {each.name: each for group in groups for each in group if each.name not in ("requirement", "tmpc")}
    for repair in found.repairs:
        assert HAS_PLAN[name](repair.instance, NOTHING), (number, repair)
        known, optimum = known_optimum(name, repair.instance)
        if known and repair.objective is not None and not repair.instance.requirements:
            assert repair.objective == pytest.approx(optimum, rel=2e-6), (number, repair)
        change = ways.pop(repair.change, None)
        if change is not None and not instance.requirements:
            less = [step_below(repair.amount)] if change.needed and repair.amount else []
            before = less if change.needed else list(change.steps)[: list(change.steps).index(repair.amount)][-1:]
            assert not any(HAS_PLAN[name](change.changed(amount), NOTHING) for amount in before), (number, repair)
        seen["repair"] += 1
    for change in ways.values():  # what is not named does not help, however large
        if change.needed or change.steps:
            most = change.most if change.needed else change.steps[-1]
            assert instance.requirements or not HAS_PLAN[name](change.changed(most), NOTHING), (number, change.name)


@pytest.mark.parametrize("name", HAS_PLAN)
def test_gains_are_differences_of_optima(name: str, cases: int) -> None:
    tried = gained = 0
    for number in range(cases // SHARE[name]):
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
            if gain.next_amount is not None and more.change.needed:
                known, less = known_optimum(name, more.change.changed(step_below(gain.next_amount)))
                assert not known or less == pytest.approx(optimum, rel=2e-6), (number, gain)
        tried += 1
    assert tried and (gained or cases < 100)
