"""Seeded random stage-partitioning instances, and hypothesis strategies over them.

All numbers are small integers, so that sums are exact and byte limits can be met to the byte.
"""

import random
from dataclasses import replace
from itertools import takewhile
from typing import Any

from hypothesis import strategies as st

from instances.problems.stage_edits import change_tmpcs, linearise
from instances.problems.stage_partitioning import CostModel, Edge, Layer, SharedTensor, StageInstance, Tmpc, check

SHAPES = ("chain", "diamond", "n-shaped", "two-sources", "two-sinks", "random", "empty")
MEMORY = ("planted", "tight", "starved", "ample", "any")


def random_edges(rng: random.Random, shape: str, n: int) -> list[tuple[int, int]]:
    """Edges i -> j with i < j of a graph of this shape on n nodes."""
    chain = [(i, i + 1) for i in range(n - 1)]
    if shape == "chain" or (n < 3 and shape != "empty"):
        return chain
    if shape == "diamond":
        return [(0, i) for i in range(1, n - 1)] + [(i, n - 1) for i in range(1, n - 1)]
    if shape == "n-shaped":  # a -> c, b -> c, b -> d, and a chain behind it
        return [(0, 2), (1, 2), (1, 3)][: 3 if n > 3 else 2] + [(i, i + 1) for i in range(3, n - 1)]
    if shape == "two-sources":
        return [(0, 2), *chain[1:]]
    if shape == "two-sinks":
        return [*chain[:-1], (n - 3, n - 1)]
    if shape == "random":
        density = rng.choice([0.2, 0.4, 0.7])
        return [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < density]
    return []


def with_wide_weights(flat: StageInstance, rng: random.Random, span: int) -> StageInstance:
    """The instance with the weights of each node times up to 10^span, not a whole number of times."""
    layers = []
    for layer in flat.layers:
        factor = 10.0 ** rng.randint(0, span) * rng.choice([1, 0.3, 0.7])
        tmpcs = {
            t: tuple(replace(x, weight_bytes=x.weight_bytes * factor) for x in found)
            for t, found in layer.tmpcs.items()
        }
        layers.append(replace(layer, tmpcs=tmpcs))
    return replace(flat, layers=tuple(layers))


def with_same_weights(flat: StageInstance) -> StageInstance:
    """The instance in which TMPCs of one node and degree differ in all but their weights."""

    def weighted(found: tuple[Tmpc, ...]) -> tuple[Tmpc, ...]:
        return tuple(replace(x, weight_bytes=found[0].weight_bytes) for x in found)

    layers = (replace(each, tmpcs={t: weighted(found) for t, found in each.tmpcs.items()}) for each in flat.layers)
    return replace(flat, layers=tuple(layers))


def with_magnitudes(instance: StageInstance, rng: random.Random) -> StageInstance:
    """The same with a bandwidth, and half of the time with TMPCs' times, of any size."""
    narrow = replace(instance, bandwidth=instance.bandwidth * 10.0 ** rng.uniform(-9, 3))
    if rng.random() < 0.5:
        return narrow
    return change_tmpcs(narrow, lambda x: replace(x, time=x.time * 10.0 ** rng.uniform(-4, 4)))


def random_stage_instance(
    seed: int | random.Random,
    *,
    max_nodes: int = 5,
    max_devices: int = 5,
    max_tmpcs: int = 4,
    shape: str | None = None,
    memory: str | None = None,
    cost_model: str | None = None,
    uniform: bool | None = None,
    exactly: bool | None = None,
    max_dp: bool | None = None,
    ids: str | None = None,
) -> StageInstance:
    """A random instance; what is not given is drawn.

    Parameters
    ----------
    memory
        ``planted``: a drawn plan fits; ``tight``: it fits to the byte; ``starved``: the leanest node does not fit;
        ``ample``: everything fits; ``any``: a random limit.
    uniform
        Whether the TMPCs of one (node, t) share weights and synchronisation volumes.
    ids
        ``int`` (shuffled, with holes) or ``str``.
    """
    rng = seed if isinstance(seed, random.Random) else random.Random(seed)
    n = rng.randint(1, max_nodes)
    edges = random_edges(rng, shape or rng.choice(SHAPES), n)
    kind = ids or rng.choice(["int", "int", "str"])
    names: list[int] | list[str] = (
        rng.sample(range(-3, 3 * n), n) if kind == "int" else rng.sample([f"n{i}" for i in range(3 * n)], n)
    )
    uniform = rng.random() < 0.5 if uniform is None else uniform
    layers = [_layer(rng, v, names, edges, max_tmpcs, uniform) for v in range(n)]
    links = [Edge(names[u], names[v], rng.choice([0, 1, 4, 16])) for u, v in edges]
    num_devices = rng.randint(1, max_devices)
    num_microbatches = rng.choice([1, 2, 3, 4, 5, 6, 8, 12])
    exactly = rng.random() < 0.15 if exactly is None else exactly
    limited = rng.random() < 0.15 if max_dp is None else max_dp
    instance = StageInstance(
        name=f"random-{seed}" if isinstance(seed, int) else "random",
        layers=tuple(layers),
        edges=tuple(links),
        num_devices=num_devices,
        memory_bytes=0,
        bandwidth=rng.choice([1, 2, 8]),
        num_microbatches=num_microbatches,
        cost_model=CostModel(cost_model or rng.choice([CostModel.PAPER, CostModel.RELEASED])),
        exactly=exactly,
        max_dp_degree=rng.randint(1, 3) if limited else None,
    )
    # Nodes in no particular order: nothing may rely on the file's order being topological.
    order = rng.sample(range(n), n)
    instance = replace(instance, layers=tuple(layers[v] for v in order))
    return _with_memory(rng, instance, memory or rng.choice(MEMORY), list(reversed(names)))


