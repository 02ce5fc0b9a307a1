"""A plan of operator partitioning in figures: what a stage computes and sends, and what it holds."""

from __future__ import annotations

import math

from formulations.breakdown import Bars, Breakdown, slowest
from formulations.operator_partitioning.problem import (
    OperatorPlan,
    all_reduce_seconds,
    capacity_bytes,
    memory_bytes,
    stage_seconds,
)
from instances.operator_partitioning import OperatorInstance


def breakdown(instance: OperatorInstance, plan: OperatorPlan) -> Breakdown:
    """Every stage's seconds for a micro-batch, its share of communication, its all-reduce, and its memory."""
    seconds = stage_seconds(instance, plan)
    shares = plan.replicas if instance.num_stages is not None else (1,) * len(plan.stages)
    rows = []
    for stage, (members, replicas) in enumerate(zip(plan.stages, plan.replicas, strict=True)):
        compute = math.fsum(instance.operators[operator].compute_s for operator in members)
        held = memory_bytes(instance, members, len(plan.stages) - stage)
        capacity = capacity_bytes(instance, replicas)
        room = {} if math.isinf(capacity) else {"slack_bytes": capacity - held}
        rows.append(
            {
                "compute_s": compute,
                "communication_s": seconds[stage] - compute,
                "stage_s": seconds[stage] / shares[stage],
                "all_reduce_s": all_reduce_seconds(instance, members, replicas),
                "memory_bytes": held,
                **room,
            }
        )
    labels = [f"{index}\n{len(members)}" for index, members in enumerate(plan.stages)]
    return Breakdown(
        tuple(rows),
        {"bottleneck": f"stage {slowest([row['stage_s'] for row in rows])}"},
        (Bars("Load of a stage", labels, seconds, "time, s", "stage, operators"),),
    )
