"""Serving strategies: the definition, naively and without any solver.

Source: reconstructed, but for what is named. Times are a roofline (operations or bytes of memory, whichever take
longer) of each layer's products and of its attention; a steady state follows from operational laws: a closed network
of N requests has at most 1 / (largest demand) of them a second, and at most N / (time of a request that never waits).
"""

import math
from functools import cache

from formulations.contract.violation import Violation
from formulations.serving_strategy.definition.plan import ServingPlan
from instances.problems.serving_strategy import BLOCK_TOKENS, ServedLayer, ServingInstance


def is_degree(instance: ServingInstance, t: int) -> bool:
    """Whether t devices share the heads, those of keys as well or whole; groups fill machines, or machines groups.

    Source: vLLM's ``LlamaAttention`` for heads; the rule on machines: this project.
    """
    kv, machine = instance.kv_heads, instance.devices_per_machine
    return instance.heads % t == 0 and (kv % t == 0 or t % kv == 0) and (machine % t == 0 or t % machine == 0)


def degrees(instance: ServingInstance) -> tuple[int, ...]:
    """The tensor-parallel degrees that there may be."""
    most = min(instance.heads, instance.num_devices)
    return tuple(t for t in range(1, most + 1) if is_degree(instance, t))


def all_reduce_s(instance: ServingInstance, t: int, size_bytes: float) -> float:
    """A ring of t devices, whose slowest links count; one latency."""
    if t == 1:
        return 0.0
    inside = t <= instance.devices_per_machine
    bandwidth = instance.inner_bandwidth_bytes_per_s if inside else instance.outer_bandwidth_bytes_per_s
    return (instance.inner_latency_s if inside else instance.outer_latency_s) + 2 * (t - 1) / t * size_bytes / bandwidth


