"""Brute force and random instances for serving strategies; shares no code with the problem package, but for roundings.

Times are summed step by step: every decode step of a request by itself, at its own number of cached tokens where the
roofline is linear in them, and every boundary, layer and stage in a loop.
"""

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from formulations.serving_strategy import FAMILY
from instances.problems.serving_strategy import ServedLayer, ServingInstance


def _fits_heads(of: ServingInstance, t: int) -> bool:
    shares_kv = any(a % b == 0 for a, b in ((of.kv_heads, t), (t, of.kv_heads)))
    fills = any(a % b == 0 for a, b in ((of.devices_per_machine, t), (t, of.devices_per_machine)))
    return of.heads % t == 0 and shares_kv and fills


def _pass(of: ServingInstance, layer: ServedLayer, t: int, tokens: int, pairs: float, cached: float) -> float:
    """One pass of a layer on one of its t devices."""
    seconds = max(
        tokens * layer.flops_per_token / t / of.flop_per_s, layer.weight_bytes / t / of.memory_bandwidth_bytes_per_s
    )
    copies = t / min(t, of.kv_heads)  # devices that hold the same heads of keys and values
    read = cached * layer.kv_bytes_per_token * copies / t
    seconds += max(pairs * layer.attention_flops / t / of.flop_per_s, read / of.memory_bandwidth_bytes_per_s)
    for _ in range(2 if t > 1 else 0):
        if t > of.devices_per_machine:
            latency, bandwidth = of.outer_latency_s, of.outer_bandwidth_bytes_per_s
        else:
            latency, bandwidth = of.inner_latency_s, of.inner_bandwidth_bytes_per_s
        seconds += latency + 2 * (t - 1) * (tokens * of.hidden_bytes / t) / bandwidth
    return seconds


def _head(of: ServingInstance, t: int, tokens: int) -> float:
    return max(tokens * of.head_flops / t / of.flop_per_s, of.head_bytes / t / of.memory_bandwidth_bytes_per_s)


