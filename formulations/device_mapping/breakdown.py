"""A mapping in figures: what every stage's slowest replica computes, sends and reduces."""

from __future__ import annotations

import math

from formulations.breakdown import Bars, Breakdown, Devices, slowest
from formulations.device_mapping.problem import Mapping, ring_seconds, sending_seconds, stage_times
from instances.device_mapping import DeviceMapping


def breakdown(instance: DeviceMapping, plan: Mapping) -> Breakdown:
    """Every stage's slowest replica, whatever the objective counts of it."""
    rows, times = [], []
    for stage in range(instance.num_stages):
        ring = ring_seconds(instance, plan, stage)
        sending = [math.fsum(sending_seconds(instance, plan, stage, each)) for each in range(instance.replicas)]
        times.append(max(stage_times(instance, plan, stage, ring)))
        rows.append(
            {
                "counted_s": times[-1],
                "compute_s": instance.stages[stage].compute_s,
                "sending_s": max(sending),
                "all_reduce_s": ring,
            }
        )
    labels = [str(stage) for stage in range(instance.num_stages)]
    return Breakdown(
        tuple(rows),
        {"bottleneck": f"stage {slowest(times)}"},
        (
            Devices("Devices in the order of stages", plan.devices, instance.bandwidth_bytes_per_s),
            Bars("Slowest replica of each stage", labels, times, "time, s"),
        ),
    )
