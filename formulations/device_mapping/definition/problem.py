"""Device mapping: the definition, naively and without any solver.

Source: Parmesan, section 5: Equations 5 (the slowest stage), 6 (between stages) and 7 (all-reduce in a ring).
"""

import itertools
import math
from collections import Counter

from formulations.contract.violation import Violation
from formulations.device_mapping.definition.plan import Mapping
from instances.problems.device_mapping import DeviceMapping

#: Up to so many replicas the best free ring is searched for where a plan does not state its rings.
MAX_SEARCHED_RING = 12


def evaluate(instance: DeviceMapping, plan: Mapping) -> float:
    """Seconds of the slowest stage replica.

    `ValueError` if the plan breaks a rule.
    Source: Parmesan, Equation 5.
    """
    broken = violations(instance, plan)
    if broken:
        raise ValueError("; ".join(map(str, broken)))
    return max(
        time
        for stage in range(instance.num_stages)
        for time in stage_times(instance, plan, stage, ring_seconds(instance, plan, stage))
    )


def stage_times(instance: DeviceMapping, plan: Mapping, stage: int, ring_s: float) -> list[float]:
    """Seconds of each replica of a stage whose all-reduce takes ``ring_s``; the objective says which parts count."""
    times = []
    for replica in range(instance.replicas):
        parts = [instance.stages[stage].compute_s]
        if instance.objective != "p2p":
            parts.append(ring_s)
        if instance.objective != "allreduce":
            parts += sending_seconds(instance, plan, stage, replica)
        times.append(math.fsum(parts))
    return times


def sending_seconds(instance: DeviceMapping, plan: Mapping, stage: int, replica: int) -> list[float]:
    """Seconds that a stage replica exchanges tensors with each neighbour of the same replica (Equation 6)."""
    bandwidth = instance.bandwidth_bytes_per_s[plan.devices[stage][replica]]
    return [volume / bandwidth[plan.devices[other][replica]] for other, volume in instance.neighbours(stage)]


def ring_seconds(instance: DeviceMapping, plan: Mapping, stage: int) -> float:
    """Seconds of a stage's all-reduce: the slowest link of its ring (Equation 7); 0 for one replica."""
    if instance.replicas == 1:
        return 0.0
    return instance.ring_bytes(stage) / slowest_link(instance, ring_devices(instance, plan, stage))


def ring_devices(instance: DeviceMapping, plan: Mapping, stage: int) -> tuple[int, ...]:
    """A stage's devices in the cyclic order of its ring."""
    devices = plan.devices[stage]
    if instance.ring == "index":
        return devices
    if plan.rings is not None:
        return tuple(devices[replica] for replica in plan.rings[stage])
    return best_ring(instance, devices) if len(devices) <= MAX_SEARCHED_RING else devices


def slowest_link(instance: DeviceMapping, ring: tuple[int, ...]) -> float:
    """Least bandwidth between neighbours in a cyclic order of at least two devices."""
    return min(
        instance.bandwidth_bytes_per_s[device][after] for device, after in zip(ring, ring[1:] + ring[:1], strict=True)
    )


def best_ring(instance: DeviceMapping, devices: tuple[int, ...]) -> tuple[int, ...]:
    """The cyclic order of devices whose slowest link is fastest (a bottleneck Hamiltonian cycle), exactly.

    The bandwidths are tried in descending order, each by reaching out from the first device over sets of devices; the
    work grows with 2 to the number of devices.
    """
    if len(devices) < 4:  # all orders are the same cycle
        return devices
    speeds = {instance.bandwidth_bytes_per_s[a][b] for a, b in itertools.combinations(devices, 2)}
    low, high = 0, len(speeds) - 1
    ascending = sorted(speeds)
    ring = devices
    while low <= high:
        middle = (low + high) // 2
        found = _ring_at(instance, devices, ascending[middle])
        if found is None:
            high = middle - 1
        else:
            ring, low = found, middle + 1
    return ring


def _ring_at(instance: DeviceMapping, devices: tuple[int, ...], speed: float) -> tuple[int, ...] | None:
    """A cycle through all devices over links of at least ``speed``, or ``None``: there is none."""
    count = len(devices)
    near = [
        sum(1 << j for j in range(count) if j != i and instance.bandwidth_bytes_per_s[devices[i]][devices[j]] >= speed)
        for i in range(count)
    ]
    # ends[visited]: where a path from device 0 over exactly the visited devices can end.
    ends = [0] * (1 << count)
    ends[1] = 1
    for visited in range(1, 1 << count, 2):
        for last in range(count):
            if ends[visited] >> last & 1:
                for after in range(1, count):
                    if near[last] & ~visited & (1 << after):
                        ends[visited | 1 << after] |= 1 << after
    visited = (1 << count) - 1
    closing = ends[visited] & near[0]
    if not closing:
        return None
    order = [closing.bit_length() - 1]
    while order[-1]:
        visited &= ~(1 << order[-1])
        order.append((ends[visited] & near[order[-1]]).bit_length() - 1)
    return tuple(devices[i] for i in reversed(order))


def violations(instance: DeviceMapping, plan: Mapping) -> tuple[Violation, ...]:
    """The rules that a plan breaks.

    ``stages`` and ``replicas`` (as many as declared), ``device`` (an existing one), ``once`` (a device runs one stage
    replica), ``rings`` (each an order of all replicas).
    """
    found = []
    if len(plan.devices) != instance.num_stages:
        found.append(Violation("stages", f"{len(plan.devices)} stages; expected {instance.num_stages}"))
    for stage, devices in enumerate(plan.devices):
        if len(devices) != instance.replicas:
            message = f"stage {stage} has {len(devices)} devices; expected {instance.replicas}, one for each replica"
            found.append(Violation("replicas", message))
        found += [
            Violation("device", f"stage {stage} names device {device}; expected 0 to {instance.num_devices - 1}")
            for device in devices
            if not 0 <= device < instance.num_devices
        ]
    used = Counter(device for devices in plan.devices for device in devices)
    found += [
        Violation("once", f"device {device} is named {times} times; expected once")
        for device, times in sorted(used.items())
        if times > 1
    ]
    return (*found, *_ring_violations(instance, plan))


def _ring_violations(instance: DeviceMapping, plan: Mapping) -> list[Violation]:
    if plan.rings is None:
        return []
    if len(plan.rings) != instance.num_stages:
        return [Violation("rings", f"{len(plan.rings)} rings; expected {instance.num_stages}, or none")]
    return [
        Violation("rings", f"the ring of stage {stage} is {ring}; expected each replica once")
        for stage, ring in enumerate(plan.rings)
        if sorted(ring) != list(range(instance.replicas))
    ]
