"""The figures of plans: the same names in every row, and the objective where a family's figures add up to it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from random_instances import LIMITS, warmed
from small_instances import random_case

import planner
from formulations import FAMILIES
from formulations.breakdown import Breakdown
from planner.run import run

#: What the figures say the objective is.
OBJECTIVE = {
    "stage_partitioning": lambda _, found: max(row["time_per_sample"] for row in found.rows),
    "hierarchical_partitioning": lambda _, found: max(row["time_per_sample"] for row in found.rows),
    "flushed_partitioning": lambda instance, found: found.figures["batch_time"] / instance.flat.num_microbatches,
    "layer_assignment": lambda _, found: sum(
        found.figures[f"{name}_s"] for name in ("waiting", "filling", "sending", "all_reduce")
    ),
    "stage_graph": lambda instance, found: (
        found.figures["iteration_s"]
        if instance.objective == "iteration"
        else max(row["s_per_sample"] for row in found.rows)
    ),
    "device_mapping": lambda _, found: max(row["counted_s"] for row in found.rows),
    "tmpc_knapsack": lambda _, found: math.fsum(row["time"] for row in found.rows),
    "microbatch_schedule": lambda instance, found: (
        found.figures["iteration_s"] if instance.objective == "time" else max(row["memory_bytes"] for row in found.rows)
    ),
}


def solved(name: str) -> list[tuple[Any, float, Breakdown]]:
    family = warmed(name)
    found = []
    for number in range(12):
        instance = random_case(name, 1, number)
        method = next(method for method in family.methods if method.supports(instance) is None)
        result = run(family, method, instance, LIMITS, {})
        if result.plan is not None and result.objective is not None:
            plan = family.plan_from_json(instance, result.plan)
            assert family.breakdown is not None
            found.append((instance, result.objective, family.breakdown(instance, plan)))
    assert found
    return found


@pytest.mark.parametrize("name", [family.name for family in FAMILIES])
def test_figures_are_whole_and_say_their_units(name: str) -> None:
    for instance, objective, found in solved(name):
        assert len({tuple(row) for row in found.rows}) == 1 and found.pictures
        for shown in (*found.rows, found.figures):
            for key, value in shown.items():
                assert not isinstance(value, float) or math.isfinite(value), (key, value)
                assert not key.endswith("_share") or -1e-9 <= value <= 1 + 1e-9, (key, value)
                # A device may be filled a billionth above its memory, as the definitions have it.
                assert key != "slack_bytes" or value >= -1e-6 * (1 + shown.get("memory_bytes", 0.0)), (key, value)
        if name in OBJECTIVE:
            assert OBJECTIVE[name](instance, found) == pytest.approx(objective, rel=1e-9), name


def test_plans_that_take_no_time_have_figures() -> None:
    """All operators take 0 s: there is no rate of samples, and nobody waits."""
    instance = planner.load(
        {
            "problem": "stage_graph",
            "schema_version": 1,
            "name": "free",
            "num_devices": 1,
            "memory_bytes": 10.0,
            "bandwidth_bytes_per_s": 1.0,
            "latency_s": 0.0,
            "minibatch": 1,
            "schedule": "uniform",
            "pass_ratio": [1, 2],
            "weight_copies": 4.0,
            "objective": "tps",
            "operators": [
                {
                    "id": 0,
                    "name": "free",
                    "forward": {"fixed_s": 0.0, "per_sample_s": 0.0},
                    "backward": {"fixed_s": 0.0, "per_sample_s": 0.0},
                    "weight_bytes": 0.0,
                    "activation_bytes": 0.0,
                }
            ],
            "edges": [],
        }
    )
    result = planner.solve(instance, exact=True)
    family = warmed("stage_graph")
    assert result.objective == 0.0 and family.breakdown is not None
    figures = family.breakdown(instance, family.plan_from_json(instance, result.plan)).figures
    assert (figures["samples_per_s"], figures["bubble_share"]) == (None, 0.0)
