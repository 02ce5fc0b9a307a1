"""Which plans are distinct, and what they take beside time."""

from dataclasses import replace

from formulations.contract.alternatives import Axis, Nearby, Pin, grouping_pins
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import stage_memory, suffix_sums
from formulations.stage_partitioning.definition.quantities import num_devices
from instances.problems.stage_partitioning import StageInstance
from instances.requirements import Requirement, with_requirements


def pins(instance: StageInstance, plan: StagePlan) -> list[Pin]:
    """Which nodes share a stage, and d and t of each stage."""
    degrees = []
    for stage in plan.stages:
        node, K = (stage.nodes[0],), instance.num_devices
        degrees.append(Pin("dp_degree_of", node, stage.dp_degree, 1, K))
        degrees.append(Pin("tp_degree_of", node, stage.tp_degree, instance.tp_degrees[0], instance.tp_degrees[-1]))
    return [*grouping_pins([stage.nodes for stage in plan.stages]), *degrees]


def memory(instance: StageInstance, plan: StagePlan) -> float:
    """Bytes on the device that holds most."""
    sums = suffix_sums(plan)
    return max(stage_memory(instance, stage, s) for stage, s in zip(plan.stages, sums, strict=True))


def _on_devices(instance: StageInstance, amount: int) -> StageInstance:
    """A requirement, since what a trainer can run depends on the devices there are."""
    limited: StageInstance = with_requirements(instance, [Requirement("num_devices", (), "<=", amount)])
    return limited


NEARBY = Nearby(
    "which nodes share a stage, or in d or t of a stage; order and TMPCs are the best for these",
    pins,
    {
        "memory": Axis(
            memory,
            lambda instance, amount: replace(instance, memory_bytes=amount),
            lambda instance: instance.memory_bytes,
            "B",
        ),
        "devices": Axis(num_devices, _on_devices, lambda instance: instance.num_devices),
    },
)