@cache
def _outer_sends(p: int, stages: int, replicas: int) -> int:
    """Sends between machines, which have so many stages, of the replica with most; replicas lie one after the other."""
    return max((k * p % stages + p - 1) // stages for k in range(min(replicas, stages)))


def sends_s(instance: ServingInstance, t: int, p: int, tokens: int) -> float:
    """From each of p stages to the next one, inside machines and between them, where replicas fill all devices."""
    size, machine = tokens * instance.boundary_bytes, instance.devices_per_machine
    outer = _outer_sends(p, machine // t if machine % t == 0 else 1, max(1, instance.num_devices // (t * p)))
    inside = instance.inner_latency_s + size / instance.inner_bandwidth_bytes_per_s
    return (p - 1 - outer) * inside + outer * (instance.outer_latency_s + size / instance.outer_bandwidth_bytes_per_s)


def _roofline_s(instance: ServingInstance, flops: float, size_bytes: float) -> float:
    return max(flops / instance.flop_per_s, size_bytes / instance.memory_bandwidth_bytes_per_s)


def layer_s(instance: ServingInstance, layer: ServedLayer, t: int, tokens: int, pairs: float, cached: float) -> float:
    """A pass of ``tokens`` through a layer, with so many pairs of query and key, and so many tokens' cache read."""
    products = _roofline_s(instance, tokens * layer.flops_per_token / t, layer.weight_bytes / t)
    shared = min(t, instance.kv_heads)
    attention = _roofline_s(instance, pairs * layer.attention_flops / t, cached * layer.kv_bytes_per_token / shared)
    return products + attention + 2 * all_reduce_s(instance, t, tokens * instance.hidden_bytes)


def prefill_s(instance: ServingInstance, layer: ServedLayer, t: int) -> float:
    """A whole prompt through a layer: causal attention."""
    tokens = instance.prompt_tokens
    return layer_s(instance, layer, t, tokens, tokens * (tokens + 1) / 2, tokens)


def decode_s(instance: ServingInstance, layer: ServedLayer, t: int, batch: int) -> float:
    """A token of each of ``batch`` sequences through a layer, at their mean length over all decode steps."""
    cached = batch * (instance.prompt_tokens + instance.generated_tokens / 2)
    return layer_s(instance, layer, t, batch, cached, cached)


def head_s(instance: ServingInstance, t: int, sampled: int) -> float:
    """The products of the head, for tokens that are sampled."""
    return _roofline_s(instance, sampled * instance.head_flops / t, instance.head_bytes / t)


def layer_work_s(instance: ServingInstance, layer: ServedLayer, t: int, batch: int) -> float:
    """What a request takes of a layer's devices: its prompt, and its share of decode steps; the first gives a token."""
    steps = instance.generated_tokens - 1
    return prefill_s(instance, layer, t) + steps * (decode_s(instance, layer, t, batch) / batch)


def head_work_s(instance: ServingInstance, t: int, batch: int) -> float:
    """What a request takes of the devices of the head."""
    return head_s(instance, t, 1) + (instance.generated_tokens - 1) * (head_s(instance, t, batch) / batch)


def stage_work_s(instance: ServingInstance, plan: ServingPlan, first: int, end: int) -> float:
    """What a request takes of a stage with layers ``first`` to ``end - 1``."""
    t, batch = plan.tp_degree, plan.batch
    own = [layer_work_s(instance, layer, t, batch) for layer in instance.layers[first:end]]
    return math.fsum([*own, *([head_work_s(instance, t, batch)] if end == len(instance.layers) else [])])


def first_token_s(instance: ServingInstance, t: int, p: int) -> float:
    """From a prompt to its first token, without waiting; it does not depend on where stages end."""
    passes = [prefill_s(instance, layer, t) for layer in instance.layers]
    return math.fsum([*passes, head_s(instance, t, 1), sends_s(instance, t, p, instance.prompt_tokens)])


def alone_s(instance: ServingInstance, t: int, p: int, batch: int) -> float:
    """A request that waits for no other, in decode steps of ``batch`` sequences."""
    passes = [decode_s(instance, layer, t, batch) for layer in instance.layers]
    step = math.fsum([*passes, head_s(instance, t, batch), sends_s(instance, t, p, batch)])
    return first_token_s(instance, t, p) + (instance.generated_tokens - 1) * step


def replica_s(instance: ServingInstance, plan: ServingPlan) -> float:
    """Seconds from one request that a replica completes to the next: the operational laws, with N p-fold batches."""
    slowest = max(stage_work_s(instance, plan, *stage) for stage in plan.stages)
    return max(slowest, alone_s(instance, plan.tp_degree, plan.pp_degree, plan.batch) / plan.sequences)


def request_s(instance: ServingInstance, plan: ServingPlan) -> float:
    """A request where all sequences of its replica are taken (Little's law: N = throughput times time)."""
    return plan.sequences * replica_s(instance, plan)


def token_s(instance: ServingInstance, plan: ServingPlan) -> float:
    """Mean time between a request's tokens behind its first one, as vLLM's benchmark has it (TPOT); 0 for no other."""
    if instance.generated_tokens == 1:
        return 0.0
    first = first_token_s(instance, plan.tp_degree, plan.pp_degree)
    return (request_s(instance, plan) - first) / (instance.generated_tokens - 1)


def cached_tokens(instance: ServingInstance, sequences: int) -> int:
    """Tokens that the cache has room for: whole blocks of each sequence at its end, and vLLM's empty block."""
    blocks = -(-(instance.prompt_tokens + instance.generated_tokens) // BLOCK_TOKENS)
    return (sequences * blocks + 1) * BLOCK_TOKENS


def cache_bytes(instance: ServingInstance, plan: ServingPlan, first: int, end: int) -> float:
    """The KV cache of a device of a stage; heads of keys and values are copied where there are too few to share."""
    each = math.fsum(layer.kv_bytes_per_token for layer in instance.layers[first:end])
    return cached_tokens(instance, plan.sequences) * each / min(plan.tp_degree, instance.kv_heads)


def stage_bytes(instance: ServingInstance, plan: ServingPlan, first: int, end: int) -> float:
    """Weights, cache of all sequences, and activations of the largest pass, of a device of a stage."""
    ends = [instance.embedding_bytes] * (first == 0) + [instance.head_bytes] * (end == len(instance.layers))
    weights = math.fsum([*(layer.weight_bytes for layer in instance.layers[first:end]), *ends])
    working = (instance.prompt_tokens + plan.sequences) * instance.working_bytes
    return (weights + working) / plan.tp_degree + cache_bytes(instance, plan, first, end)


def evaluate(instance: ServingInstance, plan: ServingPlan) -> float:
    """Seconds per generated token of all replicas, or of a request."""
    if instance.objective == "latency":
        return request_s(instance, plan)
    return replica_s(instance, plan) / (plan.replicas * instance.generated_tokens)


def violations(instance: ServingInstance, plan: ServingPlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks.

    Rules: ``counts`` (every layer in one stage, every stage with a layer, a batch that there is), ``devices``,
    ``divisibility`` (`is_degree`), ``requests``, ``first_token``, ``deadline`` (between tokens), ``memory``.
    """
    t, p, lengths = plan.tp_degree, plan.pp_degree, list(plan.lengths)
    if not lengths or min(lengths) < 1 or sum(lengths) != len(instance.layers):
        return (Violation("counts", f"lengths {lengths}; expected 1 or more that sum to {len(instance.layers)}"),)
    if plan.replicas < 1 or t < 1 or plan.batch not in instance.batches:
        return (Violation("counts", f"{plan.replicas} replicas, degree {t}, batch {plan.batch}; expected known ones"),)
    found = []
    if not is_degree(instance, t):
        rule = f"{instance.heads} heads, {instance.kv_heads} of keys, machines of {instance.devices_per_machine}"
        found.append(Violation("divisibility", f"tensor-parallel degree {t}; expected one that divides {rule}"))
    if plan.replicas * t * p > instance.num_devices:
        found.append(Violation("devices", f"{plan.replicas} x {p} x {t} devices; there are {instance.num_devices}"))
    if plan.replicas * plan.sequences < instance.requests:
        served = f"{plan.replicas * plan.sequences} sequences at once; expected {instance.requests} or more"
        found.append(Violation("requests", served))
    first, limit = first_token_s(instance, t, p), instance.first_token_limit_s
    if limit is not None and first > limit:
        found.append(Violation("first_token", f"the first token comes after {first:.6g} s; expected {limit:.6g} s"))
    between, limit = token_s(instance, plan), instance.token_limit_s
    if limit is not None and between > limit:
        found.append(Violation("deadline", f"{between:.6g} s between tokens; expected at most {limit:.6g} s"))
    for stage, own in enumerate(plan.stages):
        held = stage_bytes(instance, plan, *own)
        if held > instance.memory_bytes:
            words = f"a device of stage {stage} holds {held:.6g} bytes; expected {instance.memory_bytes:.6g} or fewer"
            found.append(Violation("memory", words))
    return tuple(found)