def _links(of: ServingInstance, t: int, p: int) -> list[tuple[float, float]]:
    """Latency and bandwidth behind each stage but the last, of the replica that most often leaves a machine."""
    inner = of.inner_latency_s, of.inner_bandwidth_bytes_per_s
    outer, machine, found = (of.outer_latency_s, of.outer_bandwidth_bytes_per_s), of.devices_per_machine, []
    for begin in range(0, max(1, of.num_devices - t * p + 1), t * p):
        pairs = [(begin + i * t + j, begin + (i + 1) * t + j) for i in range(p - 1) for j in range(t)]
        crosses = [machine % t > 0 or a // machine != b // machine for a, b in pairs]
        found.append([outer if crosses[i * t] else inner for i in range(p - 1)])
    return max(found, key=lambda links: links.count(outer))


def figures(of: ServingInstance, r: int, t: int, b: int, lengths: list[int]) -> dict[str, Any]:
    """What a plan costs and holds, and whether it keeps the rules, by rule."""
    p, P, G = len(lengths), of.prompt_tokens, of.generated_tokens
    links = _links(of, t, p)
    busy, first, step, held, at = [], 0.0, 0.0, [], 0
    for stage, length in enumerate(lengths):
        own = of.layers[at : at + length]
        at += length
        prompt = sum(_pass(of, each, t, P, sum(range(1, P + 1)), P) for each in own)
        decode = sum(_pass(of, each, t, b, b * (P + G / 2), b * (P + G / 2)) for each in own)
        weights = sum(each.weight_bytes for each in own) + (of.embedding_bytes if stage == 0 else 0)
        if stage == p - 1:
            prompt += _head(of, t, 1)
            decode += _head(of, t, b)
            weights += of.head_bytes
        else:
            latency, bandwidth = links[stage]
            first += latency + P * of.boundary_bytes / bandwidth
            step += latency + b * of.boundary_bytes / bandwidth
        busy.append(prompt + (G - 1) * decode / b)
        first, step = first + prompt, step + decode
        tokens = 16 * (p * b * math.ceil((P + G) / 16) + 1)
        cache = tokens * sum(each.kv_bytes_per_token for each in own) / min(t, of.kv_heads)
        held.append((weights + (P + p * b) * of.working_bytes) / t + cache)
    every = max(*busy, (first + (G - 1) * step) / (p * b))
    request = p * b * every
    between = (request - first) / (G - 1) if G > 1 else 0.0
    return {
        "objective": request if of.objective == "latency" else every / r / G,
        "memory": max(held) / of.memory_bytes if of.memory_bytes else math.inf if max(held) else 0.0,
        "first_token": 0.0 if of.first_token_limit_s is None else first / of.first_token_limit_s,
        "deadline": 0.0 if of.token_limit_s is None else between / of.token_limit_s,
        "divisibility": 0.0 if _fits_heads(of, t) else math.inf,
        "devices": r * t * p / of.num_devices,
        "requests": of.requests / (r * p * b),
    }


def plans(of: ServingInstance) -> Iterator[dict[str, Any]]:
    """Every plan on the devices, in JSON form; what breaks other rules as well."""
    count = len(of.layers)
    for t, p in itertools.product(range(1, of.num_devices + 1), range(1, count + 1)):
        for ends in itertools.combinations(range(1, count), p - 1):
            lengths = [b - a for a, b in itertools.pairwise((0, *ends, count))]
            for r, b in itertools.product(range(1, of.num_devices // (t * p) + 1), of.batches):
                yield {"replicas": r, "tp_degree": t, "batch": b, "lengths": lengths}


def optimum(of: ServingInstance) -> float | None:
    """The least objective of plans that keep all rules; ``None`` if none does."""
    best = None
    for plan in plans(of):
        found = figures(of, plan["replicas"], plan["tp_degree"], plan["batch"], plan["lengths"])
        objective = found.pop("objective")
        near = any(0 < abs(each - 1) <= 1e-12 for each in found.values())  # how the definition rounds decides
        kept = not FAMILY.violations(of, FAMILY.plan_from_json(of, plan)) if near else max(found.values()) <= 1
        best = min(objective, math.inf if best is None else best) if kept else best
    return best


def random_instance(rng: random.Random, most_layers: int = 5) -> ServingInstance:
    """Up to ``most_layers`` layers of few or many kinds on up to six devices; memory and limits that may just hold."""
    kinds = [_layer(rng) for _ in range(1 if rng.random() < 0.4 else most_layers)]
    heads = rng.choice([1, 2, 4, 6, 8])
    made = ServingInstance(
        "random",
        tuple(rng.choice(kinds) for _ in range(rng.randint(1, most_layers))),
        heads,
        rng.choice([k for k in range(1, heads + 1) if heads % k == 0]),
        hidden_bytes=float(rng.randint(0, 8)),
        boundary_bytes=float(rng.randint(0, 16)),
        num_devices=rng.randint(1, 6),
        devices_per_machine=rng.choice([1, 2, 2, 3, 4]),
        memory_bytes=1e6,
        flop_per_s=float(rng.choice([1, 10, 100])),
        memory_bandwidth_bytes_per_s=float(rng.choice([1, 8, 50])),
        inner_bandwidth_bytes_per_s=float(rng.choice([5, 50])),
        outer_bandwidth_bytes_per_s=float(rng.choice([1, 5])),
        prompt_tokens=rng.choice([1, 3, 20]),
        generated_tokens=rng.choice([1, 2, 9, 40]),
        embedding_bytes=float(rng.choice([0, 30])),
        head_bytes=float(rng.choice([0, 30, 90])),
        head_flops=float(rng.choice([0, 20])),
        working_bytes=rng.choice([0.0, 1.5]),
        inner_latency_s=rng.choice([0.0, 0.1]),
        outer_latency_s=rng.choice([0.0, 1.0]),
        batches=tuple(sorted(rng.sample(range(1, 9), rng.randint(1, 3)))),
        requests=rng.choice([1, 1, 4, 12]),
        objective=rng.choice(["throughput", "latency"]),
    )
    found = [
        figures(made, *(plan[key] for key in ("replicas", "tp_degree", "batch", "lengths"))) for plan in plans(made)
    ]
    if rng.random() < 0.8:  # what some plan needs, or a little less; quotients are rounded
        some = rng.choice(found)["memory"] * made.memory_bytes
        made = replace(
            made, memory_bytes=rng.choice([float(math.ceil(some)), some * (1 + 1e-9), some * 0.999, some * 0.7])
        )
    for name, field in (("first_token", "first_token_limit_s"), ("deadline", "token_limit_s")):
        if rng.random() < 0.3:
            limited = replace(made, **{field: 1.0})
            some = [figures(limited, *each)[name] for each in _few(rng, made)]
            if limit := max(0.0, rng.choice(some)):
                made = replace(made, **{field: limit * (1 + 1e-9)})
    return made


def _few(rng: random.Random, of: ServingInstance) -> list[tuple[Any, ...]]:
    every = list(plans(of))
    return [tuple(each.values()) for each in rng.sample(every, min(9, len(every)))]


def _layer(rng: random.Random) -> ServedLayer:
    return ServedLayer(
        float(rng.randint(0, 60)), float(rng.randint(0, 40)), float(rng.randint(0, 3)), rng.choice([0.0, 0.5, 2.0])
    )
