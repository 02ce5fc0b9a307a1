"""Brute force for device mapping; shares no code with the room."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

from instances.problems.device_mapping import DeviceMapping, MappingEdge, MappingStage


def node_seconds(instance: DeviceMapping, device: dict[tuple[int, int], int], stage: int, replica: int) -> float:
    """One node's seconds, once more; ``device[stage, replica]``."""
    R, B = instance.replicas, instance.bandwidth_bytes_per_s
    here = device[stage, replica]
    seconds = instance.stages[stage].compute_s
    if instance.objective in ("p2p", "full"):
        for edge in instance.edges:
            if stage in (edge.source, edge.target):
                other = edge.target if stage == edge.source else edge.source
                seconds += edge.volume_bytes / B[here][device[other, replica]]
    if instance.objective in ("allreduce", "full") and R > 1:
        orders = permutations(range(R)) if instance.ring == "free" else [tuple(range(R))]
        speed = max(
            min(B[device[stage, order[i]]][device[stage, order[(i + 1) % R]]] for i in range(R)) for order in orders
        )
        seconds += 2 * (R - 1) * instance.stages[stage].parameter_bytes / R / speed
    return seconds


def seconds_of(instance: DeviceMapping, device: dict[tuple[int, int], int]) -> float:
    """The slowest node."""
    return max(node_seconds(instance, device, stage, replica) for stage, replica in device)


def mappings(instance: DeviceMapping) -> Iterator[dict[tuple[int, int], int]]:
    """Every way to give the nodes a device each."""
    nodes = [(stage, replica) for stage in range(len(instance.stages)) for replica in range(instance.replicas)]
    for devices in permutations(range(len(nodes))):
        yield dict(zip(nodes, devices, strict=True))


def least_seconds(instance: DeviceMapping) -> float:
    """The optimum."""
    return min(seconds_of(instance, device) for device in mappings(instance))


def random_mapping(
    rng: random.Random, max_devices: int = 6, objective: str | None = None, ring: str | None = None
) -> DeviceMapping:
    """A small instance: any acyclic stage graph, small whole numbers with many ties."""
    shapes = [(s, r) for s in range(1, max_devices + 1) for r in range(1, max_devices // s + 1)]
    num_stages, replicas = rng.choice(shapes)
    density = rng.choice([0.0, 0.4, 1.0])
    edges = [
        MappingEdge(a, b, float(rng.randint(0, 9)))
        for a in range(num_stages)
        for b in range(a + 1, num_stages)
        if b == a + 1 or rng.random() < density
    ]
    rng.shuffle(edges)
    speeds = rng.sample(range(1, 20), rng.choice([1, 2, 3, 8]))
    size = num_stages * replicas
    matrix = [[0.0] * size for _ in range(size)]
    for a in range(size):
        for b in range(a + 1, size):
            matrix[a][b] = matrix[b][a] = float(rng.choice(speeds))
    return DeviceMapping(
        name="random",
        stages=tuple(MappingStage(float(rng.randint(0, 5)), float(rng.randint(0, 30))) for _ in range(num_stages)),
        edges=tuple(edges),
        replicas=replicas,
        bandwidth_bytes_per_s=tuple(tuple(row) for row in matrix),
        objective=objective or rng.choice(["p2p", "allreduce", "full"]),
        ring=ring or rng.choice(["index", "free"]),
    )


def small_mappings(seed: int, cases: int, **given: str) -> Iterator[DeviceMapping]:
    """Random ones; every twelfth may have six devices."""
    rng = random.Random(seed)
    for case in range(cases):
        yield random_mapping(rng, max_devices=5 if case % 12 else 6, **given)


def random_magnitudes(rng: random.Random) -> DeviceMapping:
    """Like `random_mapping`, but with bytes and bandwidths of very small, or of very different sizes."""
    instance = random_mapping(rng, max_devices=5)
    wild = rng.random() < 0.6

    def resized(value: float) -> float:
        return value * (10.0 ** rng.uniform(-3, 9) if wild else 1e-6)

    size = len(instance.bandwidth_bytes_per_s)
    matrix = [[0.0] * size for _ in range(size)]
    for a in range(size):
        for b in range(a + 1, size):
            matrix[a][b] = matrix[b][a] = resized(instance.bandwidth_bytes_per_s[a][b])
    return replace(
        instance,
        stages=tuple(replace(stage, parameter_bytes=resized(stage.parameter_bytes)) for stage in instance.stages),
        edges=tuple(replace(edge, volume_bytes=resized(edge.volume_bytes)) for edge in instance.edges),
        bandwidth_bytes_per_s=tuple(tuple(row) for row in matrix),
    )


def plans(instance: DeviceMapping) -> Iterator[dict[str, list[list[int]]]]:
    """Every mapping, in JSON form."""
    for device in mappings(instance):
        rows = [[device[s, r] for r in range(instance.replicas)] for s in range(len(instance.stages))]
        yield {"devices": rows}
