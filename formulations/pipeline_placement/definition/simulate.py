"""A training step of a placed pipeline, event by event: synchronous 1F1B or GPipe, then the all-reduce.

Links carry any number of messages at once. Forward passes take a third of a stage's computing and backward passes two
thirds; half of an exchanged volume goes each way. Source: Parmesan, section 7 (four micro-batches); the rest is
reconstructed.
"""

from dataclasses import dataclass

from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.problem import ring_seconds
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.problem import second_phase
from formulations.simulation.simulate_graph import Pass, PassGraph, kfkb, run
from instances.problems.device_mapping import DeviceMapping
from instances.problems.microbatch_schedule import ScheduleEdge, ScheduleInstance, ScheduleStage
from instances.problems.pipeline_placement import PlacementInstance

SCHEDULES = ("1f1b", "gpipe")
_FORWARD = 1 / 3


@dataclass(frozen=True)
class Step:
    """Seconds of a step: the slowest replica's passes, then the slowest all-reduce; the passes of that replica."""

    seconds: float
    pipeline_s: float
    allreduce_s: float
    replica: int
    passes: tuple[Pass, ...]


def replica_schedule(instance: DeviceMapping, plan: Mapping, replica: int) -> ScheduleInstance:
    """One replica's pipeline: passes of its stages, and messages on the links of its own devices."""
    matrix, devices = instance.bandwidth_bytes_per_s, [stage[replica] for stage in plan.devices]
    return ScheduleInstance(
        name=f"{instance.name} replica {replica}",
        minibatch=instance.microbatches,
        stages=tuple(
            ScheduleStage(_FORWARD * stage.compute_s, (1 - _FORWARD) * stage.compute_s) for stage in instance.stages
        ),
        edges=tuple(
            ScheduleEdge(e.source, e.target, e.volume_bytes / 2 / matrix[devices[e.source]][devices[e.target]])
            for e in instance.edges
        ),
    )


def simulate(instance: DeviceMapping, plan: Mapping, schedule: str = "1f1b") -> Step:
    """A step of the mapped pipeline.

    `ValueError` if the schedule is unknown.
    """
    if schedule not in SCHEDULES:
        raise ValueError(" or ".join(SCHEDULES))
    slowest: tuple[float, int, tuple[Pass, ...]] | None = None
    for replica in range(instance.replicas):
        pipeline = replica_schedule(instance, plan, replica)
        trace = run(PassGraph(pipeline), _orders(instance, schedule))
        if slowest is None or trace.iteration_s > slowest[0]:
            slowest = (trace.iteration_s, replica, trace.passes)
    assert slowest is not None
    reduced = max(ring_seconds(instance, plan, stage) for stage in range(instance.num_stages))
    return Step(slowest[0] + reduced, slowest[0], reduced, slowest[1], slowest[2])


def simulate_plan(instance: PlacementInstance, plan: PlacementPlan, schedule: str = "1f1b") -> Step:
    """A step of both phases' plan."""
    return simulate(second_phase(instance, plan.partition), plan.mapping, schedule)


def _orders(instance: DeviceMapping, schedule: str) -> list[str]:
    """Passes of each stage: 1F1B warms up with as many forward passes as there are stages to the last one."""
    count = instance.microbatches
    if schedule == "gpipe":
        return ["F" * count + "B" * count] * instance.num_stages
    return [kfkb(count, min(count, behind), 1) for behind in _stages_to_the_end(instance)]


def _stages_to_the_end(instance: DeviceMapping) -> list[int]:
    """Stages on the longest path from each stage to the end, itself included."""
    longest = [1] * instance.num_stages
    for _ in range(instance.num_stages):
        for edge in instance.edges:
            longest[edge.source] = max(longest[edge.source], longest[edge.target] + 1)
    return longest
