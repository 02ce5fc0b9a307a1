"""Brute force for tiny flushed pipelines: every plan, priced by formulas of its own. Shares no code with the room."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache, lru_cache
from graphlib import TopologicalSorter
from itertools import combinations, count, pairwise, product
from typing import Any

import numpy as np
from numba import njit
from oracles import stage_partitioning
from strategies import random_stage_instance, with_same_weights

from instances.problems.flushed_partitioning import Fill, FlushedInstance, Objective, Schedule, flush_pipeline
from instances.problems.stage_edits import change_tmpcs
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc


def random_flushed(seed: int, *, same_weights: bool = False, fill: str | None = None, **fixed) -> FlushedInstance:
    """A random instance of either fill; ``same_weights``: TMPCs of a node differ in all but their weights."""
    rng = random.Random(seed)
    given = {"max_nodes": 4, "max_devices": 4, "max_tmpcs": 3, "exactly": False, **fixed}
    flat = random_stage_instance(rng, **given)
    if same_weights:
        flat = with_same_weights(flat)
    made = flush_pipeline(flat, rng.choice(list(Schedule)))
    return replace(made, fill=rng.choice(list(Fill)) if fill is None else Fill(fill))


def simulated(seed: int, **fixed) -> FlushedInstance:
    """A random instance whose objective is an iteration, on machines or on one network."""
    rng = random.Random(seed)
    made = on_machines(seed) if rng.random() < 0.1 else random_flushed(seed, same_weights=True, **fixed)
    return replace(made, objective=Objective.ITERATION)


def on_machines(seed: int, **fixed) -> FlushedInstance:
    """A random instance on machines, or on one; a batch is synchronised for about as long as its steps take."""
    rng = random.Random(seed)
    if rng.random() < 0.5:
        return _one_layer_each(rng)
    instance = random_flushed(seed, same_weights=True, **{"max_nodes": 3, "max_tmpcs": 2, **fixed})
    m, K = rng.choice([4, 6, 8]), rng.choice([4, 6])
    flat = change_tmpcs(instance.flat, lambda x: replace(x, weight_bytes=x.weight_bytes * m / 4))
    flat = replace(flat, num_microbatches=m, num_devices=K, bandwidth=rng.choice([1, 4]))
    K1 = rng.choice([size for size in range(1, K + 1) if K % size == 0])
    made = flush_pipeline(flat, instance.schedule, "machines", K1, flat.bandwidth * rng.choice([2, 5, 50]))
    return replace(made, fill=instance.fill)


def _one_layer_each(rng: random.Random) -> FlushedInstance:
    """A chain whose layers have a stage each, as memory has room for one; many stages must straddle two machines."""
    names = "abc"[: rng.randint(2, 3)]
    layers = [
        Layer(
            name,
            {
                t: (Tmpc("x", rng.randint(4, 9) / t, rng.choice([0, 4, 20, 60]), 0, 1),)
                for t in rng.choice([(1,), (1, 2)])
            },
        )
        for name in names
    ]
    edges = tuple(Edge(u, v, 0) for u, v in pairwise(names))
    K1, machines = rng.choice([(3, 2), (2, 3), (4, 2)])
    flat = StageInstance("each", tuple(layers), edges, K1 * machines, 1, 1, rng.choice([8, 12]))
    made = flush_pipeline(flat, rng.choice(list(Schedule)), "machines", K1, rng.choice([2, 5, 50]))
    return replace(made, fill=rng.choice(list(Fill)))


def brute_force(instance: FlushedInstance) -> float | None:
    """Least time per sample of all plans.

    Stages are put in place from the output side on, each replica on any devices behind the others; ``level`` is the
    number of stages on the longest way from a node to the end, or their time on a replica where replicas fill. Only
    plans that are slower than the best one already are cut short.
    """
    flat, m = instance.flat, instance.flat.num_microbatches
    nodes = [layer.id for layer in flat.layers]
    tmpcs = {layer.id: layer.tmpcs for layer in flat.layers}
    best, by_replicas = math.inf, instance.fill == "replicas" or instance.objective == "iteration"

    def total(level: dict, slowest: float, longest: float, made: list) -> float:
        if instance.objective == "iteration":
            # What the busiest replica runs behind its first micro-batch is no more than the iteration.
            is_whole = len(level) == len(nodes)
            return (_iteration(instance, made) if is_whole else slowest) / m + longest
        if by_replicas:
            return (max(level.values(), default=0) + slowest) / m + longest
        return (1 + (max(level.values(), default=1) - 1) / m) * slowest + longest

    def price(stage: tuple, d: int, t: int, s: int):
        flying = math.ceil(m / d) if instance.schedule == "gpipe" else min(math.ceil(s / d), math.ceil(m / d))
        return priced(stage, t, flying), 4 * (d - 1) / d / m

    @cache
    def priced(stage: tuple, t: int, flying: int) -> list[tuple[float, float]]:
        """Time of a micro-batch on a replica, and weights, of all choices that fit."""
        found = []
        for choice in product(*(tmpcs[v].get(t, ()) for v in stage)):
            if sum(x.activation_bytes * flying + x.static_bytes for x in choice) > flat.memory_bytes * (1 + 1e-12):
                continue
            time = sum(x.time for x in choice)
            for v, x in zip(stage, choice, strict=True):
                for e in flat.edges:
                    if e.target == v and e.source not in stage:
                        time += 2 * (e.bytes + x.sync_forward_bytes.get(e.source, 0)) / flat.bandwidth
                    if e.source == v and e.target not in stage:
                        time += 2 * (e.bytes + x.sync_backward_bytes.get(e.target, 0)) / flat.bandwidth
            found.append((time, sum(x.weight_bytes for x in choice)))
        return found

    @cache
    def lying(first: int, d: int, t: int):
        """(device behind the stage, bandwidth of its replicas) for every way to give each replica t devices in turn."""
        if instance.devices_per_machine is None:  # one network: all devices are the same
            return {(first + d * t, flat.bandwidth)}
        K1 = instance.devices_per_machine
        found = set()
        for chosen in combinations(range(first, flat.num_devices - t + 1), d):
            apart = all(b - a >= t for a, b in pairwise(chosen))
            if apart and all(a // K1 == (a + t - 1) // K1 for a in chosen):
                near = len({a // K1 for a in chosen}) == 1 and instance.inner_bandwidth is not None
                found.add((chosen[-1] + t, instance.inner_bandwidth if near else flat.bandwidth))
        return found

    def walk(level: dict, devices: int, s: int, slowest: float, longest: float, made: list) -> None:
        nonlocal best
        time = total(level, slowest, longest, made)
        if time >= best:
            return
        if len(level) == len(nodes):
            best = time
            return
        left = [v for v in nodes if v not in level]
        for size in range(1, len(left) + 1):
            for stage in combinations(left, size):
                if any(e.source in stage and e.target not in level and e.target not in stage for e in flat.edges):
                    continue
                after = [level[e.target] for e in flat.edges if e.source in stage and e.target not in stage]
                for d in range(1, m - s + 1):
                    if (flat.cost_model != "paper" and m % d) or d > (flat.max_dp_degree or d):
                        continue
                    for t in range(1, (flat.num_devices - devices) // d + 1):
                        options, exchanged = price(stage, d, t, s + d)
                        for time, weights in options:
                            volume = weights * exchanged
                            for end, bandwidth in lying(devices, d, t):
                                own = dict.fromkeys(stage, (time if by_replicas else 1) + max(after, default=0))
                                rounds = sum(1 for j in range(d, m) if j % d == 0) * time if by_replicas else time / d
                                now = max(slowest, rounds), max(longest, volume / bandwidth)
                                walk(level | own, end, s + d, *now, [(stage, d, time), *made])

    walk({}, 0, 0, 0.0, 0.0, [])
    return None if math.isinf(best) else best


def iteration_per_sample(instance: FlushedInstance, plan: dict[str, Any]) -> float:
    """Time per sample of a plan in JSON form on one network: its passes in order, and the longest synchronisation."""
    flat, stages, longest = instance.flat, [], 0.0
    layers = {layer.id: layer for layer in flat.layers}
    for stage in plan["stages"]:
        inside, d, t = set(stage["nodes"]), stage["dp_degree"], stage["tp_degree"]
        chosen = {v: next(x for x in layers[v].tmpcs[t] if x.id == stage["tmpcs"][str(v)]) for v in inside}
        sent = [
            e.bytes + chosen[e.target].sync_forward_bytes.get(e.source, 0) for e in flat.edges
            if e.target in inside and e.source not in inside
        ] + [
            e.bytes + chosen[e.source].sync_backward_bytes.get(e.target, 0) for e in flat.edges
            if e.source in inside and e.target not in inside
        ]  # fmt: skip
        stages.append((tuple(inside), d, sum(x.time for x in chosen.values()) + 2 * sum(sent) / flat.bandwidth))
        longest = max(longest, 4 * (d - 1) / d * sum(x.weight_bytes for x in chosen.values()) / flat.bandwidth)
    return (_iteration(instance, stages) + longest) / flat.num_microbatches


def exact_iteration(instance: FlushedInstance, stages: list) -> Fraction:
    """When the last pass of these stages (nodes, d, t) ends, where t are fractions."""
    unit = math.lcm(*(t.denominator for _, _, t in stages))
    return Fraction(_whole_end(*_orders_key(instance, stages), tuple(int(t * unit) for _, _, t in stages)), 3 * unit)


def _orders_key(instance: FlushedInstance, stages: list) -> tuple:
    """What the orders of a plan, and what waits for what, depend on."""
    home = {v: number for number, (nodes, _, _) in enumerate(stages) for v in nodes}
    edges = {(home[e.source], home[e.target]) for e in instance.flat.edges} - {(s, s) for s in range(len(stages))}
    degrees = tuple(d for _, d, _ in stages)
    return str(instance.schedule), degrees, instance.flat.num_microbatches, tuple(sorted(edges))


@lru_cache(100_000)
def _whole_end(schedule: str, degrees: tuple, m: int, edges: tuple, thirds: tuple[int, ...]) -> int:
    """`_last_end` in whole numbers: F takes these of each stage, B twice that."""
    starts, before, kinds = (each.tolist() for each in _waits(schedule, degrees, m, edges))
    own, end = [*thirds, *(2 * each for each in thirds)], list[int]()
    for kind, (low, high) in zip(kinds, pairwise(starts), strict=True):
        end.append(own[kind] + max((end[y] for y in before[low:high]), default=0))
    return max(end)


def _iteration(instance: FlushedInstance, stages: list) -> float:
    """When the last pass of these stages (nodes, d, t) ends."""
    waits = _waits(*_orders_key(instance, stages))
    seconds = np.array([t / 3 for _, _, t in stages] + [t * 2 / 3 for _, _, t in stages])
    return float(_last_end(*waits, seconds))


@njit  # a few lines that thousands of plans run; they know no rule
def _last_end(starts: np.ndarray, before: np.ndarray, kinds: np.ndarray, seconds: np.ndarray) -> float:
    """The longest path where the x-th pass waits for ``before[starts[x]:starts[x + 1]]``, all of them earlier."""
    end, last = np.zeros(len(kinds)), 0.0
    for x in range(len(kinds)):
        for y in range(starts[x], starts[x + 1]):
            end[x] = max(end[x], end[before[y]])
        end[x] += seconds[kinds[x]]
        last = max(last, end[x])
    return last


@cache
def _waits(schedule: str, degrees: tuple[int, ...], m: int, edges: tuple[tuple[int, int], ...]) -> tuple:
    """All passes, each behind those that it waits for, as `_last_end` takes them: kinds are F, then B, by stage."""
    orders = _orders(schedule, degrees, m)
    waits: dict = {act: [] for order in orders for act in order}
    for order in orders:
        for earlier, later in pairwise(order):
            waits[later].append(earlier)
    for kind, s, j in waits:
        if kind == "B":
            waits[kind, s, j].append(("F", s, j))
        for u, v in edges:
            if (kind, s) == ("F", v):
                waits[kind, s, j].append(("F", u, j))
            if (kind, s) == ("B", u):
                waits[kind, s, j].append(("B", v, j))
    place = {act: number for number, act in enumerate(TopologicalSorter(waits).static_order())}
    before = [[place[other] for other in waits[act]] for act in place]
    starts = np.cumsum([0, *map(len, before)])
    kinds = np.array([s + (kind == "B") * len(degrees) for kind, s, _ in place])
    return starts, np.array([x for found in before for x in found], dtype=np.int64), kinds


@cache
def _orders(schedule: str, degrees: tuple[int, ...], m: int) -> list[list[tuple[str, int, int]]]:
    """The order of every replica, written from docs/the-clock.md."""
    own = {(s, r): list(range(r, m, d)) for s, d in enumerate(degrees) for r in range(d)}
    if schedule == "gpipe":
        return [[(kind, s, j) for kind in "FB" for j in found] for (s, _), found in own.items()]
    if len(set(degrees)) == 1:
        return [_warmed(s, found, len(degrees) - 1 - s) for (s, _), found in own.items()]
    # What can start does so, backward passes first, with ceil(s/d) in flight; F takes d, B twice as long.
    orders: dict = {key: [] for key in own}
    busy: dict = {}
    ended: set = set()
    for now in count():
        for key, (end, task) in list(busy.items()):
            if end == now:
                ended.add(task)
                del busy[key]
        if len(ended) == 2 * m * len(degrees):
            return list(orders.values())
        for (s, r), found in own.items():
            if (s, r) in busy:
                continue
            begun = {kind: {j for other, _, j in orders[s, r] if other == kind} for kind in "FB"}
            back = [j for j in found if j not in begun["B"] and ("F", s, j) in ended]
            back = [j for j in back if s == len(degrees) - 1 or ("B", s + 1, j) in ended]
            there = [j for j in found if j not in begun["F"] and (s == 0 or ("F", s - 1, j) in ended)]
            held = len(begun["F"]) - sum(("B", s, j) in ended for j in found)
            if back or (there and held < math.ceil(sum(degrees[s:]) / degrees[s])):
                task = ("B", s, min(back)) if back else ("F", s, min(there))
                orders[s, r].append(task)
                busy[s, r] = now + degrees[s] * (2 if back else 1), task
    raise AssertionError


def _warmed(s: int, own: list[int], warm_up: int) -> list[tuple[str, int, int]]:
    """1F1B: after so many forward passes one of each in turn."""
    order = [("F", s, j) for j in own[:warm_up]]
    for number, j in enumerate(own):
        order += [("F", s, later) for later in own[warm_up + number : warm_up + number + 1]]
        order.append(("B", s, j))
    return order


def plans(instance: FlushedInstance) -> Iterator[dict[str, Any]]:
    """Every plan in JSON form; under GPipe more micro-batches are in flight, so that some of them do not fit."""
    return stage_partitioning.plans(instance.flat)
