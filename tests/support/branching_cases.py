"""Random branching models, and every partition of the small ones: a witness that shares no search with the methods."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from instances.problems.stage_graph import AffineTime, Operator, OperatorEdge, Shard, StageGraph, TableTime

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
        f"random-{seed}", made, edges, devices, float(int(whole * rng.uniform(0.25, 1.2))), rng.choice((5.0, 50.0)),
        rng.choice((0.0, 0.05)), rng.choice((4, 6, 8)),
    )  # fmt: skip


def uneven_graph(seed: int, operators: tuple[int, int]) -> StageGraph:
    """A random instance with an odd mini-batch, and the memory that some uneven replicas take, or a byte less."""
    rng = random.Random(f"uneven {seed}")
    instance = random_graph(seed, operators, rng.randint(2, 5), series_parallel=bool(seed % 2))
    made = tuple(replace(each, weight_bytes=rng.choice((0.0, 0.0, 1.0))) for each in instance.operators)
    instance = replace(instance, operators=made, minibatch=rng.choice((3, 5, 9, 15)), bandwidth_bytes_per_s=50.0)
    cut = rng.randint(1, len(made))
    part = list(range(cut)) if rng.random() < 0.5 else list(range(len(made) - cut, len(made)))
    size = rng.choice([size for size in instance.microbatch_sizes if size > 1])
    devices = rng.randint(2, instance.num_devices)
    memory = stage_bytes(instance, part, size, devices, rng.choice((1, 1, 2)))
    return replace(instance, memory_bytes=memory - rng.choice((0.0, 0.0, 1.0)))


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


def depths(count: int, edges: set[tuple[int, int]]) -> list[int] | None:
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
    """The optimum with one micro-batch size, over all partitions, devices and sizes; ``inf`` if there is no plan.

    Written from the formulas in the room's README, with none of its code.
    """
    return min(slowest_of_all(instance, stage_s), default=math.inf)


def slowest_of_all(instance: StageGraph, price: Callable[..., Any]) -> Iterator[Any]:
    """The largest price of a stage in each partition, with each size and any devices."""
    for parts in partitions(list(range(instance.num_operators))):
        place = {node: number for number, part in enumerate(parts) for node in part}
        ends = {(place[edge.source], place[edge.target]) for edge in instance.edges}
        deep = depths(len(parts), {(u, v) for u, v in ends if u != v})
        if deep is None or len(parts) > instance.num_devices:
            continue
        for size in instance.microbatch_sizes:
            each = [
                [price(instance, part, size, devices, depth) for devices in range(1, instance.num_devices + 1)]
                for part, depth in zip(parts, deep, strict=True)
            ]
            for devices in shares(len(parts), instance.num_devices):
                yield max(row[own - 1] for row, own in zip(each, devices, strict=True))


def stage_s(instance: StageGraph, part: list[int], size: int, devices: int, depth: int) -> float:
    """Seconds per sample of a stage, however many of its devices share a replica.

    ``inf`` if a replica has no sample, an operator does not declare the degree, or the stage does not fit.
    """
    found = math.inf
    for t in tp_degrees(instance, part, devices):
        r = devices // t
        if r <= size and stage_bytes(instance, part, size, r, depth, t) <= instance.memory_bytes:
            taken = (
                sum(passes_s(instance, part, size, r, t)) / size + reduce_s(instance, part, r, t) / instance.minibatch
            )
            found = min(found, taken)
    return found


def tp_degrees(instance: StageGraph, part: list[int], devices: int) -> list[int]:
    """In how many devices the replicas of a stage with so many can be."""
    return [
        t
        for t in range(1, devices + 1)
        if devices % t == 0 and all(t in instance.operators[node].shards for node in part)
    ]


def passes_s(instance: StageGraph, part: list[int], size: int, r: int, t: int = 1) -> tuple[float, float]:
    """Seconds of a stage's forward and of its backward pass of a micro-batch; t devices share each of r replicas."""
    own = {node: instance.operators[node].shards[t] for node in part}
    samples = len(range(0, size, r))
    left = [e.bytes_per_sample * (1 + own[e.source].spread_outputs)
            for e in instance.edges if e.source in own and e.target not in own]  # fmt: skip
    entered = [e.bytes_per_sample * (1 + own[e.target].spread_inputs)
               for e in instance.edges if e.target in own and e.source not in own]  # fmt: skip
    crossing = left + entered
    moved = sum(crossing) * samples / instance.bandwidth_bytes_per_s + len(crossing) * instance.latency_s
    for volume in (each.reduced_bytes for each in own.values() if each.reduced_bytes):
        moved += 2 * (t - 1) / t * volume * samples / instance.reduce_bandwidth(t) + 2 * t * instance.latency_s
    return (
        sum(each.forward.at(samples) for each in own.values()) + moved,
        sum(each.backward.at(samples) for each in own.values()) + moved,
    )


