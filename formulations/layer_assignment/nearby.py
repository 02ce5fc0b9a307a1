"""Which assignments are distinct: all of them."""

from __future__ import annotations

from formulations.layer_assignment.problem import LayerPlan
from formulations.nearby import Nearby, Pin
from instances.layer_assignment import LayerAssignmentInstance


def pins(instance: LayerAssignmentInstance, plan: LayerPlan) -> list[Pin]:
    """How many layers each stage has; the last one has what is left."""
    most = instance.num_layers - instance.num_stages + 1
    return [Pin("layers", (stage,), length, 1, most) for stage, length in enumerate(plan.lengths[:-1])]


NEARBY = Nearby("the number of layers of a stage", pins)
