"""Flat plans on machines."""

from __future__ import annotations

import json
import math

import pytest
from oracles.hierarchical_partitioning import random_hierarchical

import planner
from formulations.hierarchical_partitioning.definition.problem import evaluate, flatten, violations
from formulations.hierarchical_partitioning.paper import solve
from formulations.hierarchical_partitioning.questions.placement import place, spread_replicas, spread_time
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from instances.problems.hierarchical_partitioning import on_machines
from planner.analysis.hierarchy import compare
from planner.cli.app import main
from planner.process.errors import UsageError
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


def test_the_hierarchical_plan_is_never_worse_than_a_flat_one() -> None:
    found = compare("chain8", devices_per_machine=2, num_machines=2, inner_bandwidth="1GB/s", outer_bandwidth="10MB/s")
    flat = [row for row in found.rows if row.model.startswith("flat")]
    assert len(flat) == 2 and found.rows[-1].loss == 0.0
    assert any(row.loss is not None and row.loss > 0 for row in flat)
    assert all(row.loss is None or row.loss >= 0 for row in flat)


def test_the_command_of_old_names_the_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hierarchy", "chain8"]) == 2
    assert "planner.analysis.hierarchy.compare" in capsys.readouterr().err


def test_bandwidths_follow_fixed_units(tmp_path) -> None:
    from dataclasses import replace

    from instances.exchange import to_json

    content = to_json(replace(planner.load("diamond"), time_unit="ms"))
    path = tmp_path / "ms.json"
    path.write_text(json.dumps(content))
    cluster = {"devices_per_machine": 2, "num_machines": 2, "inner_bandwidth": "4GB/s", "outer_bandwidth": "2GB/s"}
    fixed = compare(str(path), fix_units=True, time_unit="ms", **cluster)
    assert math.isclose(fixed.options["outer-bandwidth"], 2e6)
    with pytest.raises(UsageError):
        compare("diamond", **{**cluster, "inner_bandwidth": "fast"})
