"""Which clock an objective is, problem by problem, and the simulated iteration beside it."""

import math
from dataclasses import replace

import pytest
from random_instances import LIMITS, warmed
from small_instances import random_case

import planner
from formulations import FAMILIES
from formulations.contract.clock import Clock
from formulations.stage_partitioning.definition.batch import step_time
from planner.files.load import family_of
from planner.solving.solve import run

#: What has no pipeline, or none of its own.
NO_CLOCK = {"serving_strategy", "tmpc_knapsack", "operator_strategies", "mesh_tiling", "device_mapping"}
#: Where plans may have a pipeline whose step is not simulated.
UNSIMULATED = {"hierarchical_partitioning", "operator_partitioning"}
CASES = 8


@pytest.mark.parametrize("name", [family.name for family in FAMILIES])
def test_pipelines_say_which_clock_they_are(name: str) -> None:
    """An iteration is the objective where that is one, and no shorter than the work of any replica."""
    family, seen = warmed(name), 0
    assert (family.clock is None) == (name in NO_CLOCK)
    for number in range(CASES if family.clock else 0):
        instance = random_case(name, 30, number)
        method = next(method for method in family.methods if method.supports(instance) is None)
        result = run(family, method, instance, LIMITS, {})
        if result.own_plan is None or family.clock is None:
            continue
        clock, seen = family.clock(instance, result.own_plan), seen + 1
        if clock is None:
            assert name == "microbatch_schedule" and instance.objective == "memory"
            continue
        if clock.iteration_s is None:
            assert name in UNSIMULATED and clock.kind == "steady"
            continue
        assert math.isfinite(clock.iteration_s) and clock.iteration_s >= 0, number
        if name == "flushed_partitioning":
            # The objective is a sample's part: of the iteration or of the formula, which is there beside it.
            batch_s = result.objective * instance.flat.num_microbatches * (1e-3 if result.unit == "ms" else 1.0)
            found = clock.iteration_s if clock.kind == "iteration" else clock.formula_s
            assert found == pytest.approx(batch_s, rel=1e-9), number
        elif clock.kind == "iteration":
            assert clock.iteration_s == pytest.approx(result.objective, rel=1e-9), number
        if name in ("stage_partitioning", "flushed_partitioning"):
            flat = getattr(instance, "flat", instance)
            unit_s = 1e-3 if flat.time_unit == "ms" else 1.0
            for stage in result.own_plan.stages:
                rounds = -(-flat.num_microbatches // stage.dp_degree)
                work = rounds * step_time(flat, stage) * stage.dp_degree * unit_s
                assert clock.iteration_s >= work * (1 - 1e-9), number
    assert seen > 2 or family.clock is None


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        (Clock("steady", "1f1b", 4, lambda: None), "a pipeline that is never flushed"),
        (Clock("formula", "gpipe", 2048, lambda: None), "a formula of a batch of 2,048 micro-batches, GPipe"),
        (Clock("iteration", "interleaved", 8, lambda: None), "an iteration of 8 micro-batches, interleaved 1F1B"),
        (Clock("iteration", "zb-h1", 8, lambda: None), "an iteration of 8 micro-batches, ZB-H1"),
        (Clock("iteration", None, None, lambda: None), "an iteration"),
    ],
)
def test_a_clock_names_its_schedule_and_micro_batches(clock: Clock, words: str) -> None:
    assert clock.says == words


@pytest.mark.parametrize("name", ["chain8", "chain8-flushed", "chain8-strategy"])
def test_iterations_are_in_seconds_whatever_the_unit(name: str) -> None:
    instance = planner.load(name)
    plan, family = planner.solve(instance).own_plan, family_of(instance)
    assert family.clock is not None
    flat = getattr(instance, "flat", instance)
    slow = replace(flat, time_unit="ms")
    other = slow if flat is instance else replace(instance, flat=slow)
    own, scaled = (family.clock(each, plan) for each in (instance, other))
    assert own is not None and scaled is not None and own.iteration_s is not None
    assert scaled.iteration_s == pytest.approx(own.iteration_s / 1000)
