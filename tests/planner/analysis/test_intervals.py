"""Intervals and noise of every problem that has them: optimal inside and not outside, by brute force."""

import importlib
import math
import random
from collections import Counter
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR
from itertools import islice
from typing import Any

import pytest
from oracles import operator_partitioning
from small_instances import known_optimum, random_case
from strategies import random_stage_instance

import planner
from planner.analysis.sensitivity import EDGE_GAP, LEAST, MOST, times
from planner.display.sensitivity import inner
from planner.files.load import family_of
from solvers.outcome import OPTIMAL_GAP, Stop

NAMES = ("layer_assignment", "operator_partitioning", "stage_graph")


def drawn(name: str, number: int) -> Any:
    """A small instance; operators as the family draws them are often too many for brute force."""
    if name == "stage_partitioning":
        return random_stage_instance(number, max_nodes=4, max_devices=3, max_tmpcs=2, memory="planted")
    if name == "operator_partitioning":
        return operator_partitioning.random_instance(random.Random(f"interval {number}"), 4)
    return random_case(name, 43, number)


def loss(name: str, instance: Any, plan: Any) -> float:
    """To the optimum that brute force finds."""
    known, best = known_optimum(name, instance)
    assert known and best
    return family_of(instance).evaluate(instance, plan) / best - 1


