"""Every plan of a tiny stage graph with one micro-batch size for all stages, and the shortest iteration of them all.

Shares no code with the problem package, nor with the simulation.
"""

import math
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

from branching_cases import partitions, passes_s, reduce_s, shares, stage_bytes, tp_degrees
from oracles.iteration import iteration_s

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
            counts = [own if isinstance(own, int) else len(own) for own in devices]
            used, shared = sum(counts), map(tp_degrees, [instance] * len(parts), parts, counts)
            degrees = list(product(*shared))
            for size in instance.microbatch_sizes:
                in_flight = product(range(1, instance.minibatch // size + 1), repeat=len(parts))
                for counts, shared in product(in_flight, degrees):
                    most = instance.minibatch // size
                    if any(counts[u] < min(counts[v] + 1, most) for u, v in edges):
                        continue
                    stages = [
                        {
                            "nodes": [names[node] for node in part], "devices": own, "microbatch": size,
                            "in_flight": count * size, "tp_degree": t,
                        }
                        for part, own, count, t in zip(parts, devices, counts, shared, strict=True)
                    ]  # fmt: skip
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


def shortest_iteration(instance: StageGraph) -> float:
    """Seconds of the shortest iteration under 1F1B of all plans that fit; ``inf`` if there is none."""
    best = math.inf
    for plan in plans(instance):
        stages = plan["stages"]
        size, rounds = stages[0]["microbatch"], instance.minibatch // stages[0]["microbatch"]
        parts = [[instance.index[node] for node in stage["nodes"]] for stage in stages]
        counts = [stage["in_flight"] // size for stage in stages]
        degrees = [stage["tp_degree"] for stage in stages]
        replicas = [stage["devices"] // stage["tp_degree"] for stage in stages]
        each = list(zip(parts, replicas, counts, degrees, strict=True))
        held = (stage_bytes(instance, part, size, r, count, t) for part, r, count, t in each)
        if max(replicas) > size or any(own > instance.memory_bytes for own in held):
            continue
        times = [passes_s(instance, part, size, r, t) for part, r, _, t in each]
        reduced = max(reduce_s(instance, part, r, t) for part, r, _, t in each)
        if max(map(sum, times)) * rounds + reduced >= best:  # a stage alone takes as long
            continue
        orders = [_one_f_one_b(stage, count, rounds) for stage, count in enumerate(counts)]
        forward, backward = ([one[kind] for one in times] for kind in range(2))
        seconds = iteration_s(orders, {"F": forward, "B": backward}, [(u, v) for u, v in plan["edges"]], {})
        assert seconds is not None, plan
        best = min(best, seconds + reduced)
    return best


def _one_f_one_b(stage: int, warm_up: int, rounds: int) -> list[tuple[str, int, int]]:
    """Forward passes, then one backward and one forward pass in turn, then backward passes."""
    order = [("F", stage, j) for j in range(warm_up)]
    for j in range(rounds):
        order.append(("B", stage, j))
        if j + warm_up < rounds:
            order.append(("F", stage, j + warm_up))
    return order
