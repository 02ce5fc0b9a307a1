"""Intervals, noise and scenarios: the plan is optimal inside an interval and not outside, by brute force."""

import json
import math
import os
import signal
from itertools import islice
from pathlib import Path

import pytest
from oracles.stage_partitioning import plans
from strategies import random_stage_instance

import planner
from formulations.stage_partitioning.definition.plan import plan_from_json
from formulations.stage_partitioning.definition.problem import evaluate, violations
from formulations.stage_partitioning.questions.noise import factors, noisy
from instances.problems.stage_partitioning import StageInstance
from planner.cli.app import main
from solvers.outcome import Stop


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


def test_noise_is_on_every_time_and_on_the_bandwidth() -> None:
    instance = random_stage_instance(3, memory="ample")
    drawn: list[float] = []

    def draw() -> float:
        drawn.append(2 + len(drawn) / 64)
        return drawn[-1]

    found = noisy(instance, draw)
    before, after = (
        [x.time for layer in each.layers for every in layer.tmpcs.values() for x in every] for each in (instance, found)
    )
    ratios = [b / a for a, b in zip(before, after, strict=True) if a]
    assert len(drawn) == len(before) + 1 and len(set(ratios)) == len(ratios) > 3
    assert {found.bandwidth / instance.bandwidth, *ratios} <= set(drawn)
    assert found.bandwidth / instance.bandwidth not in ratios


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