def reduce_s(instance: StageGraph, part: list[int], r: int, t: int = 1) -> float:
    """Seconds of a stage's all-reduce, of each of t parts among r replicas."""
    if r == 1:
        return 0.0
    weights = sum(instance.operators[node].shards[t].weight_bytes for node in part)
    return 2 * (r - 1) / r * weights / instance.reduce_bandwidth(r * t) + 2 * r * instance.latency_s


def with_shards(rng: random.Random, instance: StageGraph) -> StageGraph:
    """The instance with tensor-parallel degrees of most operators, at which they take less or a little more."""

    def of(time: AffineTime | TableTime, t: int) -> AffineTime | TableTime:
        if isinstance(time, TableTime):
            return replace(time, seconds=tuple(each / t for each in time.seconds))
        return AffineTime(time.fixed_s * rng.uniform(0.3, 1), time.per_sample_s * rng.uniform(0.2, 1.1))

    def shard(operator: Operator, t: int) -> Shard:
        weights, kept = operator.weight_bytes, operator.activation_bytes
        return Shard(
            t, of(operator.forward, t), of(operator.backward, t), rng.choice((weights / t, weights)),
            rng.choice((kept, kept / 2)), rng.choice((0.0, 0.0, 1.0, 5.0)), rng.choice((0.0, 0.5, 1.0, 20.0)),
            rng.choice((0.0, 0.5, 1.0)),
        )  # fmt: skip

    made = (
        replace(each, tensor_parallel=tuple(shard(each, t) for t in (2, 3, 4) if rng.random() < 0.7))
        for each in instance.operators
    )
    return replace(instance, operators=tuple(made))


def iteration_graph(rng: random.Random) -> StageGraph:
    """A tiny instance for the iteration: any graph, or equal chains side by side; a third has whole times and zeros.

    A third has nodes whose devices reduce over another network, quicker or slower than that between nodes.
    """
    is_whole = rng.random() < 0.3

    def operator() -> Operator:
        forward, backward = (AffineTime(float(rng.choice((0, 0, 1))), float(rng.randint(0, 3))) for _ in range(2))
        found = random_operator(rng, "operator")
        return replace(found, forward=forward, backward=backward) if is_whole else found

    found = random_graph(rng.randrange(2**32), (1, 4), rng.randint(1, 4), series_parallel=rng.random() < 0.5)
    made, edges = [operator() for _ in found.operators], found.edges
    if rng.random() < 0.5:
        chains, length, tail = rng.choice([(2, 1, 0), (2, 1, 1), (2, 2, 0), (3, 1, 1), (3, 1, 0), (4, 1, 0), (2, 1, 2)])
        first, sent = chains * length, rng.choice((0.0, 1.0, 5.0))
        made = [operator() for _ in range(length)] * chains + [operator() for _ in range(tail)]
        pairs = [(v, v + 1) for v in range(first + max(0, tail - 1)) if v >= first or (v + 1) % length]
        pairs += [(chain * length + length - 1, first) for chain in range(chains) if tail]
        turns = [chain for chain in range(chains) for _ in range(length)]
        random.Random(repr(made)).shuffle(turns)  # equal chains begin and end anywhere among each other
        places = [[at for at, own in enumerate(turns) if own == chain] for chain in range(chains)]
        number = [at for own in places for at in own] + list(range(first, len(made)))
        edges = tuple(OperatorEdge(u, v, sent) for u, v in sorted((number[u], number[v]) for u, v in pairs))
        made = [made[number.index(v)] for v in range(len(made))]
    whole = sum(4 * (each.weight_bytes + each.activation_bytes) for each in made)
    if rng.random() < 0.3:
        tier = {"devices_per_node": rng.randint(1, 3), "inner_bandwidth_bytes_per_s": rng.choice((1.0, 50.0, 500.0))}
        found = replace(found, **tier)
    return replace(
        found, operators=tuple(made), edges=edges, minibatch=rng.choice((1, 2, 3, 4, 4)), objective="iteration",
        memory_bytes=float(int(whole * rng.uniform(0.3, 1.2))), bandwidth_bytes_per_s=rng.choice((5.0, 50.0)),
    )  # fmt: skip


