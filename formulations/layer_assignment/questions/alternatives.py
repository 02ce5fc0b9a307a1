"""Which assignments are distinct (all of them), and what they take beside time."""

import math
from itertools import pairwise

from formulations.contract.alternatives import Axis, Nearby, Pin
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import cuts, parameters_of
from instances.problems.layer_assignment import LayerAssignmentInstance
from instances.requirements import Requirement, with_requirements


def pins(instance: LayerAssignmentInstance, plan: LayerPlan) -> list[Pin]:
    """How many layers each stage has; the last one has what is left."""
    most = instance.num_layers - instance.num_stages + 1
    return [Pin("layers", (stage,), length, 1, most) for stage, length in enumerate(plan.lengths[:-1])]


def most_parameters(instance: LayerAssignmentInstance, plan: LayerPlan) -> float:
    """Parameters of the stage that holds most; tied ones count once."""
    return max(parameters_of(instance, start, end) for start, end in pairwise(cuts(plan)))


def _with_at_most(instance: LayerAssignmentInstance, amount: float) -> LayerAssignmentInstance:
    """Layers between which there are more parameters are in different stages, which is all that the limit says."""
    last: dict[int, int] = {}
    end = 0
    for start in range(instance.num_layers):
        end = max(end, start)
        while end < instance.num_layers and parameters_of(instance, start, end + 1) <= amount:
            end += 1
        if end == instance.num_layers:
            break
        last[end] = start
    apart = [Requirement("same_stage", (start, end), "==", 0) for end, start in last.items()]
    limited: LayerAssignmentInstance = with_requirements(instance, apart)
    return limited


NEARBY = Nearby(
    "the number of layers of a stage",
    pins,
    {
        "memory": Axis(
            most_parameters, _with_at_most, lambda instance: math.inf if instance.parameters else None, "parameters"
        )
    },
)
