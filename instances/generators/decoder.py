"""Analytic decoders of today (Llama 3, Mixtral, DeepSeek-V3): chains for a trainer, on H100s.

As `transformer`, with grouped keys and values, gated MLPs of three products, and experts. Symbols besides: f width of
an MLP, g/a keys and values per head, k experts of a token. A layer has 2 h^2 (1 + g/a) parameters of attention and
3 h f for each MLP; a token takes 2 operations for each of those it uses, and 2 s h for causal attention. With flash
attention and fused activations a layer holds 2 s b (6 h + 2 h g/a + 3 f) / t bytes of a micro-batch where sequences are
shared, and 4 h whole where they are not; a token's k experts and its copies there (4 k s b h) count as well. Loads of
experts are equal. Where sequences are shared each device sends its own tokens. Gradients of weights (W) take the
products with weights once, a third of their operations; attention's core, norms and the embedding's lookup have none.

Rates are measured ones. In fp8 products with weights of layers are as much faster as the best product of that type is;
attention's core, the head, what is sent and what is held are as in bf16. Left out: casts to fp8, overlap of what is
sent with what is computed, latency, dropped tokens, multi-token prediction; keys and values of latent attention are as
large as its 576 numbers for each token.

Source: H100 data sheet; ml-engineering (Bekman, commit 744d01e): 794.5 TFLOP/s of the best product, 1,402.6 in fp8, 365
GB/s of a ring in a node, 382 GB/s of four nodes of eight, for all their devices; Korthikanti et al. 2022 for
activations. Sizes: Llama 3 (2407.21783, table 3), Mixtral (2401.04088, table 1), DeepSeek-V3 (2412.19437, section 4.2).
"""

import math
from dataclasses import dataclass, replace

from instances.generators.transformer import Accelerator, Architecture, Part, TransformerCosts, gpt_like
from instances.memory_schemes import SCHEMES
from instances.problems.training_strategy import Exchanged, StrategyInstance
from instances.rules import NodeId

#: 80 GB; 65 % of 3.35 TB/s; half the rate of products at 640 columns a device is the guess of `transformer`.
H100 = Accelerator("h100", 989.4e12, 0.8, 640, 80e9, 2.2e12, 365e9)
_MACHINE, _OUTER = 8, 382e9 / 8
#: The best product in fp8 over that in bf16, by type.
_SPEEDUP = {"bf16": 1.0, "fp8": 1402.6 / 794.5}
#: Passes of a whole activation, forward: two norms (2 each), two residuals (1.5).
_PASSES = 7
_ELEMENT = 2


@dataclass(frozen=True)
class Decoder:
    """Sizes of a decoder. ``kv_share`` is g/a; ``attention`` its parameters in a layer, 0: 2 h^2 (1 + g/a).

    ``experts`` of width ``expert_width`` are in all layers but the first ``dense_layers``. A token takes ``top`` of
    these, and the ``shared`` ones beside them.
    """

    sizes: Architecture
    width: int
    kv_share: float
    experts: int = 0
    expert_width: int = 0
    top: int = 0
    shared: int = 0
    dense_layers: int = 0
    attention: int = 0


