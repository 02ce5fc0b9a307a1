"""Which plans are distinct, and what they take beside time."""

from dataclasses import replace

from formulations.contract.alternatives import Axis, Nearby, Pin
from formulations.contract.family import Claim
from formulations.flushed_partitioning.methods import METHODS
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import stage_memory
from formulations.stage_partitioning.definition.quantities import num_devices
from formulations.stage_partitioning.questions import alternatives as flat
from instances.problems.flushed_partitioning import FlushedInstance, Schedule
from instances.requirements import Requirement, with_requirements

_REFUSED = "no exact method takes requirements on stages and degrees of an instance on machines, or of this graph"


def pins(instance: FlushedInstance, plan: StagePlan) -> list[Pin]:
    """Which nodes share a stage, and d and t of each stage."""
    return flat.pins(instance.flat, plan)


def memory(instance: FlushedInstance, plan: StagePlan) -> float:
    """Bytes on the device that holds most; under GPipe all micro-batches are in flight."""
    if instance.schedule is not Schedule.GPIPE:
        return flat.memory(instance.flat, plan)
    return max(stage_memory(instance.flat, stage, instance.flat.num_microbatches) for stage in plan.stages)


def _on_devices(instance: FlushedInstance, amount: int) -> FlushedInstance:
    """Fewer devices, or a requirement where they make up machines, whose ends stay where they are."""
    if instance.devices_per_machine is None:
        return replace(instance, flat=replace(instance.flat, num_devices=amount))
    limited: FlushedInstance = with_requirements(instance, [Requirement("num_devices", (), "<=", amount)])
    return limited


def _refusal(instance: FlushedInstance) -> str | None:
    node = instance.flat.layers[0].id
    pinned = with_requirements(instance, [Requirement("tp_degree_of", (node,), ">=", 1)])
    exact = [method for method in METHODS if method.claim is Claim.EXACT]
    return _REFUSED if all(method.refusal(pinned) for method in exact) else None


NEARBY = Nearby(
    flat.NEARBY.sense,
    pins,
    {
        "memory": Axis(
            memory,
            lambda instance, amount: replace(instance, flat=replace(instance.flat, memory_bytes=amount)),
            lambda instance: instance.flat.memory_bytes,
            "B",
        ),
        "devices": Axis(
            lambda instance, plan: num_devices(instance.flat, plan),
            _on_devices,
            lambda instance: instance.flat.num_devices,
        ),
    },
    _refusal,
)
