"""Brute force for tiny hierarchical instances: every plan, priced by formulas of its own (Piper, Appendix E)."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
from oracles.flushed_partitioning import _last_end, _waits
from strategies import random_stage_instance, with_same_weights

from instances.problems.hierarchical_partitioning import (
    HierarchicalInstance,
    Level,
    MemoryModel,
    Objective,
    on_machines,
)
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc


def random_hierarchical(seed: int, **fixed) -> HierarchicalInstance:
    """A random instance of at most four nodes, three machines and three devices each."""
    rng = random.Random(seed)
    given = {"max_nodes": 4, "cost_model": "paper", "exactly": False, "max_dp": False, "max_tmpcs": 3, **fixed}
    flat = random_stage_instance(rng, **given)
    inner = rng.choice([1, 2, 8, 30])
    return on_machines(
        flat, rng.randint(1, 3), rng.randint(1, 3), inner, rng.choice([0.3, 1, 4]), rng.choice(list(MemoryModel))
    )


def same(one: float | None, other: float | None) -> bool:
    """Of two optima; ``None``: there is no plan."""
    return one == other if one is None or other is None else math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


class BruteForce:
    """Walks from the output side: a stage joins the machine that is being filled, or closes it and opens another."""

    def __init__(self, instance: HierarchicalInstance) -> None:
        self.instance, self.flat = instance, instance.flat
        self.nodes = [layer.id for layer in self.flat.layers]
        self.tmpcs = {layer.id: layer.tmpcs for layer in self.flat.layers}
        self.after = {v: {e.target for e in self.flat.edges if e.source == v} for v in self.nodes}
        self.best = math.inf

    def solve(self) -> float | None:
        """The least time, or ``None`` if no plan is feasible."""
        self._extend(frozenset(), 0, 0, frozenset(), 1, self.instance.devices_per_machine, 0.0)
        return None if math.isinf(self.best) else self.best

    def _extend(
        self, done: frozenset, s: int, machines: int, held: frozenset, d2: int, devices: int, time: float
    ) -> None:
        """``held``: what the open superstage on ``d2`` machines (counted in ``machines``) holds in ``devices``."""
        if time >= self.best:
            return
        if len(done) == len(self.nodes):
            self.best = min(self.best, max(time, self._link(held, d2)))
            return
        K1, K2 = self.instance.devices_per_machine, self.instance.num_machines
        for stage in self._last_stages(done):
            for d in range(1, K1 + 1):
                for t in range(1, K1 // d + 1):
                    if held and devices + d * t <= K1:
                        self._add(done, s, machines, held, d2, devices, time, stage, d, t)
                    closed = max(time, self._link(held, d2)) if held else time
                    for m in range(1, K2 - machines + 1):
                        self._add(done, s, machines + m, frozenset(), m, 0, closed, stage, d, t)

    def _add(self, done, s, machines, held, d2, devices, time, stage, d, t) -> None:
        if s + d * d2 > self.flat.num_microbatches:
            return
        own = self._stage(stage, d, d2, t, s + d * d2)
        if own is not None:
            self._extend(done | stage, s + d * d2, machines, held | stage, d2, devices + d * t, max(time, own / d2))

    def _last_stages(self, done: frozenset):
        left = [v for v in self.nodes if v not in done]
        for size in range(1, len(left) + 1):
            for chosen in combinations(left, size):
                if all(self.after[v] <= frozenset(chosen) | done for v in chosen):
                    yield frozenset(chosen)

    def _stage(self, stage: frozenset, d: int, d2: int, t: int, s: int) -> float | None:
        """Least time of a stage inside one of d2 machines, before these share the work."""
        most = min(self.flat.num_microbatches, self.flat.num_devices)
        model = self.instance.memory_model
        flying = math.ceil(s / (d * d2)) if model == "precise" else math.ceil(most / d) if model == "crude" else 0
        limit = math.inf if model == "none" else self.flat.memory_bytes
        best = None
        for choice in product(*(self.tmpcs[v].get(t, ()) for v in sorted(stage, key=str))):
            if sum(x.activation_bytes * flying + x.static_bytes for x in choice) > limit * (1 + 1e-12):
                continue
            time = sum(self._share(stage, v, x, d) for v, x in zip(sorted(stage, key=str), choice, strict=True))
            best = time if best is None else min(best, time)
        return best

    def _share(self, stage: frozenset, v, x, d: int) -> float:
        volume = 4 * x.weight_bytes * (d - 1) / d
        for e in self.flat.edges:
            if e.target == v and e.source not in stage:
                volume += 2 * (e.bytes + x.sync_forward_bytes.get(e.source, 0))
            if e.source == v and e.target not in stage:
                volume += 2 * (e.bytes + x.sync_backward_bytes.get(e.target, 0))
        return (x.time + volume / self.instance.inner_bandwidth) / d

    def _link(self, held: frozenset, d2: int) -> float:
        weights = sum(min(t * x.weight_bytes for t, xs in self.tmpcs[v].items() for x in xs) for v in held)
        crossing = sum(e.bytes for e in self.flat.edges if (e.source in held) ^ (e.target in held))
        return (4 * weights * (d2 - 1) / d2 + 2 * crossing) / d2 / self.instance.outer_bandwidth


def same_weights(instance: HierarchicalInstance) -> HierarchicalInstance:
    """With TMPCs of a node that have the same weights at every t, and an iteration as the objective."""
    return replace(instance, flat=with_same_weights(instance.flat), objective=Objective.ITERATION)


class IterationBruteForce(BruteForce):
    """The least iteration of a batch per sample: every plan with every choice of TMPCs, unless one is slower already.

    No batch is shorter than what the busiest replica of a stage runs.
    """

    def solve(self) -> float | None:
        """The least time, or ``None`` if no plan is feasible."""
        self._put(frozenset(), 0, [])
        return None if math.isinf(self.best) else self.best / self.flat.num_microbatches

    def _put(self, done: frozenset, s: int, made: list) -> None:
        """``made``: superstages from the input side on, each its d_2 and stages (nodes, d_1, t, TMPCs)."""
        if len(done) == len(self.nodes):
            self.best = min(self.best, self._iteration(made))
            return
        K1, K2 = self.instance.devices_per_machine, self.instance.num_machines
        free = K2 - sum(d2 for d2, _ in made)
        for nodes, d, t in product(self._last_stages(done), range(1, K1 + 1), range(1, K1 + 1)):
            for choice in product(*(self.tmpcs[v].get(t, ()) for v in nodes)):
                own = (nodes, d, t, dict(zip(nodes, choice, strict=True)))
                opened = [(d2, [(d2, [own]), *made]) for d2 in range(1, free + 1)]
                joined = [(made[0][0], [(made[0][0], [own, *made[0][1]]), *made[1:]])] if made else []
                for d2, grown in joined + opened:
                    devices = sum(d * t for _, d, t, _ in grown[0][1])
                    fits = devices <= K1 and s + d * d2 <= self.flat.num_microbatches
                    if fits and self._holds(own, d2, s + d * d2) and self._rounds(own, d2) < self.best:
                        self._put(done | nodes, s + d * d2, grown)

    def _rounds(self, own: tuple, d2: int) -> float:
        return len(range(0, self.flat.num_microbatches, own[1] * d2)) * sum(x.time for x in own[3].values())

    def _holds(self, own: tuple, d2: int, s: int) -> bool:
        _, d, _, chosen = own
        model, most = self.instance.memory_model, min(self.flat.num_microbatches, self.flat.num_devices)
        flying = math.ceil(s / (d * d2)) if model == "precise" else math.ceil(most / d)
        held = sum(x.activation_bytes * flying + x.static_bytes for x in chosen.values())
        return model == "none" or held <= self.flat.memory_bytes * (1 + 1e-12)

    def _iteration(self, made: list) -> float:
        times, degrees, home, longest, B1, B2 = [], [], {}, 0.0, self.instance.inner_bandwidth, self.flat.bandwidth
        for d2, stages in made:
            inside = frozenset().union(*(nodes for nodes, *_ in stages))
            whole = sum(min(t * x.weight_bytes for t, xs in self.tmpcs[v].items() for x in xs) for v in inside)
            rings = [0.0]
            for nodes, d, _, chosen in stages:
                home |= dict.fromkeys(nodes, len(times))
                times.append(d * sum(self._share(nodes, v, replace(x, weight_bytes=0), d) for v, x in chosen.items()))
                for e in self.flat.edges:
                    if (e.source in inside) != (e.target in inside) and (e.source in nodes or e.target in nodes):
                        times[-1] += 2 * e.bytes * d / B2
                degrees.append(d * d2)
                rings.append(4 * (d - 1) / d * sum(x.weight_bytes for x in chosen.values()) / B1)
            longest = max(longest, max(rings) + 4 * (d2 - 1) / d2 * whole / B2)
        edges = {(home[e.source], home[e.target]) for e in self.flat.edges} - {(s, s) for s in range(len(times))}
        waits = _waits("1f1b", tuple(degrees), self.flat.num_microbatches, tuple(sorted(edges)))
        return _last_end(*waits, np.array([t / 3 for t in times] + [t * 2 / 3 for t in times])) + longest


class LevelsBruteForce(BruteForce):
    """All plans on any number of levels: the nodes are cut into parts from the input side on, and these inside."""

    def solve(self) -> float | None:
        """The least time, or ``None`` if no plan is feasible."""
        self.counts = [self.instance.devices_per_machine, *(level.count for level in self.instance.levels)]
        self.best = min(map(self._time, self._cut(frozenset(self.nodes), len(self.counts), 1, self.counts[-1])))
        return None if math.isinf(self.best) else self.best

    def _cut(self, held: frozenset, level: int, above: int, free: int) -> Iterator[tuple[tuple, float]]:
        """Every way to run ``held`` on ``free`` devices of a level: stages, and the slowest link of all levels."""
        if not held:
            yield (), 0.0
            return
        for first, d in product(self._first_parts(held), range(1, free + 1)):
            if level == 1:
                heads = [(((first, d, above, t),), 0.0, d * t) for t in range(1, free // d + 1)]
            else:
                link = self._link(first, d) * self.instance.outer_bandwidth / self.instance.levels[level - 2].bandwidth
                inner = self._cut(first, level - 1, above * d, self.counts[level - 2])
                heads = [(stages, max(link / above, worst), d) for stages, worst in inner]
            for stages, worst, taken in heads:
                for rest, other in self._cut(held - first, level, above, free - taken):
                    yield (*stages, *rest), max(worst, other)

    def _first_parts(self, held: frozenset) -> Iterator[frozenset]:
        for size in range(1, len(held) + 1):
            for chosen in combinations(sorted(held, key=str), size):
                if all(u in chosen for u in held if self.after[u] & set(chosen)):
                    yield frozenset(chosen)

    def _time(self, plan: tuple[tuple, float]) -> float:
        stages, worst = plan
        s = 0
        for held, d1, machines, t in reversed(stages):
            s += d1 * machines
            own = self._stage(held, d1, machines, t, s) if s <= self.flat.num_microbatches else None
            if own is None:
                return math.inf
            worst = max(worst, own / machines)
        return worst


def random_levels(seed: int) -> HierarchicalInstance:
    """A random instance of at most three nodes on three levels, or a few on four."""
    rng = random.Random(seed)
    found = tight_graph(seed) if rng.random() < 0.5 else random_hierarchical(seed, max_nodes=3)
    few = found if len(found.flat.layers) <= 3 else random_hierarchical(seed, max_nodes=3)
    counts = [rng.randint(1, 2) for _ in range(2 if rng.random() < 0.15 else 1)]
    upper = tuple(Level(count, rng.choice([0.3, 1.0, 4.0, 50.0])) for count in counts)
    return on_machines(
        few.flat, min(3, few.devices_per_machine), rng.randint(1, 2), few.inner_bandwidth, few.outer_bandwidth,
        few.memory_model, "levels", upper,
    )  # fmt: skip


def plans(instance: HierarchicalInstance) -> Iterator[dict[str, Any]]:
    """Every plan in JSON form, walked over as by `BruteForce`; memory is not looked at."""
    walk, flat = BruteForce(instance), instance.flat
    K1, K2 = instance.devices_per_machine, instance.num_machines

    def extended(done: frozenset, s: int, machines: int, held: int, plan: list[dict[str, Any]]) -> Iterator[Any]:
        if len(done) == len(walk.nodes):
            yield {"stages": plan}
            return
        for stage, d, t in product(walk._last_stages(done), range(1, K1 + 1), range(1, K1 + 1)):
            for choice in product(*(walk.tmpcs[v].get(t, ()) for v in stage)):
                tmpcs = {str(v): x.id for v, x in zip(stage, choice, strict=True)}
                own = {"nodes": list(stage), "dp_degree": d, "tp_degree": t, "tmpcs": tmpcs}
                joined = [{**plan[0], "inner": [own, *plan[0]["inner"]]}, *plan[1:]] if plan else []
                if joined and held + d * t <= K1 and s + d * plan[0]["dp_degree"] <= flat.num_microbatches:
                    yield from extended(done | stage, s + d * plan[0]["dp_degree"], machines, held + d * t, joined)
                for m in range(1, K2 - machines + 1):
                    if d * t <= K1 and s + d * m <= flat.num_microbatches:
                        opened = [{"dp_degree": m, "inner": [own]}, *plan]
                        yield from extended(done | stage, s + d * m, machines + m, d * t, opened)

    return extended(frozenset(), 0, 0, 0, [])


def tight_chain(seed: int) -> HierarchicalInstance:
    """Four to eight nodes, a chain, on machines of up to four devices with little memory: what fits depends on s."""
    rng = random.Random(seed)

    def tmpcs(t: int) -> tuple[Tmpc, ...]:
        a, b, w = (float(rng.randint(low, high)) for low, high in ((1, 4), (0, 3), (0, 3)))
        keep = Tmpc("keep", rng.randint(2, 9) / t, w, a, b)
        recompute = replace(keep, id="recompute", time=1.4 * keep.time, activation_bytes=a / 4)
        return (keep, recompute) if rng.random() < 0.6 else (keep,)

    count = rng.randint(4, 8)
    degrees = [(1, 2) if rng.random() < 0.4 else (1,) for _ in range(count)]
    layers = tuple(Layer(v, {t: tmpcs(t) for t in own}) for v, own in enumerate(degrees))
    edges = tuple(Edge(v, v + 1, float(rng.randint(0, 3))) for v in range(count - 1))
    inner, machines = rng.choice([2, 3, 4]), rng.choice([2, 3])
    memory, microbatches = float(rng.randint(6, 26)), rng.choice([4, 6, 12])
    flat = StageInstance("tight", layers, edges, inner * machines, memory, rng.choice([1.0, 4.0]), microbatches)
    return on_machines(flat, inner, machines, 10.0, 1.0)


def tight_graph(seed: int) -> HierarchicalInstance:
    """Two to six nodes with edges that skip some, and the memory that one stage of a random plan needs to the byte."""
    rng = random.Random(seed)
    count, longest, identical = rng.randint(2, 6), rng.choice([1, 2, 3]), rng.random() < 0.6
    ends = [(u, v) for u in range(count) for v in range(u + 1, min(count, u + longest + 1)) if rng.random() < 0.8]

    def tmpcs(node: int, t: int) -> tuple[Tmpc, ...]:
        def volumes(others: list[int]) -> dict:
            return {other: rng.choice([0, 1, 3]) for other in others if t > 1}

        def shared() -> dict:
            before, after = [u for u, v in ends if v == node], [v for u, v in ends if u == node]
            synchronised = {"sync_forward_bytes": volumes(before), "sync_backward_bytes": volumes(after)}
            return {"weight_bytes": rng.choice([0, 3, 8, 20]), **synchronised}

        a, b = rng.randint(0, 6), rng.randint(0, 4)
        keep = Tmpc("keep", rng.randint(0, 9) / t, activation_bytes=a, static_bytes=b, **shared())
        recompute = replace(keep, id="recompute", time=1.4 * keep.time + 0.2, activation_bytes=a // 3)
        found = (keep, recompute) if rng.random() < 0.6 else (keep,)
        return found if identical else tuple(replace(x, **shared()) for x in found)

    degrees = rng.choice([(1,), (1, 2), (1, 3)])
    layers = [Layer(v, {t: tmpcs(v, t) for t in degrees if t == 1 or rng.random() < 0.7}) for v in range(count)]
    edges = tuple(Edge(u, v, rng.choice([0, 1, 2, 5, 12])) for u, v in ends)
    K1, K2, N = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 16)
    model = rng.choice([MemoryModel.PRECISE, MemoryModel.PRECISE, *MemoryModel])
    memory = min(_needed(rng, layers, K1, K2, N, model) for _ in range(4))
    flat = StageInstance("tight graph", tuple(layers), edges, K1 * K2, memory, 1.0, N)
    return on_machines(flat, K1, K2, rng.choice([0.5, 1, 3, 30]), rng.choice([0.5, 1, 4, 100]), model)


def _needed(rng: random.Random, layers: list[Layer], K1: int, K2: int, N: int, model: MemoryModel) -> float:
    """Bytes of the largest stage of a random plan of the chain at t = 1."""
    most = s = at = 0
    behind = layers[::-1]
    while at < len(behind):
        stage = behind[at : at + rng.randint(1, 3)]
        d1, d2 = rng.choice([(1, 1), (1, 1), (rng.randint(1, K1), rng.randint(1, K2))])
        s, at = min(s + d1 * d2, N, K1 * K2), at + len(stage)
        flying = -(-min(N, K1 * K2) // d1) if model is MemoryModel.CRUDE else -(-s // (d1 * d2))
        chosen = [rng.choice(layer.tmpcs[1]) for layer in stage]
        most = max(most, sum(x.activation_bytes * flying + x.static_bytes for x in chosen))
    return most
