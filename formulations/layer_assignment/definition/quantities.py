"""The quantities of an assignment that requirements may speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formulations.contract.quantities import Domain, Quantity
from instances.problems.layer_assignment import LayerAssignmentInstance as Instance

if TYPE_CHECKING:
    from formulations.layer_assignment.definition.plan import LayerPlan

_STAGE = Domain("stage", lambda instance: range(instance.num_stages))
_LAYER = Domain("layer", lambda instance: range(instance.num_layers))


def layers(_: Instance, plan: LayerPlan, stage: int) -> int:
    """Layers of a stage."""
    return plan.lengths[stage] if stage < len(plan.lengths) else 0


def stage_of(_: Instance, plan: LayerPlan, layer: int) -> int:
    """The stage that has a layer: as many stages end before it."""
    return sum(sum(plan.lengths[: stage + 1]) <= layer for stage in range(len(plan.lengths)))


def same_stage(instance: Instance, plan: LayerPlan, layer: int, other: int) -> int:
    """1 if two layers are in one stage."""
    return int(stage_of(instance, plan, layer) == stage_of(instance, plan, other))


VOCABULARY = (
    Quantity("layers", "number of layers of a stage; stages count from 0 at the input side", layers, (_STAGE,)),
    Quantity("stage_of", "number of the stage that a layer is in; both count from 0", stage_of, (_LAYER,)),
    Quantity("same_stage", "whether two layers are in one stage", same_stage, (_LAYER, _LAYER), is_yes_no=True),
)
