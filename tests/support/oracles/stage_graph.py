"""Every plan of a tiny stage graph with one micro-batch size for all stages; shares no code with the room."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

from branching_cases import partitions, shares

from instances.problems.stage_graph import StageGraph


def plans(instance: StageGraph) -> Iterator[dict[str, Any]]:
    """All partitions, devices, sizes and samples in flight, in JSON form; many of them break a rule."""
    names = list(instance.ids or range(instance.num_operators))
    for parts in partitions(list(range(instance.num_operators))):
        place = {node: number for number, part in enumerate(parts) for node in part}
        ends = {(place[edge.source], place[edge.target]) for edge in instance.edges}
        edges = sorted([u, v] for u, v in ends if u != v)
        if not _is_acyclic(len(parts), edges):
            continue
        for devices in _devices(instance, len(parts)):
            used = sum(own if isinstance(own, int) else len(own) for own in devices)
            for size in instance.microbatch_sizes:
                for counts in product(range(1, instance.minibatch // size + 1), repeat=len(parts)):
                    most = instance.minibatch // size
                    if any(counts[u] < min(counts[v] + 1, most) for u, v in edges):
                        continue
                    stages = [
                        {
                            "nodes": [names[node] for node in part],
                            "devices": own,
                            "microbatch": size,
                            "in_flight": count * size,
                        }
                        for part, own, count in zip(parts, devices, counts, strict=True)
                    ]
                    yield {"stages": stages, "edges": edges, "idle_devices": instance.num_devices - used}


def _is_acyclic(count: int, edges: list[list[int]]) -> bool:
    left = set(range(count))
    while left:
        free = {stage for stage in left if not any(v == stage and u in left for u, v in edges)}
        if not free:
            return False
        left -= free
    return True


def _devices(instance: StageGraph, parts: int) -> Iterator[tuple[Any, ...]]:
    """Numbers of devices of so many stages, or, on a device graph, which ones."""
    for counts in shares(parts, instance.num_devices):
        if instance.device_graph is None:
            yield counts
            continue
        found = set()
        for order in permutations(range(instance.num_devices), sum(counts)):
            ends = [sum(counts[: number + 1]) for number in range(parts)]
            found.add(tuple(tuple(sorted(order[end - n : end])) for end, n in zip(ends, counts, strict=True)))
        yield from ([list(own) for own in dealt] for dealt in sorted(found))
