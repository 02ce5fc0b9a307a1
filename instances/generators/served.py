"""Decoders of `decoder` on H100s as servers run them: weights and cache in bf16, no backward pass.

A token takes 2 operations for each weight of a product, and 4 h for each token that it attends to; its keys and values
are 4 h g/a bytes of a layer. Beside these a pass holds the widest products of one layer.
Rates are those of `decoder`. Assumed: 10 us for a collective in a machine and 30 us between machines, 92 % of the
memory (vLLM's ``gpu_memory_utilization``), requests of 2,048 tokens that generate 256, and their limits.

Source: Bekman (`decoder`) for rates; counts reconstructed.
"""

from instances.generators.decoder import DECODERS, H100
from instances.generators.hardware import HARDWARE
from instances.problems.serving_strategy import ServedLayer, ServingInstance

_ELEMENT = 2
_UTILISED = 0.92
_INNER_S, _OUTER_S = 10e-6, 30e-6


def served(name: str, model: str, devices: int) -> ServingInstance:
    """A dense decoder of `DECODERS`, on so many devices; layers without the embedding and the head."""
    of = DECODERS[model][0]
    h, heads = of.sizes.hidden_size, of.sizes.num_heads
    products = 2 * h**2 * (1 + of.kv_share) + 3 * h * of.width
    layer = ServedLayer(_ELEMENT * (products + 2 * h), 2 * products, 2 * _ELEMENT * h * of.kv_share, 4.0 * h)
    head = float(h * of.sizes.vocabulary_size)
    server = HARDWARE["h100"]
    return ServingInstance(
        name,
        (layer,) * of.sizes.num_layers,
        heads,
        round(heads * of.kv_share),
        hidden_bytes=float(_ELEMENT * h),
        boundary_bytes=2.0 * _ELEMENT * h,
        num_devices=devices,
        devices_per_machine=server.devices_per_machine,
        memory_bytes=_UTILISED * H100.memory_bytes,
        flop_per_s=H100.matmul_efficiency * H100.peak_flop_per_s,
        memory_bandwidth_bytes_per_s=H100.memory_bandwidth_bytes_per_s,
        inner_bandwidth_bytes_per_s=H100.link_bandwidth_bytes_per_s,
        outer_bandwidth_bytes_per_s=server.outer_bandwidth_bytes_per_s,
        prompt_tokens=2048,
        generated_tokens=256,
        embedding_bytes=_ELEMENT * head,
        head_bytes=_ELEMENT * head,
        head_flops=2 * head,
        working_bytes=2.0 * _ELEMENT * (h + of.width),
        inner_latency_s=_INNER_S,
        outer_latency_s=_OUTER_S,
        first_token_limit_s=1.0,
        token_limit_s=0.05,
    )