def stage_bytes(instance: StageGraph, part: list[int], size: int, r: int, depth: int, t: int = 1) -> float:
    """Bytes on a device of the first of a stage's replicas, which t devices share.

    Each micro-batch is dealt out to the replicas one sample after another: the first one has most.
    """
    own = {node: instance.operators[node].shards[t] for node in part}
    weights = math.fsum(each.weight_bytes for each in own.values())
    incoming = [e.bytes_per_sample for e in instance.edges if e.target in own and e.source not in own]
    kept = math.fsum([*(each.activation_bytes for each in own.values()), *incoming])
    microbatches = min(depth, instance.minibatch // size)
    return instance.weight_copies * weights + microbatches * len(range(0, size, r)) * kept


def seconds(time: AffineTime | TableTime, n: int) -> Fraction:
    if isinstance(time, AffineTime):
        return Fraction(time.fixed_s) + Fraction(time.per_sample_s) * n
    points = [(m, Fraction(t)) for m, t in zip(time.samples, time.seconds, strict=True)]
    below, above = [p for p in points if p[0] <= n], [p for p in points if p[0] >= n]
    if not below:
        return points[0][1]
    if not above:
        return points[-1][1] * n / points[-1][0]
    (low, early), (high, late) = below[-1], above[0]
    return early if low == high else early + (late - early) * Fraction(n - low, high - low)


def stage(instance: StageGraph, part: list[int], size: int, r: int, depth: int) -> Fraction | float:
    """The exact TPS of a stage; infinite if it does not fit or a replica has no sample."""
    n, inside = math.ceil(size / r), set(part)
    crossing = [e for e in instance.edges if (e.source in inside) is not (e.target in inside)]
    weights = sum(Fraction(instance.operators[v].weight_bytes) for v in part)
    if r > size or stage_bytes(instance, part, size, r, depth) > instance.memory_bytes:
        return math.inf
    B, latency = Fraction(instance.bandwidth_bytes_per_s), Fraction(instance.latency_s)
    step = sum(seconds(instance.operators[v].forward, n) + seconds(instance.operators[v].backward, n) for v in part)
    step += 2 * sum(latency + Fraction(e.bytes_per_sample) * n / B for e in crossing)
    near = instance.inner_bandwidth_bytes_per_s is not None and r <= (instance.devices_per_node or 0)
    ring = Fraction(instance.inner_bandwidth_bytes_per_s or 1) if near else B
    reduce = 2 * Fraction(r - 1, r) * weights / ring + 2 * r * latency if r > 1 else 0
    return step / size + Fraction(reduce) / instance.minibatch


def prices(instance: StageGraph) -> list[Fraction]:
    """Those of all plans, rising."""
    return sorted(set(slowest_of_all(instance, stage)) - {math.inf})
