"""An iteration under fixed orders, relaxed until nothing changes: shares no code with `formulations.simulation`."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

Act = tuple[str, int, int]


def iteration_s(
    orders: Sequence[Sequence[Act]],
    seconds: Mapping[str, Sequence[float]],
    edges: Sequence[tuple[int, int]],
    delays: Mapping[tuple[int, int], float],
) -> float | None:
    """The longest path through all waits, or ``None`` if they are circular; ``delays`` where devices differ."""
    found = ends_s(orders, seconds, edges, delays)
    return None if found is None else max(found.values())


def ends_s(
    orders: Sequence[Sequence[Act]],
    seconds: Mapping[str, Sequence[float]],
    edges: Sequence[tuple[int, int]],
    delays: Mapping[tuple[int, int], float],
) -> dict[Act, float] | None:
    """When each act ends."""
    device = {act: i for i, order in enumerate(orders) for act in order}
    waits: dict[Act, list[tuple[Act, float]]] = {act: [] for act in device}
    for order in orders:
        for earlier, later in pairwise(order):
            waits[later].append((earlier, 0.0))
    for kind, stage, j in device:
        if kind == "W":
            waits[kind, stage, j].append((("B", stage, j), 0.0))
        if kind == "B":
            waits[kind, stage, j].append((("F", stage, j), 0.0))
        for source, target in edges:
            if (kind, stage) == ("F", target):
                _across(waits, device, (kind, stage, j), ("F", source, j), delays.get((source, target), 0.0))
            if (kind, stage) == ("B", source):
                _across(waits, device, (kind, stage, j), ("B", target, j), delays.get((source, target), 0.0))
    end = dict.fromkeys(device, 0.0)
    for _ in range(len(device) + 1):
        changed = False
        for act, earlier in waits.items():
            found = max((end[other] + delay for other, delay in earlier), default=0.0) + seconds[act[0]][act[1]]
            if found > end[act]:
                end[act], changed = found, True
        if not changed:
            return end
    return None


def _across(
    waits: dict[Act, list[tuple[Act, float]]], device: Mapping[Act, int], act: Act, other: Act, delay: float
) -> None:
    waits[act].append((other, delay if device[act] != device[other] else 0.0))
