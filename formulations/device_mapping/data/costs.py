"""Tables that the methods of device mapping share. Node v = s R + r is replica r of stage s."""

import numpy as np

from formulations.device_mapping.data.arrays import SLACK, Arrays, Floats
from formulations.device_mapping.kernels.arrays import Tables
from instances.problems.device_mapping import DeviceMapping


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


def node_costs(arrays: Arrays) -> Floats:
    """The least seconds of a node of stage s on device d, shape (S, D): its best links, large volumes on fast ones.

    By the rearrangement inequality that is the least sum over edges; the ring takes the second best link (the best
    with two replicas). Source: Parmesan, Equations 8 and 9, which are the maximum over stages of the least over
    devices.
    """
    # seconds per byte on a device's links, ascending
    fastest = np.sort(arrays.seconds_per_byte, axis=1)
    costs = np.repeat(arrays.compute[:, None], arrays.num_devices, axis=1)
    for stage in range(arrays.num_stages):
        volumes = sorted((volume for _, volume in arrays.incident[stage]), reverse=True)
        for position, volume in enumerate(volumes):
            costs[stage] += volume * fastest[:, position]
        if arrays.ring[stage] > 0:
            costs[stage] += arrays.ring[stage] * arrays.ring_floor
    return costs


def single_bound(arrays: Arrays) -> float:
    """Equations 8 and 9: the slowest stage with every node on the device that suits it best."""
    return safe(float(node_costs(arrays).min(axis=1).max()))


def safe(bound: float) -> float:
    """A bound less the rounding of its own sums."""
    return bound * (1 - SLACK)
