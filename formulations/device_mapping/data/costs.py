"""Tables that the methods of device mapping share. Node v = s R + r is replica r of stage s."""

from typing import Any

import numpy as np

from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.kernels.arrays import Tables
from instances.problems.device_mapping import DeviceMapping

#: What float sums may be off by, relatively: bounds are lowered by as much.
ROUNDING = 1e-12


def tables(instance: DeviceMapping) -> Tables:
    """The arrays of an instance, with only what its objective counts."""
    bandwidth = np.array(instance.bandwidth_bytes_per_s)
    np.fill_diagonal(bandwidth, np.inf)
    sends, rings = instance.objective != "allreduce", instance.objective != "p2p"
    stages = range(instance.num_stages)
    neighbours = [instance.neighbours(stage) if sends else () for stage in stages]
    flat = [pair for pairs in neighbours for pair in pairs]
    links = instance.replicas if instance.replicas > 2 else instance.replicas - 1
    return Tables(
        slowness=1 / bandwidth,
        base=np.array([stage.compute_s for stage in instance.stages], np.float64),
        start=np.cumsum([0, *map(len, neighbours)], dtype=np.int64),
        other=np.array([other for other, _ in flat], np.int64),
        volume=np.array([volume for _, volume in flat], np.float64),
        ring_bytes=np.array([instance.ring_bytes(stage) if rings else 0.0 for stage in stages], np.float64),
        links=links if rings else 0,
        replicas=instance.replicas,
    )


def plan_of(nodes: Any, replicas: int, rings: Any = None) -> Mapping:
    """The plan that puts node v on device ``nodes[v]``; ``rings``: the nodes of each stage in the order of its ring."""

    def rows(values: Any) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(int(x) for x in values[first : first + replicas]) for first in range(0, len(values), replicas)
        )

    if rings is None:
        return Mapping(rows(nodes))
    return Mapping(rows(nodes), rows(np.asarray(rings) % replicas))


def simple_bound(instance: DeviceMapping) -> float:
    """A lower bound: no stage is faster than alone on its best device with its neighbours on that device's best links.

    Source: Parmesan, Equations 8 and 9. The largest tensors get the fastest links, which is the best matching; a ring
    takes two links (one with two replicas). Where both count, their sum is bounded, device by device.
    """
    table = tables(instance)
    fastest = np.sort(table.slowness + np.where(np.eye(len(table.slowness), dtype=bool), np.inf, 0.0), axis=1)
    worst = 0.0
    for stage, base in enumerate(table.base):
        volumes = np.sort(table.volume[table.start[stage] : table.start[stage + 1]])[::-1]
        seconds = fastest[:, : len(volumes)] @ volumes
        if table.links:
            seconds = seconds + table.ring_bytes[stage] * fastest[:, 0 if table.links == 1 else 1]
        worst = max(worst, float(base + seconds.min()))
    return worst * (1 - ROUNDING)
