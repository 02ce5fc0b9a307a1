"""Which plans are distinct."""

from dataclasses import replace

from formulations.contract.alternatives import Axis, Nearby, Pin, grouping_pins
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import memory_bytes
from instances.problems.stage_graph import StageGraph
from instances.requirements import Requirement, with_requirements


def pins(instance: StageGraph, plan: StagePlan) -> list[Pin]:
    """Which operators share a stage, and how many devices each stage has."""
    groups = [[instance.id_of(node) for node in stage.nodes] for stage in plan.stages]
    K = instance.num_devices
    devices = [
        Pin("devices_of", (group[0],), stage.devices, 1, K) for group, stage in zip(groups, plan.stages, strict=True)
    ]
    return [*grouping_pins(groups), *devices]


def memory(instance: StageGraph, plan: StagePlan) -> float:
    """Bytes on the device that holds most."""
    return max(memory_bytes(instance, stage) for stage in plan.stages)


def _with_idle_devices(instance: StageGraph, amount: int) -> StageGraph:
    """A requirement, since a plan says how many devices of the instance it leaves idle."""
    idle = Requirement("idle_devices", (), ">=", instance.num_devices - amount)
    limited: StageGraph = with_requirements(instance, [idle])
    return limited


NEARBY = Nearby(
    "which operators share a stage, or the number of its devices; all else is the best for these",
    pins,
    {
        "memory": Axis(
            memory,
            lambda instance, amount: replace(instance, memory_bytes=amount),
            lambda instance: None if instance.device_graph is not None else instance.memory_bytes,
            "B",
        ),
        "devices": Axis(
            lambda _, plan: sum(stage.devices for stage in plan.stages),
            _with_idle_devices,
            lambda instance: None if instance.device_graph is not None else instance.num_devices,
        ),
    },
)
