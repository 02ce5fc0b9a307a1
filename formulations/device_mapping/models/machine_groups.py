"""Groups of devices as places: a relaxation that sees the hierarchy of a topology.

Devices that links of at least some bandwidth connect form a group. Between two groups, and inside one, only the best
bandwidth is kept, so whatever a target forbids for groups it forbids for devices. Where all devices of a group are
identical, as in machines of equal links, nothing is lost. A ring that stays inside a small group is as slow as the best
cycle of R of its devices, which is searched for. Source: this project.
"""

from collections.abc import Iterator

import numpy as np

from formulations.device_mapping.data.arrays import Arrays, Floats, Mask
from formulations.device_mapping.models.classes import Places

#: Best cycles are searched for in groups up to this size.
_SEARCHED = 10


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
