"""Flat plans on machines."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from flat_plans import place, spread_replicas, spread_time
from oracles.hierarchical_partitioning import random_hierarchical

import planner
from formulations.hierarchical_partitioning.definition.problem import evaluate, flatten, violations
from formulations.hierarchical_partitioning.paper import solve
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from instances.problems.hierarchical_partitioning import HierarchicalInstance, on_machines
from solvers.outcome import Limits, Watch


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