@dataclass(frozen=True)
class _DecoderCosts(TransformerCosts):
    """What the layers of a decoder cost."""

    decoder: Decoder = Decoder(Architecture(1, 1, 1, 1, 1, 1), 1, 1.0)
    speedup: float = 1.0

    @property
    def attention(self) -> float:
        """Parameters."""
        return self.decoder.attention or 2 * self.model.hidden_size**2 * (1 + self.decoder.kv_share)

    def operations(self, has_experts: bool) -> float:
        """Of a micro-batch in a forward pass of a layer: products with the weights a token uses, causal attention."""
        m, of = self.model, self.decoder
        active = of.expert_width * (of.top + of.shared) if has_experts else of.width
        products = 2 * (self.attention + 3 * m.hidden_size * active)
        return m.tokens * (products + 2 * m.sequence_length * m.hidden_size)

    def layer(self, t: int, has_experts: bool, share: int = 1) -> Part:
        """Attention, and an MLP or experts; ``share`` devices share what is between the split products."""
        m, A, of = self.model, self.model.output_bytes, self.decoder
        h, tokens = m.hidden_size, m.tokens
        active = of.expert_width * (of.top + of.shared) if has_experts else of.width
        held = of.expert_width * (of.experts + of.shared) if has_experts else of.width
        whole = 2 * h + (h * of.experts if has_experts else 0)
        core = 2.0 * tokens * m.sequence_length * h
        products = (self.operations(has_experts) - core) / self.speedup
        forward = self.matmul_s(core + products, t)
        forward += self.memory_s(_PASSES * A / share)
        gathered = 0.5 * self.all_reduce_s(A, t) if share > 1 else 0.0
        copies = 2.0 * of.top * A if has_experts else 0.0
        inside = _ELEMENT * tokens * (2 * h + 2 * h * of.kv_share + 3 * active) / t + copies / t
        return Part(
            parameters=(self.attention + 3 * h * held) / t + whole,
            input_bytes=A / share,
            inside_bytes=inside + 3 * A / share,
            time_s=3 * forward + 4 * self.all_reduce_s(A, t) + 2 * gathered,
            again_s=forward + self.all_reduce_s(A, t) + gathered,
            forward_s=forward + 2 * self.all_reduce_s(A, t),
            weight_s=self.matmul_s(products, t),
        )

    def exchanged(self, has_experts: bool) -> Exchanged:
        """What is sent and received, as bandwidths of instances add both up."""
        of, h = self.decoder, self.model.hidden_size
        kv = 2 * 2 * _ELEMENT * self.model.tokens * h * of.kv_share
        if not has_experts:
            return Exchanged(kv)
        weights = float(_ELEMENT * 3 * h * of.expert_width * of.experts)
        return Exchanged(kv, 2 * of.top * self.model.output_bytes, weights, of.experts)


def decoder(name: str, of: Decoder, devices: int, microbatches: int, dtype: str = "bf16") -> StrategyInstance:
    """A decoder in bf16, or with products in fp8, whose tensor-parallel devices may share sequences.

    Returns: ``num_layers + 3`` layers; times in seconds; machines of eight devices. Options of its flat instance have
    the operations of a micro-batch's forward pass (``forward-flops``), layers and head. Bandwidths are those of both
    directions, as costs count what is sent and what is received.
    """
    books = SCHEMES["mixed"]
    costs = _DecoderCosts(of.sizes, H100, books, sequences=True, in_turn=True, weight_times=True, decoder=of,
                          speedup=_SPEEDUP[dtype])  # fmt: skip
    kinds = [bool(of.experts) and number >= of.dense_layers for number in range(of.sizes.num_layers)]
    layers = [{t: costs.of(costs.layer, t, kind) for t in of.sizes.degrees()} for kind in kinds]
    flat = gpt_like(name, costs, layers, devices, 2 * _OUTER, microbatches)
    head = 2 * of.sizes.tokens * of.sizes.hidden_size * of.sizes.vocabulary_size
    flat = replace(flat, options={"forward-flops": head + math.fsum(map(costs.operations, kinds))})
    # Token ids and the embedding are in front.
    exchanged: dict[NodeId, Exchanged] = {number + 2: costs.exchanged(kind) for number, kind in enumerate(kinds)}
    return StrategyInstance(
        flat,
        sharded_per_weight=books.optimizer_bytes / books.parameter_bytes,
        sharding=(0, 1),
        exchanged=exchanged,
        devices_per_machine=_MACHINE,
        inner_bandwidth=2 * H100.link_bandwidth_bytes_per_s,
        makes_again_in_turn=True,
    )


def _llama(layers: int, hidden: int, heads: int, width: int) -> Decoder:
    return Decoder(Architecture(layers, hidden, heads, 8192, 128256, 1), width, 8 / heads)


#: By name: the decoder, devices, and micro-batches of a batch of its published runs or of a usual one.
DECODERS = {
    "llama3-8b": (_llama(32, 4096, 32, 14336), 16, 128),
    "llama3-70b": (_llama(80, 8192, 64, 28672), 64, 128),
    "llama3-405b": (_llama(126, 16384, 128, 53248), 512, 256),
    "mixtral-8x7b": (Decoder(Architecture(32, 4096, 32, 4096, 32000, 1), 14336, 8 / 32, 8, 14336, 2), 32, 256),
    # Latent attention: 187 million parameters of a layer; each token has 576 numbers in place of keys and values.
    "deepseek-v3-like": (
        Decoder(Architecture(61, 7168, 128, 4096, 129280, 1), 18432, 576 / 2 / 7168, 256, 2048, 8, 1, 3, 187_107_328),
        1024,
        8192,
    ),
}