@pytest.mark.parametrize("name", ["stage_partitioning", "operator_partitioning", "stage_graph"])
def test_a_plan_keeps_all_rules_at_both_ends_of_memory_and_is_optimal_there(
    name: str, cases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bytes and as a factor of those that are declared, to the last bit, as JSON has them and as they are shown."""
    monkeypatch.setattr(f"formulations.{name}.questions.what_if.factors", lambda _: [])  # most proofs are of times
    rng, seen = random.Random(f"memory {name}"), Counter[str]()
    for number in range(max(8, cases // 4)):
        instance = drawn(name, number)
        if not getattr(instance, "memory_bytes", None) or getattr(instance, "device_graph", None) is not None:
            continue
        instance = replace(instance, memory_bytes=instance.memory_bytes * rng.uniform(0.3, 1.5))
        known, best = known_optimum(name, instance)
        if not known or not best or not 1e-6 < best < 1e6:
            continue
        found = planner.sensitivity(instance, samples=1)
        assert found.result is not None
        [memory] = [each for each in found.intervals if each.parameter == "memory"]
        low, high, declared = memory.low, memory.high, instance.memory_bytes
        assert low is not None and memory.low_amount is not None and low <= 1.0
        shown = [float(inner(low, ROUND_CEILING)), float(inner(high or 1.0, ROUND_FLOOR))]
        for amount in (memory.low_amount, low * declared, *(each * declared for each in shown)):
            at = replace(instance, memory_bytes=amount)
            assert planner.check(at, found.result.plan).feasible, (number, amount)
            seen["low"] += amount < declared
        less = replace(instance, memory_bytes=memory.low_amount * (1 - 1e-6))
        assert not memory.low_amount or not planner.check(less, found.result.plan).feasible, number
        if high is not None and memory.high_amount is not None:
            for amount in (memory.high_amount, high * declared, shown[1] * declared):
                at = replace(instance, memory_bytes=amount)
                plan = family_of(at).plan_from_json(at, found.result.plan)
                assert amount >= declared * (1 - 1e-5) and loss(name, at, plan) <= OPTIMAL_GAP
                seen["high"] += amount > declared
            more = replace(instance, memory_bytes=memory.high_amount * (1 + 1e-6))
            _, then = known_optimum(name, more)
            plan = family_of(more).plan_from_json(more, found.result.plan)
            assert family_of(more).evaluate(more, plan) > then * (1 + OPTIMAL_GAP), (number, memory)
    assert seen["low"] and (seen["high"] or name == "operator_partitioning"), seen


def test_a_factor_of_what_is_declared_makes_no_less_and_no_more() -> None:
    """The quotient of the two does, in one case of nine."""
    rng, wrong = random.Random("factors"), 0
    for _ in range(2000):
        declared, amount = 10 ** rng.uniform(-29, 29), 10 ** rng.uniform(-29, 29)
        up, down = times(declared, amount, True), times(declared, amount, False)
        assert up is not None and down is not None
        assert math.nextafter(up, 0.0) * declared <= amount <= up * declared
        assert down * declared <= amount <= math.nextafter(down, math.inf) * declared
        wrong += up != down
    assert wrong > 200


@pytest.mark.parametrize("name", ["stage_partitioning", *NAMES])
def test_a_plan_is_optimal_inside_its_intervals_and_not_outside(name: str, cases: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(max(3, cases // 8)):
        instance = drawn(name, number)
        known, best = known_optimum(name, instance)
        if not known or not best or not 1e-6 < best < 1e6:
            continue
        found = planner.sensitivity(instance, samples=1)
        assert found.result is not None and found.stop is Stop.PROVED
        family = family_of(instance)
        plan = family.plan_from_json(instance, found.result.plan)
        rng = random.Random(f"inside {number}")
        ways = {factor.name: factor.scaled for factor in family.questions().factors(instance)}
        for each in found.intervals:
            if each.parameter == "memory":
                continue
            scaled = ways.pop(each.parameter)
            low, high = each.low or LEAST, each.high or MOST
            for at in (low, high, 1.0):
                assert loss(name, scaled(at), plan) <= 1.01 * EDGE_GAP + 1e-9, (number, each)
            if each.proved:
                for at in (rng.uniform(low, 1), rng.uniform(1, high), rng.uniform(low, high)):
                    assert loss(name, scaled(at), plan) <= 1.01 * OPTIMAL_GAP, (number, each, at)
            for end, outside in ((each.low, low * (1 - 1e-6)), (each.high, high * (1 + 1e-6))):
                if end is not None:
                    assert loss(name, scaled(outside), plan) > 0.9 * EDGE_GAP, (number, each, end)
                    seen["end"] += 1
            seen["proved" if each.proved else "sampled"] += 1
        assert not ways
        if cases < 100 and len(seen) == 3:
            break
    assert seen["proved"] and (seen["end"] or cases < 100), seen
    assert name != "stage_partitioning" or (seen["end"] and seen["sampled"]), seen


@pytest.mark.parametrize("name", NAMES)
def test_what_is_proved_without_a_search_has_lines_of_one_slope(name: str) -> None:
    """Or lines alone: both are looked at in the costs of all plans of small instances."""
    seen: Counter[bool] = Counter()
    for number in range(25):
        instance = drawn(name, number)
        family, oracle = family_of(instance), importlib.import_module(f"oracles.{name}")
        listed = [family.plan_from_json(instance, each) for each in islice(oracle.plans(instance), 60)]
        plans = [plan for plan in listed if not family.judge(instance, plan)]
        for factor in family.questions().factors(instance):
            cost = {at: [family.evaluate(factor.scaled(at), plan) for plan in plans] for at in (1, 2, 3, 1e7, 2e7)}
            slopes = [(b - a) / 1e7 for a, b in zip(cost[1e7], cost[2e7], strict=True)]
            bends = [a + b - 2 * m for a, m, b in zip(cost[1], cost[2], cost[3], strict=True)]
            most = 1e-6 * max([1e-9, *cost[3]])
            one_slope = max(slopes, default=0) - min(slopes, default=0) <= most
            straight = all(abs(bend) <= most for bend in bends)
            assert one_slope or straight or not factor.connected, (number, factor.name)
            seen[factor.connected] += len(plans) > 1
    assert seen[True] if name == "layer_assignment" else seen[False]


@pytest.mark.parametrize("name", NAMES)
def test_noise_is_on_every_time(name: str) -> None:
    """Every time is drawn by itself, and links with them."""
    instance = next(case for number in range(99) if len(_times(case := drawn(name, number))) > 2)
    noisy = family_of(instance).questions().noisy
    before = _times(instance)
    draws = iter(2.0**power for power in range(60))
    ratios = [b / a for a, b in zip(before, _times(noisy(instance, lambda: next(draws))), strict=True) if a]
    assert len(set(ratios)) == len(ratios) and min(ratios) >= 1
    assert _times(noisy(instance, lambda: 2.0)) == pytest.approx([2 * time for time in before])
    links = [
        getattr(each, "bandwidth_bytes_per_s", None) or [cost for row in each.cut_cost_s for cost in row]
        for each in (instance, noisy(instance, lambda: 2.0))
    ]
    assert links[1] == pytest.approx([2 * cost for cost in links[0]] if isinstance(links[0], list) else 2 * links[0])


def _times(instance: Any) -> list[float]:
    if hasattr(instance, "layer_time_s"):
        return list(instance.layer_time_s)
    if hasattr(instance.operators[0], "compute_s"):
        return [each.compute_s for each in instance.operators]
    return [each.forward.at(1) for each in instance.operators]
