"""Which partitions are distinct."""

import math
from dataclasses import replace

from formulations.contract.alternatives import Axis, Nearby, Pin, grouping_pins
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import most_memory
from instances.problems.operator_partitioning import OperatorInstance


def pins(instance: OperatorInstance, plan: OperatorPlan) -> list[Pin]:
    """Which operators share a stage, and how many replicas each stage has."""
    groups = [[instance.operators[each].id for each in members] for members in plan.stages]
    most = instance.num_devices
    replicas = [
        Pin("replicas_of", (group[0],), count, 1, max(count, most or count))
        for group, count in zip(groups, plan.replicas, strict=True)
    ]
    return [*grouping_pins(groups), *replicas]


NEARBY = Nearby(
    "which operators share a stage, or the replicas of a stage; their order is the best for these",
    pins,
    {
        "memory": Axis(
            most_memory,
            lambda instance, amount: replace(instance, memory_bytes=amount),
            lambda instance: math.inf if instance.memory_bytes is None else instance.memory_bytes,
            "B",
        )
    },
    lambda instance: "the number of stages is free; give --stages" if instance.num_stages is None else None,
)
