"""Intervals, noise and scenarios: the plan is optimal inside an interval and not outside, by brute force."""

import importlib
import json
import math
import os
import random
import signal
from collections import Counter
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from oracles import operator_partitioning
from oracles.stage_partitioning import plans
from small_instances import known_optimum, random_case
from strategies import random_stage_instance
from thinned import thinned

import planner
from formulations.stage_partitioning.definition.plan import plan_from_json
from formulations.stage_partitioning.definition.problem import evaluate, violations
from formulations.stage_partitioning.questions.noise import factors
from instances.problems.stage_partitioning import StageInstance
from planner.analysis.sensitivity import EDGE_GAP, LEAST, MOST, times
from planner.cli.app import main
from planner.display.sensitivity import inner
from planner.files.load import family_of
from solvers.outcome import OPTIMAL_GAP, Stop


@pytest.fixture
def no_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies end before the intervals of times, which take most of the proofs."""
    monkeypatch.setattr("formulations.stage_partitioning.questions.what_if.factors", lambda _: [])


def test_what_is_left_out_has_lines_that_rise_no_more() -> None:
    left_out = kept = 0
    for seed in range(20):
        instance = random_stage_instance(seed, max_nodes=3, max_devices=3, max_tmpcs=2, memory="ample", max_dp=False)
        ways = {factor.name: factor.steeper for factor in factors(instance)}
        listed = [plan_from_json(instance, each) for each in islice(plans(instance), 60)]
        for node in (layer.id for layer in instance.layers):
            steeper = ways[f"time of layer {node}"]
            assert steeper is not None
            slopes = [slope(instance, plan, node) for plan in listed]
            for bound in {*slopes, 0.7}:
                others = steeper(bound)
                for rise, plan in zip(slopes, listed, strict=True):
                    there = others is not None and not broken(others(2.0), plan)
                    assert there or rise <= bound, (seed, node, bound, plan)
                    left_out, kept = left_out + (not there), kept + there
    assert left_out and kept


def slope(instance: StageInstance, plan, node) -> float:
    """By how much the stage of a layer takes longer where the layer takes twice its time."""
    stage = next(stage for stage in plan.stages if node in stage.nodes)
    [layer] = [layer for layer in instance.layers if layer.id == node]
    [time] = [x.time for x in layer.tmpcs[stage.tp_degree] if x.id == stage.tmpcs[node]]
    return time / stage.dp_degree


def broken(instance: StageInstance, plan) -> bool:
    """Whether the plan names a TMPC that is no more."""
    try:
        return bool(violations(instance, plan))
    except (KeyError, ValueError):
        return True


@pytest.mark.usefixtures("no_intervals")
def test_losses_under_noise_are_to_the_optima_of_the_samples() -> None:
    instance = planner.load("chain8")
    found = planner.sensitivity(instance, noise=0.2, samples=20)
    noise = found.noise
    assert noise is not None and (noise.samples, noise.share) == (20, 0.2)
    assert 0 < noise.mean_loss < noise.p95_loss <= noise.worst_loss and 0 < noise.optimal < 1
    same = planner.sensitivity(instance, noise=0.2, samples=20).noise
    other = planner.sensitivity(instance, noise=0.2, samples=20, limits=planner.Limits(seed=1)).noise
    assert same == noise and other is not None and other.mean_loss != noise.mean_loss
    little = planner.sensitivity(instance, noise=1e-9, samples=5).noise
    assert little is not None and little.worst_loss < 1e-8 and little.optimal == 1


@pytest.mark.usefixtures("no_intervals")
def test_the_best_candidate_over_scenarios() -> None:
    instance = planner.load("chain8")
    scenarios = [planner.load("chain8", bandwidth=f"{size}MB/s") for size in (20, 1000, 100_000)]
    found = planner.sensitivity(instance, samples=1, scenarios=scenarios).scenarios
    assert found is not None and found.best is not None and len(found.losses) == 4
    plans = [planner.solve(each, exact=True).plan for each in (instance, *scenarios)]
    for row, plan in zip(found.losses, plans, strict=True):
        for cell, scenario in zip(row, scenarios, strict=True):
            decoded = plan_from_json(scenario, plan)
            optimum = planner.solve(scenario, exact=True).objective
            assert cell == pytest.approx(evaluate(scenario, decoded) / optimum - 1, abs=1e-9)
    worst = [max(row) for row in found.losses]
    assert worst[found.best] == min(worst) > 0 and found.plan == plans[found.best]


@pytest.mark.usefixtures("no_intervals")
def test_scenarios_that_some_plan_does_not_fit() -> None:
    instance = planner.load("chain8")
    scenarios = [planner.load("chain8", memory="40MB"), planner.load("chain8", memory="1MB"), instance]
    found = planner.sensitivity(instance, samples=1, scenarios=scenarios).scenarios
    assert found is not None and found.infeasible == (1,)
    other = planner.sensitivity(instance, samples=1, scenarios=[planner.load("bert32", devices=64)]).scenarios
    assert other is not None and math.isinf(other.worst(0)) and other.best == 1


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "scenarios.json"
    file.write_text(json.dumps([{"bandwidth": "20MB/s"}, {"devices": 3}, "chain8"]))
    options = ["--noise", "0.05", "--samples", "3", "--scenarios", str(file)]
    assert main(["sensitivity", "chain8", "--first", "3", *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["parameter"] for each in found["intervals"]][:3] == ["memory", "bandwidth", "time of layer 0"]
    assert found["noise"]["samples"] == 3 and len(found["scenarios"]["losses"]) == 4
    assert found["scenarios"]["losses"][0][1] is None  # four devices where there are three
    file.write_text('[{"bandwidth": "20MB/s"}]')
    assert main(["sensitivity", "chain8", "--first", "3", *options]) == 0
    shown = capsys.readouterr().out
    assert "among these candidates only" in shown and "at the 95th percentile" in shown and "proved" in shown
    assert main(["sensitivity", "chain8", "--memory", "20MB"]) == 4
    assert "planner explain" in capsys.readouterr().out
    assert main(["sensitivity", "chain8", "--time-limit", "0"]) == 3


@pytest.mark.parametrize("text", ["{}", "[]", "[3]", '[{"bandwith": 3}]', '["nothing"]', "[", '["layers"]'])
def test_files_that_are_no_scenarios(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    file = tmp_path / "scenarios.json"
    file.write_text(text)
    assert main(["sensitivity", "chain8", "--scenarios", str(file)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_problems_without_sensitivity(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sensitivity", "mesh"]) == 2
    refused = capsys.readouterr().err
    assert refused.count("\n") == 1 and refused.startswith("INSTANCE is 'mesh_tiling'; expected an instance of ")
    assert "layer_assignment" in refused and "tmpc_knapsack" not in refused


def test_a_signal_leaves_what_is_known() -> None:
    def listen(count: int) -> None:
        if count == 8:
            os.kill(os.getpid(), signal.SIGINT)

    found = planner.sensitivity(planner.load("chain8"), samples=100, listen=listen)
    assert (found.signal, found.stop, found.proofs) == (signal.SIGINT, Stop.INTERRUPTED, 8)
    assert found.noise is not None and found.noise.samples == 7 and not found.intervals


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


@thinned("name", ["stage_partitioning", *NAMES], 3)
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


@pytest.mark.parametrize("name", ["stage_partitioning", *NAMES])
def test_noise_is_on_every_time(name: str) -> None:
    """Every time is drawn by itself, and links with them."""
    instance = next(case for number in range(99) if len(_times(case := drawn(name, number))) > 2)
    noisy = family_of(instance).questions().noisy
    before = _times(instance)
    draws = iter(2.0**power for power in range(60))
    ratios = [b / a for a, b in zip(before, _times(noisy(instance, lambda: next(draws))), strict=True) if a]
    assert len(set(ratios)) == len(ratios) and min(ratios) >= 1
    assert _times(noisy(instance, lambda: 2.0)) == pytest.approx([2 * time for time in before])
    links = [_links(each) for each in (instance, noisy(instance, lambda: 2.0))]
    assert links[1] == pytest.approx([2 * link for link in links[0]])
    draws = iter(2.0**power for power in range(60))
    drawn_links = zip(links[0], _links(noisy(instance, lambda: next(draws))), strict=True)
    assert not {b / a for a, b in drawn_links if a} & set(ratios)


def _links(instance: Any) -> list[float]:
    if hasattr(instance, "cut_cost_s"):
        return [cost for row in instance.cut_cost_s for cost in row]
    return [getattr(instance, "bandwidth_bytes_per_s", None) or instance.bandwidth]


def _times(instance: Any) -> list[float]:
    if hasattr(instance, "layer_time_s"):
        return list(instance.layer_time_s)
    if hasattr(instance, "layers"):
        return [x.time for layer in instance.layers for every in layer.tmpcs.values() for x in every]
    if hasattr(instance.operators[0], "compute_s"):
        return [each.compute_s for each in instance.operators]
    return [each.forward.at(1) for each in instance.operators]
