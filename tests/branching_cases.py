"""Random branching models, and every partition of the small ones: a witness that shares no search with the methods."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace

from formulations.stage_graph.problem import Stage, StagePlan, data_edges, evaluate, violations
from instances.stage_graph import AffineTime, Operator, OperatorEdge, StageGraph, TableTime

Pairs = list[tuple[int, int]]


def random_operator(rng: random.Random, name: str) -> Operator:
    """Backward passes take twice as long; a fifth of the times are tables."""
    forward: AffineTime | TableTime = AffineTime(rng.uniform(0, 0.5), rng.uniform(0.5, 2))
    backward: AffineTime | TableTime = AffineTime(rng.uniform(0, 1), rng.uniform(1, 4))
    if rng.random() < 0.2:
        once = rng.uniform(1, 3)
        forward = TableTime((1, 2, 4), (once, 1.7 * once, 3 * once))
    return Operator(name, forward, backward, rng.choice((0.0, 5.0, 20.0)), float(rng.randint(1, 10)))


def series_parallel_edges(rng: random.Random, nodes: list[int]) -> tuple[Pairs, list[int], list[int]]:
    """Edges, sources and sinks of a random series-parallel order."""
    if len(nodes) == 1:
        return [], nodes, nodes
    cut = rng.randint(1, len(nodes) - 1)
    one, other = series_parallel_edges(rng, nodes[:cut]), series_parallel_edges(rng, nodes[cut:])
    if rng.random() < 0.5:
        return one[0] + other[0], one[1] + other[1], one[2] + other[2]
    return one[0] + other[0] + [(u, v) for u in one[2] for v in other[1]], one[1], other[2]


def random_graph(seed: int, operators: tuple[int, int], devices: int, *, series_parallel: bool) -> StageGraph:
    """A random instance with memory for a quarter of the model up to all of it."""
    rng = random.Random(f"graph {seed} {operators} {devices}")
    count = rng.randint(*operators)
    made = tuple(random_operator(rng, f"operator {node}") for node in range(count))
    if series_parallel:
        pairs = series_parallel_edges(rng, list(range(count)))[0]
    else:
        pairs = [(u, v) for u in range(count) for v in range(u + 1, count) if rng.random() < 2 / count]
    edges = tuple(OperatorEdge(u, v, rng.choice((0.0, 1.0, 5.0))) for u, v in pairs)
    whole = sum(4 * each.weight_bytes + each.activation_bytes for each in made)
    return StageGraph(
        f"random-{seed}",
        made,
        edges,
        devices,
        float(int(whole * rng.uniform(0.25, 1.2))),
        rng.choice((5.0, 50.0)),
        rng.choice((0.0, 0.05)),
        rng.choice((4, 6, 8)),
    )


def partitions(nodes: list[int]) -> Iterator[list[list[int]]]:
    """All partitions of the nodes."""
    if not nodes:
        yield []
        return
    first, rest = nodes[0], nodes[1:]
    for found in partitions(rest):
        for number in range(len(found)):
            yield [*found[:number], [first, *found[number]], *found[number + 1 :]]
        yield [[first], *found]


def shares(parts: int, devices: int) -> Iterator[tuple[int, ...]]:
    """Devices for each of so many stages, at most ``devices`` in all."""
    if not parts:
        yield ()
        return
    for own in range(1, devices - parts + 2):
        for others in shares(parts - 1, devices - own):
            yield (own, *others)


def depths(count: int, edges: tuple[tuple[int, int], ...]) -> list[int] | None:
    """Stages on the longest path from each stage on; ``None`` for a cycle."""
    found = [1] * count
    for _ in range(count + 1):
        deeper = [
            1 + max((found[after] for before, after in edges if before == stage), default=0) for stage in range(count)
        ]
        if deeper == found:
            return found
        found = deeper
    return None


def least_of_all(instance: StageGraph) -> float:
    """The optimum with one micro-batch size, over all partitions, devices and sizes; ``inf`` if there is no plan."""
    best = math.inf
    for parts in partitions(list(range(instance.num_operators))):
        empty = [Stage(tuple(part), 1, 1, 1) for part in parts]
        edges = data_edges(instance, empty)
        deep = depths(len(parts), edges)
        if deep is None or len(parts) > instance.num_devices:
            continue
        for devices in shares(len(parts), instance.num_devices):
            for size in instance.microbatch_sizes:
                flight = [min(instance.minibatch, each * size) for each in deep]
                stages = tuple(
                    replace(stage, devices=own, microbatch=size, in_flight=kept)
                    for stage, own, kept in zip(empty, devices, flight, strict=True)
                )
                plan = StagePlan(stages, edges, instance.num_devices - sum(devices))
                if not violations(instance, plan):
                    best = min(best, evaluate(instance, plan))
    return best
