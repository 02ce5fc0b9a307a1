"""Brute force over what a trainer can run, and the random chains it is tried on; shares no code with the rooms."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, product

from oracles.stage_partitioning import BruteForce

from instances.problems.stage_partitioning import CostModel, Edge, Layer, StageInstance, Tmpc

#: Trainers that take what is in front of the layers, and what is behind them, whole; those for inference, which
#: recompute nothing.
WHOLE_ENDS, SERVING = ("megatron", "galvatron", "vllm", "sglang"), ("vllm", "sglang", "accelerate")


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
    front = behind = 0
    if with_roles:
        front = rng.randint(1, 2) if len(units) > 2 else 1
        behind = rng.randint(0, len(units) - front - 1)
        is_layer = [front <= place < len(units) - behind for place in range(len(units))]
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
        role = ("decoder" if counts else "embedding" if order[node] < front else "head") if with_roles else ""
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
        cost_model=rng.choice([CostModel.PAPER, CostModel.RELEASED]),
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
    if trainer in WHOLE_ENDS:
        units = _with_whole_ends(units)
    for t, d in product(range(1, K + 1), range(1, K + 1)):
        stages = K // (t * d)
        if stages * t * d != K or stages > len(units) or stages * d > N or (instance.exactly and stages * d != N):
            continue
        if (instance.cost_model != "paper" and N % d) or d > (instance.max_dp_degree or d):
            continue
        if trainer == "accelerate" and t * d > 1:
            continue
        if any(not walk.tmpcs[node].get(t) for unit in planted.units for node in unit):
            continue
        if trainer not in SERVING and any(
            _indistinct(walk.tmpcs[node].get(t, ())) for unit in planted.units for node in unit
        ):
            continue
        for ends in combinations(range(1, len(units)), stages - 1):
            bounds = [0, *ends, len(units)]
            cut = [units[a:b] for a, b in pairwise(bounds)]
            if trainer == "galvatron" and not all(any(layer for _, layer in stage) for stage in cut):
                continue
            choices = _any(walk, cut, t) if trainer in SERVING else _ruled(walk, cut, trainer, t)
            yield from (found for found in (_priced(walk, cut, chosen, d, t) for chosen in choices) if found)


def _indistinct(tmpcs: tuple[Tmpc, ...]) -> bool:
    return not tmpcs or len({"recomp" in x.id for x in tmpcs}) < len(tmpcs)


def _with_whole_ends(units: list) -> list:
    first = next(place for place, (_, layer) in enumerate(units) if layer)
    last = len(units) - next(place for place, (_, layer) in enumerate(reversed(units)) if layer)
    ends = [tuple(node for unit, _ in part for node in unit) for part in (units[:first], units[last:])]
    return [*[(ends[0], False)] * bool(ends[0]), *units[first:last], *[(ends[1], False)] * bool(ends[1])]


def _any(walk: BruteForce, cut: list, t: int) -> Iterator[dict]:
    """All choices of TMPCs that do not recompute."""
    nodes = [node for stage in cut for unit, _ in stage for node in unit]
    for chosen in product(*([x for x in walk.tmpcs[node][t] if "recomp" not in x.id] for node in nodes)):
        yield dict(zip(nodes, chosen, strict=True))


def _ruled(walk: BruteForce, cut: list, trainer: str, t: int) -> Iterator[dict]:
    """The choices that the trainer's rule of recomputation leaves."""
    for flags in _rules(cut, trainer):
        chosen = {}
        for stage, row in zip(cut, flags, strict=True):
            for (unit, layer), flag in zip(stage, row, strict=True):
                choosing = [node for node in unit if len(walk.tmpcs[node][t]) > 1]
                if not choosing and flag != (layer and "recomp" in walk.tmpcs[unit[0]][t][0].id):
                    break  # it has no choice
                for node in unit:
                    options = walk.tmpcs[node][t]
                    wanted = (x for x in options if len(options) == 1 or ("recomp" in x.id) == flag)
                    chosen[node] = next(wanted)
            else:
                continue
            break
        else:
            yield chosen


def _rules(cut: list, trainer: str) -> Iterator[list[list[bool]]]:
    """Flags of recomputation for each unit of each stage."""
    if trainer in ("deepspeed", "torch", "galvatron"):
        layers_only = trainer == "galvatron"
        free = [layer or not layers_only for stage in cut for _, layer in stage]
        for flat in product(*([False, True] if is_free else [False] for is_free in free)):
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


def _priced(walk: BruteForce, cut: list, chosen: dict, d: int, t: int):
    times, stages = [], []
    for place, stage in enumerate(cut):
        nodes = [node for unit, _ in stage for node in unit]
        held = len(cut) - place
        if (
            sum(chosen[node].activation_bytes * held + chosen[node].static_bytes for node in nodes)
            > walk.instance.memory_bytes
        ):
            return None
        times.append(sum(walk._share(frozenset(nodes), node, chosen[node], d) for node in nodes))
        stages.append((tuple(nodes), d, t, {node: chosen[node].id for node in nodes}))
    return max(times), stages
