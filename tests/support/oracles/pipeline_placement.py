"""Random placements and brute force over both phases together; shares no code with the room."""

import random
from collections.abc import Iterator
from itertools import pairwise, permutations, product
from typing import Any

from oracles.operator_partitioning import ROUNDING, stage_memory

from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor, in_topological_order
from instances.problems.pipeline_placement import PlacementInstance, place_on


def random_instance(rng: random.Random, stages: int, replicas: int, objective: str) -> PlacementInstance:
    """A few operators and tensors, and links of a few speeds."""
    count = rng.randint(stages, 5)
    operators = [Operator(v, rng.randint(1, 9) * 1.0, rng.choice([0.0, 4.0, 9.0])) for v in range(count)]
    tensors = []
    for v in range(count - 1):
        later = rng.sample(range(v + 1, count), rng.randint(1, min(2, count - v - 1)))
        tensors.append(Tensor(v, tuple(sorted(later)), rng.randint(0, 12) * 1.0))
    known, sent = in_topological_order(operators, tensors)
    graph = OperatorInstance("random", known, sent, num_stages=stages, replicas=replicas, bandwidth_bytes_per_s=2.0)
    devices = stages * replicas
    speeds = {(d, e): rng.choice([0.5, 1.0, 2.0, 4.0]) for d in range(devices) for e in range(d)}
    matrix = tuple(
        tuple(0.0 if d == e else speeds[max(d, e), min(d, e)] for e in range(devices)) for d in range(devices)
    )
    return place_on(graph, matrix, objective=objective)


def price(instance: PlacementInstance, home: tuple[int, ...], device: dict[tuple[int, int], int]) -> float:
    """The slowest stage replica, once more."""
    graph, R, B = instance.operators, instance.operators.replicas, instance.bandwidth_bytes_per_s
    worst, times, rings = 0, {}, [0]
    for (stage, replica), here in device.items():
        total = sum(o.compute_s for v, o in enumerate(graph.operators) if home[v] == stage)
        if instance.objective != "allreduce":
            for tensor in graph.tensors:
                ends = {home[v] for v in tensor.targets} - {home[tensor.source]}
                for end in ends:
                    if stage in (end, home[tensor.source]):
                        other = end if stage == home[tensor.source] else home[tensor.source]
                        total += tensor.volume_bytes / B[here][device[other, replica]]
        times[stage, replica] = total
        if instance.objective != "p2p" and R > 1:
            ring = [device[stage, r] for r in range(R)]
            slowest = min(B[a][b] for a, b in pairwise([*ring, ring[0]]))
            held = sum(o.parameter_bytes for v, o in enumerate(graph.operators) if home[v] == stage)
            rings.append(2 * (R - 1) * held / R / slowest)
            total += rings[-1]
        worst = max(worst, total)
    return step(instance, home, times) + max(rings) if instance.objective == "step" else worst


def step(instance: PlacementInstance, home: tuple[int, ...], times: dict[tuple[int, int], float]) -> float:
    """The slowest replica: its longest chain of stages, and the slowest of them for all other micro-batches."""
    fed = {(home[t.source], home[v]) for t in instance.operators.tensors for v in t.targets}

    def longest(stage: int, replica: int) -> float:
        behind = [longest(after, replica) for before, after in fed if before == stage != after]
        return times[stage, replica] + max(behind, default=0)

    return max(
        max(longest(stage, replica) for stage in range(instance.num_stages))
        + (instance.microbatches - 1) * max(times[stage, replica] for stage in range(instance.num_stages))
        for replica in range(instance.operators.replicas)
    )


def optimum(instance: PlacementInstance) -> float:
    """The least price over every partition and every mapping."""
    graph, stages = instance.operators, instance.num_stages
    nodes = [(s, r) for s in range(stages) for r in range(graph.replicas)]
    best = float("inf")
    for home in product(range(stages), repeat=len(graph.operators)):
        if len(set(home)) < stages or any(home[t.source] > home[v] for t in graph.tensors for v in t.targets):
            continue
        needs = [stage_memory(graph, home, stage, stages) for stage in range(stages)]
        room = (graph.memory_bytes or 0.0) * (graph.replicas if graph.pooled_memory else 1)
        if graph.memory_bytes is not None and max(needs) > room * (1 + ROUNDING):
            continue
        for devices in permutations(range(len(nodes))):
            best = min(best, price(instance, home, dict(zip(nodes, devices, strict=True))))
    return best


def plans(instance: PlacementInstance) -> Iterator[dict[str, Any]]:
    """Every partition with every mapping, in JSON form."""
    graph, stages, replicas = instance.operators, instance.num_stages, instance.operators.replicas
    for home in product(range(stages), repeat=len(graph.operators)):
        if len(set(home)) < stages or any(home[t.source] > home[v] for t in graph.tensors for v in t.targets):
            continue
        members = [[o.id for v, o in enumerate(graph.operators) if home[v] == s] for s in range(stages)]
        for devices in permutations(range(stages * replicas)):
            rows = [list(devices[s * replicas : (s + 1) * replicas]) for s in range(stages)]
            yield {"partition": {"stages": members, "replicas": [replicas] * stages}, "mapping": {"devices": rows}}
