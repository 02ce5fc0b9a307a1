"""Serving strategies: a decoder, the devices of an inference server, and its requests (nouns only).

Source: reconstructed. The space is what vLLM and SGLang take: one tensor-parallel degree, layers by pipeline stage,
replicas, and sequences at once.
"""

from dataclasses import dataclass
from typing import Annotated

from instances.errors import expect
from instances.exchange import in_files
from instances.rules import Amount, Bandwidth, Count, Identifier, Recorded, Seconds, one_of

#: Tokens of a block of the KV cache, which a sequence has whole (vLLM's default).
BLOCK_TOKENS = 16
#: Batches of decode steps that CUDA graphs are captured for; others run as the next larger one.
#: Source: vLLM, ``_set_cudagraph_sizes`` of vllm/config/vllm.py, at its default limit.
CAPTURED = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))


@dataclass(frozen=True)
class ServedLayer:
    """A decoder layer, at tensor-parallel degree 1.

    ``flops_per_token`` are of products with weights, ``attention_flops`` of each pair of a query and a key;
    ``kv_bytes_per_token`` is what the cache keeps.
    """

    weight_bytes: Amount
    flops_per_token: Amount
    kv_bytes_per_token: Amount
    attention_flops: Amount = 0.0


@in_files(
    *("name", "layers", "heads", "kv_heads", "hidden_bytes", "boundary_bytes", "embedding_bytes?", "head_bytes?"),
    *("head_flops?", "working_bytes?", "num_devices", "devices_per_machine", "memory_bytes", "flop_per_s"),
    *("memory_bandwidth_bytes_per_s", "inner_bandwidth_bytes_per_s", "outer_bandwidth_bytes_per_s"),
    *("inner_latency_s?", "outer_latency_s?", "prompt_tokens", "generated_tokens", "batches?", "requests?"),
    *("first_token_limit_s?", "token_limit_s?", "objective?"),
    problem="serving_strategy",
    absent={"name": "server"},
)
@dataclass(frozen=True)
class ServingInstance(Recorded):
    """A decoder on the devices of a server, all of whose requests are of one length.

    Parameters
    ----------
    heads, kv_heads
        Attention heads, and those of keys and values; tensor-parallel devices share them.
    hidden_bytes
        Of a token's activation, which two all-reduces of each layer sum up over tensor-parallel devices.
    boundary_bytes
        Of a token, from one stage to the next (vLLM and SGLang: hidden states and residual).
    embedding_bytes, head_bytes, head_flops
        Weights of the first and the last stage beside their layers, and operations of a token that is sampled.
    working_bytes
        Of each token of a pass, on the device at once, shared by tensor-parallel devices.
    memory_bytes
        What weights, cache and activations may take of a device: its memory times vLLM's ``gpu_memory_utilization``.
    inner_latency_s, outer_latency_s
        Of a collective or a send inside a machine, and between machines.
    batches
        Sequences of a decode step that a plan may choose from; p stages have p such batches under way.
    requests
        So many sequences at once, on all replicas, are served at least.
    first_token_limit_s
        On the passes of a prompt, without waiting for other requests.
    token_limit_s
        On the mean time between tokens of a request behind its first one.
    objective
        ``throughput``: seconds per generated token of all replicas; ``latency``: seconds of a request.
    """

    name: Identifier
    layers: tuple[ServedLayer, ...]
    heads: Count
    kv_heads: Count
    hidden_bytes: Amount
    boundary_bytes: Amount
    num_devices: Count
    devices_per_machine: Count
    memory_bytes: Amount
    flop_per_s: Bandwidth
    memory_bandwidth_bytes_per_s: Bandwidth
    inner_bandwidth_bytes_per_s: Bandwidth
    outer_bandwidth_bytes_per_s: Bandwidth
    prompt_tokens: Count
    generated_tokens: Count
    embedding_bytes: Amount = 0.0
    head_bytes: Amount = 0.0
    head_flops: Amount = 0.0
    working_bytes: Amount = 0.0
    inner_latency_s: Amount = 0.0
    outer_latency_s: Amount = 0.0
    batches: tuple[Count, ...] = CAPTURED
    requests: Count = 1
    first_token_limit_s: Seconds | None = None
    token_limit_s: Seconds | None = None
    objective: Annotated[str, one_of("throughput", "latency")] = "throughput"


def check(instance: ServingInstance, where: str) -> None:
    """There are layers and batches; each batch is named once, ascending; `InstanceError` otherwise."""
    expect(len(instance.layers) > 0, where, "layers", [], "at least one")
    own = instance.batches
    expect(len(own) > 0 and list(own) == sorted(set(own)), where, "batches", list(own), "distinct counts, ascending")
    expect(instance.heads % instance.kv_heads == 0, where, "kv_heads", instance.kv_heads, "a divisor of heads")
