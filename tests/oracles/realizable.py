"""Brute force over what a trainer can run, and the random chains it is tried on; shares no code with the rooms."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, product

from oracles.stage_partitioning import BruteForce

from instances.stage_partitioning import CostModel, Edge, Layer, StageInstance, Tmpc


@dataclass(frozen=True)
class Planted:
    """An instance, its units from the input side on (node ids that stand together), and which of them are layers."""

    instance: StageInstance
    units: tuple[tuple[int, ...], ...]
    is_layer: tuple[bool, ...]


def planted(seed: int) -> Planted:
    """A random chain of units: two parallel nodes in front at times, edges that skip, choices of recomputation."""
    rng = random.Random(f"realizable {seed}")
    units: list[tuple[int, ...]] = [(0, 1)] if rng.random() < 0.4 else [(0,)]
    while len(units) < rng.randint(2, 5):
        units.append((units[-1][-1] + 1,))
    with_roles = rng.random() < 0.6
    if with_roles:
        ends = rng.randint(0, 1) if len(units) > 2 else 0
        is_layer = [False, *[True] * (len(units) - 1 - ends), *[False] * ends]
    else:
        units = [unit[:1] for unit in units]
        is_layer = [True] * len(units)
    ids = [node for unit in units for node in unit]
    edges = [(u, v) for one, other in pairwise(units) for u in one for v in other]
    order = {node: place for place, unit in enumerate(units) for node in unit}
    edges += [(u, v) for u, v in combinations(ids, 2) if order[v] - order[u] > 1 and rng.random() < 0.2]
    degrees = rng.sample([1, 2, 3, 4], rng.randint(1, 3))
    layers = []
    for node in ids:
        counts = is_layer[order[node]]
        role = ("decoder" if counts else "embedding" if order[node] == 0 else "head") if with_roles else ""
        tmpcs = {t: _tmpcs(rng, node, edges) for t in degrees if rng.random() < 0.9} or {1: _tmpcs(rng, node, edges)}
        layers.append(Layer(node, tmpcs, role=role))
    rng.shuffle(layers)
    K = rng.choice([1, 2, 3, 4, 4, 6, 8])
    instance = StageInstance(
        f"planted-{seed}",
        tuple(layers),
        tuple(Edge(u, v, rng.randint(0, 6)) for u, v in edges),
        num_devices=K,
        memory_bytes=rng.choice([15, 25, 40, 60, 1000]),
        bandwidth=float(rng.choice([1, 2, 8])),
        num_microbatches=rng.choice([2, 4, 6, 12]),
        cost_model=rng.choice(list(CostModel)),
        exactly=rng.random() < 0.15,
        max_dp_degree=rng.choice([None, None, None, 2]),
    )
    return Planted(instance, tuple(units), tuple(is_layer))


def _tmpcs(rng: random.Random, node: int, edges: list[tuple[int, int]]) -> tuple[Tmpc, ...]:
    def one(name: str, slower: int, lighter: int) -> Tmpc:
        return Tmpc(
            name,
            max(1, rng.randint(1, 12) + slower),
            rng.randint(0, 5),
            max(0, rng.randint(0, 8) - lighter),
            rng.randint(0, 6),
            {u: rng.randint(0, 3) for u, v in edges if v == node and rng.random() < 0.4},
            {v: rng.randint(0, 3) for u, v in edges if u == node and rng.random() < 0.4},
        )

    found = [one("keep", 0, 0), one("recompute", rng.randint(-2, 6), 4)]
    kept = rng.choices([found, found[:1], found[1:]], [8, 2, 1])[0]
    return tuple(kept if rng.random() < 0.95 else [*kept, one("other", 0, 0)])


def best(planted: Planted, trainer: str) -> float | None:
    """Least time over degrees, cuts and recomputation that the trainer can run on all devices; ``None``: none fits."""
    return min((time for time, _ in plans(planted, trainer)), default=None)


def plans(planted: Planted, trainer: str) -> Iterator[tuple[float, list[tuple[tuple[int, ...], int, int, dict]]]]:
    """Every such plan that fits, with its time: stages of (nodes, d, t, TMPC ids)."""
    instance, walk = planted.instance, BruteForce(planted.instance)
    N, K = instance.num_microbatches, instance.num_devices
    units = list(zip(planted.units, planted.is_layer, strict=True))
    if trainer == "megatron":  # the ends are whole
        front = [unit for unit, layer in units if not layer and unit < units[-1][0]]
        assert len(front) <= 1
    for t, d in product(range(1, K + 1), range(1, K + 1)):
        stages = K // (t * d)
        if stages * t * d != K or stages > len(units) or stages * d > N or (instance.exactly and stages * d != N):
            continue
        if (instance.cost_model == "released" and N % d) or d > (instance.max_dp_degree or d):
            continue
        if any(_indistinct(walk.tmpcs[node].get(t, ())) for unit in planted.units for node in unit):
            continue
        for ends in combinations(range(1, len(units)), stages - 1):
            bounds = [0, *ends, len(units)]
            cut = [units[a:b] for a, b in pairwise(bounds)]
            for flags in _rules(cut, trainer):
                found = _priced(walk, cut, flags, d, t)
                if found is not None:
                    yield found


def _indistinct(tmpcs: tuple[Tmpc, ...]) -> bool:
    return not tmpcs or len({"recomp" in x.id for x in tmpcs}) < len(tmpcs)


def _rules(cut: list, trainer: str) -> Iterator[list[list[bool]]]:
    """Flags of recomputation for each unit of each stage."""
    if trainer == "deepspeed":
        for flat in product([False, True], repeat=sum(map(len, cut))):
            rest = list(flat)
            yield [[rest.pop(0) for _ in stage] for stage in cut]
        return
    most = sum(layer for stage in cut for _, layer in stage)
    for n in range(most + 1) if trainer == "megatron" else (0, most):
        rows = []
        for stage in cut:
            left, row = n, []
            for _, layer in stage:
                row.append(layer and left > 0)
                left -= layer
            rows.append(row)
        yield rows


def _priced(walk: BruteForce, cut: list, flags: list[list[bool]], d: int, t: int):
    times, stages = [], []
    for place, (stage, row) in enumerate(zip(cut, flags, strict=True)):
        chosen = {}
        for (unit, layer), flag in zip(stage, row, strict=True):
            choosing = [node for node in unit if len(walk.tmpcs[node][t]) > 1]
            if not choosing and flag != (layer and "recomp" in walk.tmpcs[unit[0]][t][0].id):
                return None  # it has no choice
            for node in unit:
                options = walk.tmpcs[node][t]
                chosen[node] = (
                    options[0] if len(options) == 1 else next(x for x in options if ("recomp" in x.id) == flag)
                )
        held = len(cut) - place
        memory = sum(x.activation_bytes * held + x.static_bytes for x in chosen.values())
        if memory > walk.instance.memory_bytes:
            return None
        inside = frozenset(chosen)
        times.append(sum(walk._share(inside, node, x, d) for node, x in chosen.items()))
        stages.append((tuple(chosen), d, t, {node: x.id for node, x in chosen.items()}))
    return max(times), stages
