"""The quantities of a placement that requirements may speak of; none of them distinguishes replicas of a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formulations.contract.quantities import Domain, Quantity
from instances.problems.pipeline_placement import PlacementInstance
from instances.rules import NodeId

if TYPE_CHECKING:
    from formulations.pipeline_placement.definition.plan import PlacementPlan

_OPERATOR = Domain("operator", lambda instance: [operator.id for operator in instance.operators.operators])
_STAGE = Domain("stage", lambda instance: range(instance.num_stages))
_DEVICE = Domain("device", lambda instance: range(instance.num_devices))


def stage_of(instance: PlacementInstance, plan: PlacementPlan, operator: NodeId) -> int:
    """The stage that has an operator."""
    ids = [each.id for each in instance.operators.operators]
    return next(stage for stage, members in enumerate(plan.partition.stages) if ids.index(operator) in members)


def same_stage(instance: PlacementInstance, plan: PlacementPlan, operator: NodeId, other: NodeId) -> int:
    """1 if two operators are in one stage."""
    return int(stage_of(instance, plan, operator) == stage_of(instance, plan, other))


def runs(_: PlacementInstance, plan: PlacementPlan, device: int, stage: int) -> int:
    """1 if a device runs some replica of a stage."""
    return int(device in plan.mapping.devices[stage])


def stage_on(_: PlacementInstance, plan: PlacementPlan, device: int) -> int:
    """The stage that a device runs."""
    return next(stage for stage, devices in enumerate(plan.mapping.devices) if device in devices)


VOCABULARY = (
    Quantity("stage_of", "number of the stage that has an operator, from 0 at the input side", stage_of, (_OPERATOR,)),
    Quantity(
        "same_stage", "whether two operators are in one stage", same_stage, (_OPERATOR, _OPERATOR), is_yes_no=True
    ),
    Quantity("runs", "whether a device runs a replica of a stage, whichever", runs, (_DEVICE, _STAGE), is_yes_no=True),
    Quantity("stage_on", "number of the stage that a device runs", stage_on, (_DEVICE,)),
)
