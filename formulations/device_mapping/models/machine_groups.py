"""Groups of devices as places: a relaxation that sees the hierarchy of a topology.

Devices that links of at least some bandwidth connect form a group. Between two groups, and inside one, only the best
bandwidth is kept, so whatever a target forbids for groups it forbids for devices. Where all devices of a group are
identical, as in machines of equal links, nothing is lost. A ring that stays inside a small group is as slow as the best
cycle of R of its devices, which is searched for. Source: this project.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from formulations.device_mapping.bounds.combinatorial import components
from formulations.device_mapping.data.arrays import Arrays, Floats, Mask
from formulations.device_mapping.models.classes import Places

#: Best cycles are searched for in groups up to this size.
_SEARCHED = 10
#: Models with more groups than this refute little and take long.
MAX_GROUPS = 40
#: So many ways to group devices are tried, those where the bandwidth between groups is clearly lower.
_GROUPINGS, _CLEAR = 3, 1.25


def groupings(arrays: Arrays) -> list[list[Mask]]:
    """Groups at the bandwidths below which devices fall apart, the clearest hierarchy first."""
    found: dict[tuple[int, ...], tuple[float, list[Mask]]] = {}
    everything = np.ones(arrays.num_devices, dtype=np.bool_)
    for slower, threshold in _drops(arrays):
        groups = components(arrays.speed >= threshold, everything)
        if threshold < _CLEAR * slower or not 1 < len(groups) < min(arrays.num_devices, MAX_GROUPS + 1):
            continue
        key = tuple(int(np.argmax([group[device] for group in groups])) for device in range(arrays.num_devices))
        found.setdefault(key, (threshold / slower, groups))
    ranked = sorted(found.values(), key=lambda each: -each[0])
    return [groups for _, groups in ranked[:_GROUPINGS]]


def _drops(arrays: Arrays) -> list[tuple[float, float]]:
    """Bandwidths of a widest spanning tree, ascending, each with the next slower one: where groups fall apart."""
    inside = np.zeros(arrays.num_devices, dtype=np.bool_)
    inside[0] = True
    reach = arrays.speed[0].copy()
    joined = set()
    while not inside.all():
        nearest = int(np.argmax(np.where(inside, -1.0, reach)))
        joined.add(float(reach[nearest]))
        inside[nearest] = True
        reach = np.maximum(reach, arrays.speed[nearest])
    speeds = sorted(joined)
    drops = list(itertools.pairwise(speeds))
    return sorted(drops, key=lambda drop: drop[0] / drop[1])[: 4 * _GROUPINGS]


def places_of(arrays: Arrays, groups: list[Mask]) -> Places:
    """Groups of devices as places, with the best bandwidths inside and between."""
    speed = np.array([[arrays.speed[np.ix_(one, other)].max() for other in groups] for one in groups])
    rings = np.array([ring_speed(arrays.speed[np.ix_(group, group)], arrays.replicas) for group in groups])
    capacity = tuple(int(group.sum()) for group in groups)
    between = speed[~np.eye(len(groups), dtype=np.bool_)]
    identical = all(len(np.unique(values)) == 1 for values in (between, np.diag(speed), rings, np.array(capacity)))
    return Places(capacity, speed, rings, tuple(range(len(groups))), identical)


def ring_speed(speed: Floats, replicas: int) -> float:
    """The fastest that the slowest link of a cycle of R devices can be; infinite if that is not searched for."""
    count = len(speed)
    if replicas < 2 or count > _SEARCHED:
        return float("inf")
    if count < replicas:
        return 0.0
    for level in np.unique(speed[speed > 0])[::-1]:
        near = [[other for other in range(count) if speed[device, other] >= level] for device in range(count)]
        if any(True for _ in cycles(near, replicas)):
            return float(level)
    return 0.0


def cycles(near: list[list[int]], length: int) -> Iterator[tuple[int, ...]]:
    """Cycles of so many devices over the given neighbours (for two, a link), each from its least device on.

    Every cycle comes in both directions but for links, which come once.
    """
    count = len(near)
    for root in range(count):
        away = _distances(near, root)
        path, inside = [root], [False] * count
        stack = [iter(near[root])]
        inside[root] = True
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                inside[path.pop()] = False
                continue
            if step < root or inside[step] or away[step] > length - len(path):
                continue
            path.append(step)
            if len(path) == length:
                if root in near[step]:
                    yield tuple(path)
                path.pop()
            else:
                inside[step] = True
                stack.append(iter(near[step]))


def _distances(near: list[list[int]], root: int) -> list[int]:
    """Links from the root to each device over devices of higher numbers."""
    away = [len(near) + 1] * len(near)
    away[root] = 0
    queue = [root]
    for device in queue:
        for other in near[device]:
            if other > root and away[other] > away[device] + 1:
                away[other] = away[device] + 1
                queue.append(other)
    return away