def _layer(rng: random.Random, v: int, names: list, edges: list[tuple[int, int]], most: int, uniform: bool) -> Layer:
    degrees = [t for t in (1, 2, 3, 4) if rng.random() < {1: 0.9, 2: 0.6, 3: 0.15, 4: 0.3}[t]] or [rng.choice([1, 2])]
    before, after = [u for u, w in edges if w == v], [w for u, w in edges if u == v]

    def tmpcs(t: int) -> tuple[Tmpc, ...]:
        found = []
        weight, sync_in, sync_out = _shared(rng, names, before, after, t)
        for i in range(rng.randint(1, most)):
            if not uniform:
                weight, sync_in, sync_out = _shared(rng, names, before, after, t)
            a, b = rng.choice([0, 0, 1, 2, 5, 9]), rng.choice([0, 0, 1, 3, 7, 12])
            found.append(Tmpc(f"x{i}", rng.choice([0, 1, 2, 3, 5, 8, 12, 24]), weight, a, b, sync_in, sync_out))
        return tuple(found)

    return Layer(names[v], {t: tmpcs(t) for t in degrees}, rng.choice(["", "layer", f"node {v}"]))


def _shared(rng: random.Random, names: list, before: list[int], after: list[int], t: int) -> tuple[int, dict, dict]:
    def draw() -> int:
        return 0 if t == 1 else rng.choice([0, 1, 3, 6])

    weight = rng.choice([0, 1, 4, 10])
    return weight, {names[u]: draw() for u in before}, {names[w]: draw() for w in after if rng.random() < 0.8}


def _with_memory(rng: random.Random, instance: StageInstance, kind: str, outwards: list) -> StageInstance:
    """Set M, and for a planted plan raise K and N until it fits (``outwards``: nodes from the output side on)."""
    if kind == "any":
        return replace(instance, memory_bytes=rng.randint(0, 60))
    if kind == "ample":
        return replace(instance, memory_bytes=10**6)
    if kind == "starved":
        needs = [
            min(x.activation_bytes + x.static_bytes for tmpcs in layer.tmpcs.values() for x in tmpcs)
            for layer in instance.layers
        ]
        if max(needs) > 0:
            return replace(instance, memory_bytes=max(needs) - 1)
        return replace(instance, memory_bytes=0)
    return _planted(rng, instance, kind == "tight", outwards)


def _planted(rng: random.Random, instance: StageInstance, tight: bool, outwards: list) -> StageInstance:
    layers = {layer.id: layer for layer in instance.layers}
    devices = s = memory = 0
    while outwards:
        t = rng.choice(list(layers[outwards[0]].tmpcs))
        longest = outwards[: rng.randint(1, len(outwards))]
        stage = list(takewhile(lambda node, t=t: t in layers[node].tmpcs, longest))
        outwards = outwards[len(stage) :]
        d = rng.choice([1, 1, 2])
        if instance.cost_model is CostModel.RELEASED and (instance.exactly or instance.num_microbatches % d):
            d = 1
        if instance.max_dp_degree is not None:
            d = min(d, instance.max_dp_degree)
        devices, s = devices + d * t, s + d
        chosen = [rng.choice(layers[node].tmpcs[t]) for node in stage]
        memory = max(memory, sum(x.activation_bytes * -(-s // d) + x.static_bytes for x in chosen))
    n = instance.num_microbatches
    enough = s if instance.exactly else max(n, s)
    if instance.cost_model is CostModel.RELEASED:  # keep the divisors that the plan uses
        enough = -(-enough // 2) * 2 if not instance.exactly else enough
    return replace(
        instance,
        memory_bytes=memory if tight else memory + rng.randint(0, 5),
        num_devices=max(instance.num_devices, devices),
        num_microbatches=enough,
    )


def stage_instances(**fixed) -> st.SearchStrategy[StageInstance]:
    """Random instances by seed; keyword arguments as for ``random_stage_instance``."""
    return st.integers(0, 2**32 - 1).map(lambda seed: random_stage_instance(seed, **fixed))


def with_shared(seed: int) -> StageInstance:
    """A random linear order of up to five layers, some of whose tensors are taken by several of them."""
    rng = random.Random(seed)
    fixed: dict[str, Any] = {"max_devices": 4, "max_tmpcs": 2, "exactly": False, "memory": rng.choice(["ample", "any"])}
    instance = random_stage_instance(rng, shape=rng.choice(["random", "diamond", "n-shaped"]), **fixed)
    layers = []
    for layer in instance.layers:
        found = layer.tmpcs.get(1) or next(iter(layer.tmpcs.values()))
        layers.append(replace(layer, tmpcs={1: found}))
    instance = replace(instance, layers=tuple(layers))
    instance = linearise(instance, "id")
    more, shared = {(edge.source, edge.target): edge.bytes for edge in instance.edges}, []
    for layer in instance.layers:
        takers = [edge.target for edge in instance.edges if edge.source == layer.id]
        for _ in range(rng.randint(0, 2)):
            if len(takers) > 1:
                targets, size = tuple(rng.sample(takers, rng.randint(2, len(takers)))), rng.choice([1, 6, 20])
                shared.append(SharedTensor(layer.id, targets, size))
                for target in targets:
                    more[layer.id, target] += size
    edges = tuple(Edge(*pair, size) for pair, size in more.items())
    made = replace(instance, edges=edges, shared=tuple(shared))
    check(made, "random")
    return made
