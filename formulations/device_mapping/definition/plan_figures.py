"""A mapping in figures: what every stage's slowest replica computes, sends and reduces."""

import math
from collections.abc import Sequence
from typing import Any

from formulations.contract.figures.device_layout import Standing, device_places
from formulations.contract.figures.plan_figures import (
    Breakdown,
    Link,
    Matrix,
    Network,
    Picture,
    Place,
    Stack,
    Stage,
    slowest,
    stages_of,
)
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.problem import ring_devices, ring_seconds, sending_seconds, stage_times
from instances.problems.device_mapping import DeviceMapping


def breakdown(instance: DeviceMapping, plan: Mapping) -> Breakdown:
    """Every stage's slowest replica, whatever the objective counts of it."""
    rows: list[dict[str, Any]] = []
    times, parts = [], []
    for stage in range(instance.num_stages):
        ring = ring_seconds(instance, plan, stage)
        sending = [math.fsum(sending_seconds(instance, plan, stage, each)) for each in range(instance.replicas)]
        times.append(max(stage_times(instance, plan, stage, ring)))
        compute = instance.stages[stage].compute_s
        rows.append(
            {
                "devices": list(plan.devices[stage]),
                "counted_s": times[-1],
                "compute_s": compute,
                "sending_s": max(sending),
                "all_reduce_s": ring,
            }
        )
        parts.append(
            {
                "compute": compute,
                "transfer": 0.0 if instance.objective == "allreduce" else max(sending),
                "all-reduce": 0.0 if instance.objective == "p2p" else ring,
            }
        )
    return Breakdown(
        tuple(rows),
        {"bottleneck": f"stage {slowest(times)}"},
        lambda: _pictures(instance, plan, times, parts),
        degrees=[(len(devices), 1) for devices in plan.devices],
        devices=(sum(map(len, plan.devices)), instance.num_devices),
    )


def _pictures(
    instance: DeviceMapping, plan: Mapping, times: Sequence[float], parts: Sequence[dict[str, float]]
) -> tuple[Picture, ...]:
    degrees = [f"{instance.replicas} replicas" if instance.replicas > 1 else ""] * instance.num_stages
    stages = stages_of(times, degrees, [instance.replicas] * instance.num_stages)
    found = {name: [each[name] for each in parts] for name in parts[0]}
    counted = {name: values for name, values in found.items() if name == "compute" or any(values)}
    return (
        _network(instance, plan, stages, slowest(times)),
        Matrix("Bandwidths in the order of stages", plan.devices, instance.bandwidth_bytes_per_s, stages),
        Stack("Slowest replica of each stage", stages, counted, "time of the slowest replica", "s"),
    )


def _network(instance: DeviceMapping, plan: Mapping, stages: Sequence[Stage], bottleneck: int) -> Network:
    """The devices, and the links over which the plan sends what its objective counts."""
    at = device_places(instance.bandwidth_bytes_per_s) or _by_stages(instance, plan)
    places: list[Place] = []
    for stage, devices in enumerate(plan.devices):
        for replica, device in enumerate(devices):
            places.append(Place(device, at.x[device], at.y[device], at.machine[device], stage, replica))
    loads: dict[tuple[int, int], float] = {}
    awaited: dict[tuple[int, int], float] = {}
    for sharing, pairs in _traffic(instance, plan):
        for a, b, volume in pairs:
            pair = min(a, b), max(a, b)
            loads[pair] = max(loads.get(pair, 0.0), volume)
            if bottleneck in sharing:
                awaited[pair] = volume / instance.bandwidth_bytes_per_s[a][b]
    worst = max(awaited, key=lambda pair: awaited[pair], default=None)
    links = [Link(a, b, v, instance.bandwidth_bytes_per_s[a][b], (a, b) == worst) for (a, b), v in loads.items()]
    names = [f"machine {number}" for number in range(at.machines)]
    return Network(
        "Devices, and the links that the plan loads",
        sorted(places, key=lambda place: place.device),
        links,
        stages,
        names,
    )


def _by_stages(instance: DeviceMapping, plan: Mapping) -> Standing:
    """Where bandwidths show no places: a column for each stage, a row for each replica."""
    x, y = [0.0] * instance.num_devices, [0.0] * instance.num_devices
    for stage, devices in enumerate(plan.devices):
        for replica, device in enumerate(devices):
            x[device], y[device] = float(stage), float(replica)
    return Standing(tuple(x), tuple(y), (0,) * instance.num_devices, 0)


def _traffic(instance: DeviceMapping, plan: Mapping) -> list[tuple[tuple[int, ...], list[tuple[int, int, float]]]]:
    """Stages, and what their devices send each other: of a micro-batch, and in all-reduces."""
    found: list[tuple[tuple[int, ...], list[tuple[int, int, float]]]] = []
    if instance.objective != "allreduce":
        for edge in instance.edges:
            ends = zip(plan.devices[edge.source], plan.devices[edge.target], strict=True)
            found.append(((edge.source, edge.target), [(a, b, edge.volume_bytes) for a, b in ends]))
    if instance.objective != "p2p" and instance.replicas > 1:
        for stage in range(instance.num_stages):
            ring, volume = ring_devices(instance, plan, stage), instance.ring_bytes(stage)
            found.append(((stage,), [(a, b, volume) for a, b in zip(ring, ring[1:] + ring[:1], strict=True)]))
    return found
