"""Brute force for tiny training strategies: every plan, priced by formulas of its own, simulated by `iteration`."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise, product
from typing import Any

from oracles.iteration import ends_s

from formulations.simulation.orders import SCHEDULES
from instances.problems.stage_edits import change_tmpcs
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.problems.training_strategy import Exchanged, Schedule, StrategyInstance, of_chain

#: Schedules whose backward passes are split begin so.
SPLIT = "zb", "dualpipe"
#: Sets of schedules of random instances, and most chunks of a device.
KINDS = (
    (("1f1b",), 1), (("1f1b",), 1), (("gpipe",), 1), (("zb-h1",), 1), (("1f1b", "gpipe", "zb-h1"), 1),
    (("interleaved",), 2), (("1f1b", "interleaved"), 2), (("interleaved", "zb-h1"), 3),
)  # fmt: skip


def random_instance(rng: random.Random, most_layers: int = 4) -> StrategyInstance:
    """A chain of a few layers: whole numbers with ties, or floats; memory ample, tight to the byte, or too short."""
    schedules, V = rng.choice(KINDS)
    is_interleaved = V > 1 and rng.random() < 0.8
    L = rng.randint(4, 6) if is_interleaved else rng.randint(1, most_layers)
    whole = rng.random() < 0.6
    same = rng.random() < 0.5  # layers of one kind, but for the first and the last

    def number(most: int) -> float:
        return float(rng.randint(0, most)) if whole else rng.random() * most

    def tmpcs(t: int) -> tuple[Tmpc, ...]:
        time, weight, static, activation = 3 * number(4) / t + (not whole), number(5) / t, number(6) / t, number(6) / t
        sync = (number(2), number(2)) if t > 1 and rng.random() < 0.5 else None
        found = [(time, static, activation)]
        for _ in range(rng.choice([0, 1, 1])):
            again = found[-1][0] + number(3)
            found.append((again, static + number(2), found[-1][2] * rng.choice([0.0, 0.5])))
        rng.shuffle(found)
        return tuple(
            Tmpc(f"way {i}", time, weight, a, b, *(({}, {}) if sync is None else sync))  # type: ignore[arg-type]
            for i, (time, b, a) in enumerate(found)
        )

    degrees = rng.choice([(1,), (1, 2), (2,), (1, 2)])
    kinds = [{t: tmpcs(t) for t in degrees} for _ in range(L)]
    if same:
        kinds = [kinds[0 if v == 0 else 1 if v < L - 1 else -1] for v in range(L)]
    edges = [(v, v + 1) for v in range(L - 1)]
    edges += [pair for pair in combinations(range(L), 2) if pair[1] > pair[0] + 1 and rng.random() < 0.15]

    def layer(v: int) -> Layer:
        before, after = [u for u, w in edges if w == v], [w for u, w in edges if u == v]
        own = {}
        for t, found in kinds[v].items():
            own[t] = tuple(
                Tmpc(x.id, x.time, x.weight_bytes, x.activation_bytes, x.static_bytes, *_sync(x, before, after))
                for x in found
            )
        return Layer(v, own)

    N = rng.choice([2, 4, 6, 8] if is_interleaved else [1, 2, 3, 4, 4, 6, 8])
    memory = rng.choice([1e9, rng.randint(1, 30), rng.randint(5, 60), rng.randint(10, 90)])
    others = random.Random(repr(kinds))  # so that instances of other schedules stay as they were
    if is_interleaved and others.random() < 0.5:
        schedules = others.choice([("zb-v",), ("zb-v",), ("dualpipe-v",), ("1f1b", "zb-v", "dualpipe-v")])
        V = 1
    elif "zb-h1" in schedules and others.random() < 0.5:
        schedules = tuple("zb-h2" if each == "zb-h1" else each for each in schedules)
    flat = StageInstance(
        "tiny",
        tuple(map(layer, range(L))),
        tuple(Edge(u, v, number(2)) for u, v in edges),
        rng.choice([2, 4, 4, 6] if is_interleaved else [1, 2, 3, 4, 4, 6]),
        float(memory),
        float(rng.choice([1, 2, 5])),
        N,
        max_dp_degree=rng.choice([None, None, None, 1, 2]),
    )
    return of_chain(splitting(flat, random.Random(repr(flat))), tuple(map(Schedule, schedules)), V)


def splitting(flat: StageInstance, rng: random.Random) -> StageInstance:
    """The instance with times of W in all layers, in some, or in none; up to all of the least backward pass."""
    share = rng.choice([0.0, 0.5, 0.9])
    layers = tuple(
        replace(layer, weight_times={
            t: rng.choice([0.0, 0.25, 0.5, 2 / 3, 2 / 3 * rng.random()]) * min(x.time for x in own)
            for t, own in layer.tmpcs.items() if rng.random() < share
        })
        for layer in flat.layers
    )  # fmt: skip
    return replace(flat, layers=layers)


def _sync(x: Tmpc, before: list[int], after: list[int]) -> tuple[dict[int, float], dict[int, float]]:
    """The two numbers of a TMPC in the making, one for each neighbour."""
    forward, backward = x.sync_forward_bytes, x.sync_backward_bytes
    if isinstance(forward, dict):
        return {}, {}
    return dict.fromkeys(before, forward), dict.fromkeys(after, backward)


def sharing(rng: random.Random, instance: StrategyInstance) -> StrategyInstance:
    """The instance with optimizer states besides, which replicas share; memory grows by some of them."""
    ratio = rng.choice([0.5, 1.0, 2.0, 6.0, rng.random() * 4])
    flat = change_tmpcs(instance.flat, lambda x: replace(x, static_bytes=x.static_bytes + ratio * x.weight_bytes))
    added = ratio * sum(next(iter(layer.tmpcs.values()))[0].weight_bytes for layer in flat.layers)
    memory = flat.memory_bytes + added * rng.choice([0.0, 0.25, 0.5, 1.0])
    return replace(instance, flat=replace(flat, memory_bytes=memory), sharded_per_weight=ratio)


def sharing_more(rng: random.Random, instance: StrategyInstance) -> StrategyInstance:
    """The same with levels of sharding to choose from, gradients and weights besides, and sequences to share."""
    made = sharing(rng, instance)
    levels = rng.choice([(0, 1), (0, 1, 2, 3), (3,), (0, 3), (1, 2), (2, 3), (0, 1, 3)])
    grads = rng.choice([1.0, 1.0, 2.0])
    held = (0.0, 0.0, grads, 1 + grads)[max(levels)]
    shares = rng.random() < 0.5

    def ways(t: int, found: tuple[Tmpc, ...]) -> tuple[Tmpc, ...]:
        own = [replace(x, static_bytes=x.static_bytes + held * x.weight_bytes) for x in found]
        if t == 1 or not shares or rng.random() < 0.2:
            return tuple(own)
        faster = rng.random()
        more = [
            Tmpc(f"sequence {x.id}", x.time * faster, x.weight_bytes, x.activation_bytes / t, x.static_bytes)
            for x in own
            if rng.random() < 0.8
        ]
        return (*own, *more)

    layers = tuple(
        replace(layer, tmpcs={t: ways(t, found) for t, found in layer.tmpcs.items()}, weight_times={})
        for layer in made.flat.layers
    )
    layers = splitting(replace(made.flat, layers=layers), random.Random(repr(layers))).layers
    added = held * sum(next(iter(layer.tmpcs.values()))[0].weight_bytes for layer in layers)
    memory = made.flat.memory_bytes + added * rng.choice([0.0, 0.5, 1.0])
    flat = replace(made.flat, layers=layers, memory_bytes=memory)
    return replace(made, flat=flat, sharding=levels, gradients_per_weight=grads)


def exchanging(rng: random.Random, instance: StrategyInstance) -> StrategyInstance:
    """The same with experts in some layers, keys and values, degrees to share both, and machines of two or four."""
    made = sharing_more(rng, instance)
    cp, ep = rng.choice([((1, 2), (1,)), ((1,), (1, 2)), ((1, 2), (1, 2)), ((2,), (1, 2)), ((1, 2), (1, 4))])
    whole = 1 + made.gradients_per_weight + made.sharded_per_weight
    exchanged, layers, added = {}, [], 0.0

    def with_experts(found: tuple[Tmpc, ...], weight: float) -> tuple[Tmpc, ...]:
        slower = random.Random(repr(found)).choice(["way 1", "selective recomp", "selective recomp of mlp"])
        least = min(x.time for x in found)
        return tuple(
            replace(x, id=x.id.replace("way 1", slower if x.time > least else "way 1"),
                    weight_bytes=x.weight_bytes + weight, static_bytes=x.static_bytes + whole * weight)
            for x in found
        )  # fmt: skip

    for layer in made.flat.layers:
        if rng.random() < 0.3:
            layers.append(layer)
            continue
        experts = float(rng.randint(0, 4))
        exchanged[layer.id] = Exchanged(float(rng.randint(0, 4)), float(rng.randint(0, 3)), experts, 4)
        layers.append(replace(layer, tmpcs={t: with_experts(found, experts / t) for t, found in layer.tmpcs.items()}))
        added += whole * experts
    if not any(each.kv_bytes for each in exchanged.values()):
        cp = (1,)
    if not exchanged:
        ep = (1,)
    memory = made.flat.memory_bytes + added * rng.choice([0.0, 0.5, 1.0])
    flat = replace(made.flat, layers=tuple(layers), memory_bytes=memory)
    machine = rng.choice([None, 2, 4, 4, 3])
    inner = None if machine is None else made.flat.bandwidth * rng.choice([0.5, 1.5, 2, 10])
    return replace(made, flat=flat, cp_degrees=cp, ep_degrees=ep, exchanged=exchanged,
                   devices_per_machine=machine, inner_bandwidth=inner)  # fmt: skip


def optimum(instance: StrategyInstance) -> float | None:
    """Least time of an iteration of all plans; ``None`` if there is none.

    What a device computes takes its time: plans of which one device has more than the best iteration are not simulated.
    """
    best = None
    for schedule, p, V, m, chunks, sums, buckets in priced_plans(instance):
        work = [sum(sum(chunks[g]) for g in _own(schedule, i, p, V)) * m for i in range(p)]
        if best is not None and max(work) + sums >= best:
            continue
        orders = [[tuple(action) for action in order] for order in SCHEDULES[schedule].orders(p, m, V)]
        seconds = {kind: [chunk[number] for chunk in chunks] for number, kind in enumerate("FBW")}
        ends = ends_s(orders, seconds, list(pairwise(range(p * V))), {})
        assert ends is not None
        found = sums + max([*ends.values(), *(_summed(order, ends, buckets) for order in orders)])
        if best is None or found < best:
            best = found
    return best


def _summed(order: list, ends: dict, buckets: list[list[tuple[float, float]]]) -> float:
    """When a device has summed its gradients, bucket by bucket, each as soon as it and the link are ready."""
    last = {
        stage: max(k for k, (kind, g, _) in enumerate(order) if g == stage and kind != "F") for _, stage, _ in order
    }
    clock = 0.0
    for stage in sorted(last, key=lambda g: last[g]):
        for before, size in buckets[stage]:
            clock = max(clock, ends[order[last[stage]]] - before) + size
    return clock


def plans(instance: StrategyInstance) -> Iterator[dict[str, Any]]:
    """All plans in JSON form, whatever devices hold."""
    for t, d, schedule, V, p, cuts in layouts(instance):
        for level, sequences, c, e, r, last in _shared(instance, p, t, d):
            tmpcs = _tmpcs(instance, t, sequences)
            ways = [[(v, x.id) for x in tmpcs[v]] for chunk in cuts for v in chunk]
            for chosen in product(*ways):
                yield {"pp_degree": p, "tp_degree": t, "dp_degree": d, "virtual_stages": V, "schedule": schedule,
                       "chunks": cuts, "tmpcs": {str(v): name for v, name in chosen},
                       "sharding": level, "sequence_parallel": sequences,
                       "cp_degree": c, "ep_degree": e, "shard_groups": r, "dp_outermost": last}  # fmt: skip


def _shared(instance: StrategyInstance, p: int, t: int, d: int) -> Iterator[tuple[int, bool, int, int, int, bool]]:
    """Levels of sharding, whether sequences are shared, degrees of context and expert parallelism, groups, order."""
    kinds = [["sequence" in x.id for x in layer.tmpcs.get(t, ())] for layer in instance.flat.layers]
    has_choice = any(True in own and False in own for own in kinds)
    levels = instance.sharding or (1 if instance.sharded_per_weight else 0,)
    for level, sequences, c, e in product(levels, (False, True), instance.cp_degrees, instance.ep_degrees):
        if (sequences and not has_choice) or p * t * c * d > instance.flat.num_devices:
            continue
        if c * d % e == 0 and (e == 1 or t == 1 or sequences):
            for r in instance.shard_groups or (r for r in range(1, d + 1) if d % r == 0):
                if r == 1 or (e == 1 and level > 0 and d % r == 0 and c * d > r):
                    yield level, sequences, c, e, r, False
                    if instance.any_degree_order and (p == 1 or c * d // e == d):
                        yield level, sequences, c, e, r, True


def _tmpcs(instance: StrategyInstance, t: int, sequences: bool) -> dict[Any, list[Tmpc]]:
    """The TMPCs that may be chosen for each layer."""
    found = {}
    for layer in instance.flat.layers:
        every = list(layer.tmpcs.get(t, ()))
        own = [x for x in every if ("sequence" in x.id) == sequences]
        found[layer.id] = own if own else every
    return found


def priced_plans(
    instance: StrategyInstance,
) -> Iterator[tuple[str, int, int, int, list[tuple[float, ...]], float, list]]:
    """Schedule, devices of a pipeline, chunks of each, micro-batches, times of F, B, W of chunks, sum of gradients.

    And of each chunk what is summed beside passes: how long before its last pass ends that is ready, and its time.
    """
    for of, found in fitting(instance):
        m = instance.flat.num_microbatches // of["dp_degree"]
        for chunks, sums, buckets in found:
            yield of["schedule"], of["pp_degree"], of["virtual_stages"], m, chunks, sums, buckets


def fitting(instance: StrategyInstance) -> Iterator[tuple[dict[str, Any], Iterator]]:
    """The degrees and the schedule of each layout, and its prices in every way that fits (`_run`)."""
    for t, d, schedule, V, p, cuts in layouts(instance):
        moments = _moments(schedule, p, instance.flat.num_microbatches // d, V)
        for by in _shared(instance, p, t, d):
            of = {"pp_degree": p, "tp_degree": t, "dp_degree": d, "virtual_stages": V, "num_stages": p * V}
            yield of | {"schedule": schedule}, _run(instance, cuts, t, d, p, schedule, moments, by)


def layouts(instance: StrategyInstance) -> Iterator[tuple[int, int, str, int, int, list[list[Any]]]]:
    """Tensor degree, replicas, schedule, chunks of a device, devices of a pipeline, and the layers of each chunk."""
    flat = instance.flat
    nodes = [layer.id for layer in instance.chain]  # of which there is one order alone
    L, N = len(nodes), flat.num_microbatches
    for t in {t for layer in flat.layers for t in layer.tmpcs}:
        for d in (d for d in range(1, N + 1) if N % d == 0 and d <= (flat.max_dp_degree or N)):
            for schedule, V in product(instance.schedules, range(1, max(2, instance.virtual_stages) + 1)):
                if V != 2 if schedule.endswith("-v") else (schedule == "interleaved") != (V > 1):
                    continue
                for p in range(1, flat.num_devices // (t * d) + 1):
                    if p * V > L or (V > 1 and p == 1) or (schedule == "interleaved" and (N // d) % p):
                        continue
                    if schedule == "dualpipe-v" and N // d < 2 * p:
                        continue
                    for inner in combinations(range(1, L), p * V - 1):
                        yield t, d, schedule, V, p, [nodes[x:y] for x, y in pairwise((0, *inner, L))]


def _own(schedule: str, i: int, p: int, V: int) -> list[int]:
    """The chunks of device i."""
    return [i, 2 * p - 1 - i] if schedule.endswith("-v") else list(range(i, p * V, p))


@cache
def _moments(schedule: str, p: int, m: int, V: int) -> list[set]:
    """For each device, how many activations of which of its chunks it holds after each action."""
    given_back = "W" if schedule.startswith(SPLIT) else "B"
    found = []
    for i, order in enumerate(SCHEDULES[schedule].orders(p, m, V)):
        held, seen = [0] * V, set()
        for kind, stage, _ in order:
            held[_own(schedule, i, p, V).index(stage)] += 1 if kind == "F" else -1 if kind == given_back else 0
            seen.add(tuple(held))
        found.append(seen)
    return found


@cache
def placed(t: int, c: int, d: int, p: int, e: int, r: int, last: bool, machine: int) -> dict[str, set[tuple[int, ...]]]:
    """What each group of devices has in each of its machines, from every device's rank; groups by what they are for."""
    groups: dict[Any, list[int]] = defaultdict(list)
    outer = product(range(d), range(p)) if last else ((i, stage) for stage in range(p) for i in range(d))
    for rank, ((i, stage), x, y) in enumerate(product(outer, range(c), range(t))):
        share, k = d // r, i * c + x
        groups["group", stage, y, i // share].append(rank)
        groups["groups", stage, y, x, i % share].append(rank)
        groups["ring", stage, y, i].append(rank)
        groups["tokens", stage, y, k // e].append(rank)
        groups["same", stage, y, k % e].append(rank)
        for each in (each for each in (stage - 1, stage) if 0 <= each < p - 1):
            groups["stages", each, i, x, y].append(rank)
    found = defaultdict(set)
    for (kind, *_), ranks in groups.items():
        found[kind].add(tuple(sorted(Counter(rank // machine for rank in ranks).values())))
    return found


def _run(instance, cuts, t, d, p, schedule, moments, by):
    """Times of the chunks and the longest sum of gradients, for every choice of TMPCs that fits; times once each."""
    flat, (level, sequences, c, e, r, last) = instance.flat, by
    grads = instance.gradients_per_weight
    tmpcs = _tmpcs(instance, t, sequences)
    if not all(tmpcs.values()):
        return
    outer, inner = flat.bandwidth, instance.inner_bandwidth or flat.bandwidth
    on = placed(t, c, d, p, e, r, last, instance.devices_per_machine or 1)

    def rate(kind, rings=math.inf):
        """Of the slowest group: by links inside machines, and ports between them, a ring for each or so many."""
        inside = [inner for counts in on[kind] if max(counts) > 1]
        between = [outer * min(*counts, rings) for counts in on[kind] if len(counts) > 1]
        return min([*inside, *between], default=outer)

    # Weights of a device, dense ones on all c d devices and a share of the experts on every e-th; what goes to and from
    # the others with each micro-batch, beside a layer's passes: once, or thrice.
    D, same, group = c * d, c * d // e // r, c * d // r  # r > 1 has no experts to share
    dense, experts = {}, {}
    for v, found in tmpcs.items():
        of_experts = instance.exchanged[v].expert_weight_bytes / t if v in instance.exchanged else 0.0
        dense[v], experts[v] = found[0].weight_bytes - of_experts, of_experts / e
    weight = {v: dense[v] + experts[v] for v in tmpcs}
    summed = {v: dense[v] * (1 - 1 / group) + experts[v] * (1 - 1 / same) for v in tmpcs}
    # Time of sending them all to where they are summed; gradients are sent twice, there and back, among groups, too.
    way = {v: 2 * dense[v] * (1 - 1 / group) / rate("group") + 2 * experts[v] * (1 - 1 / same) / rate("same")
           if r == 1 else 2 * summed[v] / rate("group") for v in tmpcs}  # fmt: skip
    around = {v: 4 * grads * (1 / group - 1 / D) * weight[v] / rate("groups") for v in tmpcs}
    # Each device sends tokens to the others of its machine, and meanwhile to those of other machines.
    tokens = max(max((e - n) / outer, (n - 1) / inner) for counts in on["tokens"] for n in counts)

    def spent(v, x):
        least = min(y.time for y in tmpcs[v])
        ring, away = 0.0, 0.0
        if v in instance.exchanged:
            own = instance.exchanged[v]
            ring = (c - 1) * own.kv_bytes / (c * t) / rate("ring", 1)
            away = 4 * tokens * own.token_bytes / (e * t * c) / 3
        first = least / c / 3 + ring + away
        again = ring + away if x.time > least else 0.0
        if "selective" in x.id:  # attention's keys and values go around again, or nothing does
            again = 0.0 if "mlp" in x.id else ring
        second = 2 * first + (x.time - least) / c + again
        if level == 2:
            second = max(second, grads * way[v] + around[v])
        if level == 3 and p == 1:
            first, second = max(first, way[v]), max(second, (1 + grads) * way[v] + around[v])
        return first + second

    split = schedule.startswith(SPLIT)
    declared = {layer.id: layer.weight_times[t] / c for layer in flat.layers if t in layer.weight_times}
    of_weights = {v: declared[v] if v in declared else min(spent(v, x) for x in tmpcs[v]) / 3 for v in tmpcs}
    home = {v: g for g, chunk in enumerate(cuts) for v in chunk}
    # Between what a device of a V has nothing is sent.
    place = {v: min(g, 2 * p - 1 - g) if schedule.endswith("-v") else g for v, g in home.items()}
    third = []
    for g, chunk in enumerate(cuts):
        sent = 0.0
        for edge in (edge for edge in flat.edges if place[edge.source] != place[edge.target]):
            u, v = edge.source, edge.target
            if g == home[v]:
                sent += 2 * (edge.bytes + max(x.sync_forward_bytes.get(u, 0) for x in tmpcs[v])) / c / rate("stages")
            if g == home[u]:
                sent += 2 * (edge.bytes + max(x.sync_backward_bytes.get(v, 0) for x in tmpcs[u])) / c / rate("stages")
        third.append((sent + sum(min(spent(v, x) for x in tmpcs[v]) for v in chunk)) / 3)
    # Each byte of gradients is sent twice, there and back; where states are shared weights come back instead.
    is_whole = level == 0 or D == 1
    there = {v: grads * way[v] * (2 if is_whole else 1) + (around[v] if r > 1 else 0.0) for v in tmpcs}
    returned = {v: 0.0 if is_whole else way[v] for v in tmpcs}

    # Gradients go to the host, which updates weights and sends them back: all of a device's, or its own part of them.
    part = {v: dense[v] / group + experts[v] / same if level else weight[v] for v in tmpcs}
    moved = {v: instance.offloaded * part[v] if instance.host_bandwidth else 0.0 for v in tmpcs}
    once = (1 / (instance.host_bandwidth or 1), 1 / (instance.host_updates or math.inf))
    on_host = {v: moved[v] * (grads * once[0] + once[1] + once[0]) for v in tmpcs}

    def longest(times):
        held = (_own(schedule, i, p, len(cuts) // p) for i in range(p))
        return max(sum(times[v] for g in own for v in cuts[g]) for own in held)

    sums = longest({v: there[v] + returned[v] + on_host[v] for v in tmpcs})
    buckets: list = [[] for _ in cuts]
    if instance.overlaps_gradients:
        for g, chunk in enumerate(cuts):
            own = [there[v] for v in chunk]
            back = [of_weights[v] if split else min(spent(v, x) for x in tmpcs[v]) / 3 * 2 for v in chunk]
            is_hidden = g == 0 and not (level == 3 and p > 1 and D > 1)
            layers = [(sum(back[:k]), own[k]) for k in reversed(range(len(chunk)))]
            buckets[g] = layers if is_hidden else [(0.0, sum(own))]
        gathers = not (level == 3 and p == 1 and D > 1)
        sums = longest({v: gathers * returned[v] + on_host[v] for v in tmpcs})
    ways: list[set] = [set() for _ in range(p)]
    for i in range(p):
        own = [cuts[g] for g in _own(schedule, i, p, len(cuts) // p)]
        for choice in product(*(tmpcs[v] for chunk in own for v in chunk)):
            of = iter(choice)
            parts = [[next(of) for _ in chunk] for chunk in own]
            shared = {0: 0, 1: 0, 2: grads, 3: 1 + grads}[level] + (instance.sharded_per_weight if level else 0)
            static = sum(x.static_bytes for x in choice)
            for v in (v for chunk in own for v in chunk):
                static -= (e - 1) * experts[v] * (1 + grads + instance.sharded_per_weight)
                static -= shared * summed[v] + instance.sharded_per_weight * moved[v]
                if level == 3 and D > 1 and p > 1:
                    static += (1 + grads) * weight[v]
            if level == 3 and D > 1 and p == 1:
                static += (2 + grads) * max(weight.values())
            most = max(
                sum(n * sum(x.activation_bytes / c for x in part) for n, part in zip(held, parts, strict=True))
                for held in moments[i]
            )
            if instance.makes_again_in_turn:
                own_layers = [v for chunk in own for v in chunk]
                kept = {v: max(y.activation_bytes for y in tmpcs[v]) / c for v in own_layers}
                static += max(kept[v] - x.activation_bytes / c for v, x in zip(own_layers, choice, strict=True))
            if static + most <= flat.memory_bytes * (1 + 1e-12):
                ways[i].add(
                    tuple(
                        sum(spent(v, x) - min(spent(v, y) for y in tmpcs[v]) for x, v in zip(part, chunk, strict=True))
                        for part, chunk in zip(parts, own, strict=True)
                    )
                )
    last = [sum(of_weights[v] for v in chunk) for chunk in cuts] if declared else third
    last = last if split else [0.0] * len(cuts)
    for chosen in product(*ways):
        held = [_own(schedule, i, p, len(cuts) // p) for i in range(p)]
        again = [next(chosen[i][own.index(g)] for i, own in enumerate(held) if g in own) for g in range(len(cuts))]
        yield ([(f, 2 * f - w + r, w) for f, r, w in zip(third, again, last, strict=True)], sums, buckets)
