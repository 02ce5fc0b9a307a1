"""Which partitions are distinct."""

from __future__ import annotations

from formulations.nearby import Nearby, Pin, grouping
from formulations.operator_partitioning.problem import OperatorPlan
from instances.operator_partitioning import OperatorInstance


def pins(instance: OperatorInstance, plan: OperatorPlan) -> list[Pin]:
    """Which operators share a stage, and how many replicas each stage has."""
    groups = [[instance.operators[each].id for each in members] for members in plan.stages]
    most = instance.num_devices
    replicas = [
        Pin("replicas_of", (group[0],), count, 1, max(count, most or count))
        for group, count in zip(groups, plan.replicas, strict=True)
    ]
    return [*grouping(groups), *replicas]


NEARBY = Nearby("which operators share a stage, or the replicas of a stage; their order is the best for these", pins)
