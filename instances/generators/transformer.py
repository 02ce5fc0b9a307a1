"""Analytic transformer models (BERT, GPT): layer graphs with TMPCs from an architecture and an accelerator.

Every time is floating-point operations or bytes over a rate, every size a count of elements; one sample is one
micro-batch, forward and backward. Symbols below: b micro-batch size, s sequence length, h hidden size, V vocabulary,
t tensor-parallel degree, A = 2 b s h bytes the output of a layer.

Times of a transformer layer at degree t:

* matrix products, 3 (24 b s h^2 + 4 b s^2 h) operations for the forward and the backward pass, shared by t devices;
  products of h/t columns run at ``matmul_efficiency`` of the peak times (h/t) / (h/t + ``half_width``);
* element-wise work on whole activations (two layer norms, two dropouts with residual), 33 A bytes through the memory of
  every device, whatever t;
* four all-reduces of A (Megatron-LM: two forward, two backward), 2 (t-1)/t A bytes each over the link.

Recomputation repeats the forward pass: a third of the first two, and one all-reduce, as the last is not needed again.

Sequence parallelism, where it is on offer, shares what is whole above: element-wise work, the inputs and outputs of
layers, and what passes between them. All-reduces become gathers and scatters of equal volume, and the backward pass
gathers the two inputs of the products again, (t-1)/t A bytes each. Where attention probabilities are kept (without
flash attention), 5 a b s^2 / t bytes more are held for a heads, and selective recomputation holds none of them and
repeats the two products of the attention's core, 4 b s^2 h operations.

Activations held per micro-batch in flight: 17 A / t inside a layer (34 b s h bytes: layer norms, QKV, context, both MLP
products, GELU, dropout masks; attention probabilities are recomputed), plus the layer's input and output A and the
attention mask in full, because every device of a stage holds whole inputs and outputs. Recomputation keeps only the
inputs per micro-batch, and the rest once.

How far it is from Piper's released profile (32 layers, h = 3840, b s = 4096, A100; measured 2026-11-21): layer times
within 3 % at t = 1, 2, 4, 8, with recomputation within 4 %; activations per micro-batch within 3 %, exact with
recomputation; parameters per device exact. The embedding, 4 % of a layer's time in the profile at t = 1, is 6 % too
fast there and takes a fifth of the profile's time at t = 8. With ``PUBLISHED`` bookkeeping the exact optimum (released
cost model, B = 25 * 2^30, N = 512) is below the profile's by 2.8 % and 0.2 % on 8 devices of 8 and 80 GiB, by 3.0 % and
0.9 % on 64, by 3.0 % and 5.4 % on 512; on 512 devices of 1 GiB, where a layer hardly fits, by 11 %.

Source: Piper, sections 3.5, 3.6, 5 and Appendix B (what a TMPC holds); Megatron-LM (sharding of a layer); Korthikanti
et al. 2022 (sequence parallelism, equations 1 to 6, selective recomputation; that inputs are gathered again). Rates:
reconstructed, fitted to the layer times of Piper's released BERT profile.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from instances.memory_schemes import MIXED_PRECISION, Bookkeeping
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.rules import NodeId

VANILLA = "vanilla"
RECOMPUTE = "activation recomp"
FORWARD = "forward"
SEQUENCE, SELECTIVE = "sequence parallel", "selective recomp"
SELECTIVE_MLP = f"{SELECTIVE} of mlp"

#: Bytes of an activation element, and of a token id.
_ELEMENT, _TOKEN = 2, 8
#: BERT distinguishes first and second sentences.
_TOKEN_TYPES = 2
#: Passes of a whole activation through memory, forward: two layer norms (2 each), two dropouts and residuals (3.5).
_LAYER_PASSES = 11
#: The same for an embedding: sum of two lookups, layer norm, dropout.
_EMBEDDING_PASSES = 6
#: Sizes of A that a layer holds inside, shared by its devices.
_INSIDE = 17
#: A backward pass costs twice the forward pass.
_BOTH = 3


@dataclass(frozen=True)
class Accelerator:
    """A device and the link among the devices of one server.

    ``matmul_efficiency`` is the share of the peak that wide matrix products reach; at ``half_width`` columns per device
    they reach half of it. The two bandwidths are achieved ones, in bytes per second.
    """

    name: str
    peak_flop_per_s: float
    matmul_efficiency: float
    half_width: float
    memory_bytes: float
    memory_bandwidth_bytes_per_s: float
    link_bandwidth_bytes_per_s: float


#: NVIDIA A100, 80 GiB, NVSwitch: 312 TFLOP/s in fp16, 2.0 TB/s of memory (65 % achieved), 300 GB/s of link (75 %).
A100 = Accelerator("a100", 312e12, 0.6, 640, 80 * 2.0**30, 1.3e12, 225e9)


@dataclass(frozen=True)
class Architecture:
    """Sizes of a transformer."""

    num_layers: int
    hidden_size: int
    num_heads: int
    sequence_length: int
    vocabulary_size: int
    microbatch_size: int

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_heads:
            raise ValueError(f"num_heads is {self.num_heads}; expected a divisor of hidden_size {self.hidden_size}")

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch: b s."""
        return self.microbatch_size * self.sequence_length

    @property
    def output_bytes(self) -> float:
        """A: the output of a layer."""
        return float(_ELEMENT * self.tokens * self.hidden_size)

    @property
    def mask_bytes(self) -> float:
        """The attention mask, one element for each pair of positions."""
        return float(_ELEMENT * self.microbatch_size * self.sequence_length**2)

    def degrees(self) -> tuple[int, ...]:
        """Tensor-parallel degrees within a server that divide the heads and the vocabulary."""
        return tuple(t for t in (1, 2, 4, 8) if not self.num_heads % t and not self.vocabulary_size % t)


@dataclass(frozen=True)
class Part:
    """One kind of node at one degree: parameters per device, activation bytes, and times in seconds.

    ``core_bytes`` are those of ``inside_bytes`` that ``core_s`` makes again. ``weight_s`` is what gradients of the
    weights of products take of ``time_s`` (W); ``None``: not counted.
    """

    parameters: float = 0.0
    input_bytes: float = 0.0
    inside_bytes: float = 0.0
    time_s: float = 0.0
    again_s: float = 0.0
    forward_s: float = 0.0
    core_bytes: float = 0.0
    core_s: float = 0.0
    weight_s: float | None = None
    shares_sequence: bool = False


@dataclass(frozen=True)
class TransformerCosts:
    """What the nodes of a transformer cost on an accelerator.

    ``in_turn``: static bytes of a TMPC that recomputes are without what is made again (`StrategyInstance`).
    ``weight_times``: layers have those that are counted; BERTs and GPTs, which the library knows by digests, none.
    """

    model: Architecture
    device: Accelerator
    books: Bookkeeping
    forward_only: bool = False
    sequences: bool = False
    keeps_probabilities: bool = False
    in_turn: bool = False
    weight_times: bool = False

    def matmul_s(self, operations: float, t: int) -> float:
        """Seconds of matrix products shared by t devices, h/t columns each."""
        rate = self.device.peak_flop_per_s * self.device.matmul_efficiency
        return operations / (t * rate) * (1 + self.device.half_width * t / self.model.hidden_size)

    def memory_s(self, size: float) -> float:
        """Seconds of moving bytes through a device's memory."""
        return size / self.device.memory_bandwidth_bytes_per_s

    def all_reduce_s(self, size: float, t: int) -> float:
        """Seconds of a ring all-reduce among t devices."""
        return 2 * (t - 1) / t * size / self.device.link_bandwidth_bytes_per_s

    def of(self, part: Callable[..., Part], t: int, *given: Any) -> tuple[Part, ...]:
        """A kind of node at one degree; where sequences may be shared, that as well."""
        whole = part(t, *given)
        if t == 1 or not self.sequences:
            return (whole,)
        return whole, replace(part(t, *given, share=t), shares_sequence=True)

    def transformer_layer(self, t: int, mask: bool, share: int = 1) -> Part:
        """Attention and MLP: 12 h^2 + 13 h parameters, of which 6 h (norms, output biases) are on every device.

        ``share`` devices share what is between the split products.
        """
        m, A = self.model, self.model.output_bytes
        h, b, s = m.hidden_size, m.microbatch_size, m.sequence_length
        forward = self.matmul_s(24 * b * s * h**2 + 4 * b * s**2 * h, t) + self.memory_s(_LAYER_PASSES * A / share)
        core = 5.0 * m.num_heads * b * s**2 / t if self.keeps_probabilities else 0.0
        gathered = 0.5 * self.all_reduce_s(A, t) if share > 1 else 0.0
        return Part(
            parameters=(12 * h**2 + 7 * h) / t + 6 * h,
            input_bytes=A / share + (m.mask_bytes if mask else 0.0),
            inside_bytes=_INSIDE * A / t + A / share + core,
            time_s=_BOTH * forward + 4 * self.all_reduce_s(A, t) + 2 * gathered,
            again_s=forward + self.all_reduce_s(A, t) + gathered,
            forward_s=forward + 2 * self.all_reduce_s(A, t),
            core_bytes=core,
            core_s=self.matmul_s(4 * b * s**2 * h, t),
        )

    def embedding(self, t: int, num_inputs: int, whole_rows: int, share: int = 1) -> Part:
        """Lookup, layer norm and dropout; the gradient of the table is written and added densely.

        Tokens are shared by the t devices; ``whole_rows`` (positions, token types) are on every device.
        """
        m, A = self.model, self.model.output_bytes
        parameters = (m.vocabulary_size / t + whole_rows) * m.hidden_size
        forward = self.memory_s(_EMBEDDING_PASSES * A / share) + self.all_reduce_s(A, t)
        backward = self.memory_s(2 * _EMBEDDING_PASSES * A / share + 2 * _ELEMENT * parameters)
        ids = float(num_inputs * m.tokens * _TOKEN)
        return Part(parameters, ids, A / _ELEMENT / share, forward + backward, forward, forward)

    def pooler(self) -> Part:
        """A dense layer on the first token, whole on every device."""
        m = self.model
        h = m.hidden_size
        forward = self.matmul_s(2 * m.microbatch_size * h**2, 1)
        return Part(h**2 + h, m.output_bytes, 0.0, _BOTH * forward, forward, forward)

    def head(self, t: int, share: int = 1) -> Part:
        """Layer norm, projection to the vocabulary and loss; logits in fp16 and their softmax in fp32 are held."""
        m, A = self.model, self.model.output_bytes
        logits = m.tokens * m.vocabulary_size / t
        product = self.matmul_s(2 * m.tokens * m.hidden_size * m.vocabulary_size, t)
        forward = product + self.memory_s(2 * A / share)
        forward += self.memory_s((2 * _ELEMENT + 4) * logits)
        parameters, inside = m.hidden_size * m.vocabulary_size / t + 2 * m.hidden_size, (_ELEMENT + 4) * logits
        both = _BOTH * forward + self.all_reduce_s(A, t)
        return Part(parameters, A / share, inside, both, forward, forward, weight_s=product)

    def tmpcs(
        self, part: Part, t: int, taken: Mapping[NodeId, float], given: Mapping[NodeId, float]
    ) -> tuple[Tmpc, ...]:
        """With and without recomputation; at t > 1 whole tensors are spread from and to one device over each edge.

        Shared sequences are sent by those who have them.

        Forward only: one TMPC that keeps inputs in flight, one copy of the weights, and nothing to synchronise.
        """
        if self.forward_only:
            held = part.parameters * self.books.parameter_bytes + part.inside_bytes
            return (Tmpc(FORWARD, part.forward_s, 0.0, part.input_bytes, held, dict(taken) if t > 1 else {}),)
        spread = (dict(taken), dict(given)) if t > 1 and not part.shares_sequence else ({}, {})
        prefix = f"{SEQUENCE}, " if part.shares_sequence else ""
        state, stash = part.parameters * self.books.state_bytes(), part.parameters * self.books.stash_bytes()
        vanilla = Tmpc(
            SEQUENCE if part.shares_sequence else VANILLA,
            part.time_s,
            part.parameters * self.books.parameter_bytes,
            part.input_bytes + part.inside_bytes + stash,
            state,
            *spread,
        )
        recompute = replace(
            vanilla,
            id=prefix + RECOMPUTE,
            time=part.time_s + (part.again_s if part.inside_bytes else 0.0),
            activation_bytes=part.input_bytes + stash,
            static_bytes=state if self.in_turn else state + part.inside_bytes,
        )
        if not part.core_bytes:
            return vanilla, recompute
        # As equation 6 of the source has it, what one layer makes again at a time is left out.
        held, time = vanilla.activation_bytes - part.core_bytes, part.time_s + part.core_s
        return vanilla, replace(vanilla, id=prefix + SELECTIVE, time=time, activation_bytes=held), recompute


class _Graph:
    """Nodes and edges in the making; the TMPCs of a node need its edges, so they come last."""

    def __init__(self, costs: TransformerCosts) -> None:
        self.costs = costs
        self.names: list[str] = []
        self.parts: list[dict[int, tuple[Part, ...]]] = []
        self.edges: list[Edge] = []

    def add(self, name: str, parts: dict[int, tuple[Part, ...]], inputs: Mapping[int, float]) -> int:
        """A node with its costs per degree, and the bytes it takes from earlier nodes; returns its id."""
        node = len(self.names)
        self.names.append(name)
        self.parts.append(parts)
        # Cost models count every edge twice, for the forward and the backward pass.
        share = 0.5 if self.costs.forward_only else 1.0
        self.edges += [Edge(source, node, share * size) for source, size in inputs.items()]
        return node

    def add_input(self, name: str, size: float) -> int:
        """A node that only holds a tensor that is fed in."""
        return self.add(name, dict.fromkeys(self.costs.model.degrees(), (Part(input_bytes=size),)), {})

    def layers(self) -> tuple[Layer, ...]:
        """All nodes with their TMPCs."""
        taken: list[dict[NodeId, float]] = [{} for _ in self.names]
        given: list[dict[NodeId, float]] = [{} for _ in self.names]
        for edge in self.edges:
            taken[int(edge.target)][edge.source] = edge.bytes
            given[int(edge.source)][edge.target] = edge.bytes
        return tuple(
            Layer(
                node,
                {t: self._tmpcs(t, kinds, taken[node], given[node]) for t, kinds in parts.items()},
                name,
                weight_times=self._weight_times(parts),
            )
            for node, (name, parts) in enumerate(zip(self.names, self.parts, strict=True))
        )

    def _weight_times(self, parts: Mapping[int, tuple[Part, ...]]) -> dict[int, float]:
        own = {t: kinds[0].weight_s for t, kinds in parts.items()} if self.costs.weight_times else {}
        return {t: time for t, time in own.items() if time is not None}

    def _tmpcs(
        self, t: int, kinds: tuple[Part, ...], taken: Mapping[NodeId, float], given: Mapping[NodeId, float]
    ) -> tuple[Tmpc, ...]:
        return tuple(x for part in kinds for x in self.costs.tmpcs(part, t, taken, given))


def bert(
    name: str,
    model: Architecture,
    device: Accelerator = A100,
    books: Bookkeeping = MIXED_PRECISION,
    forward_only: bool = False,
) -> StageInstance:
    """A BERT: token and position inputs, embedding, layers that all take the attention mask, pooler.

    Returns: ``num_layers + 5`` nodes in topological order, times in seconds; K = 64, N = 512, B = 25 GiB/s, M the
    accelerator's memory.
    """
    costs = TransformerCosts(model, device, books, forward_only)
    degrees, A = model.degrees(), model.output_bytes
    graph = _Graph(costs)
    ids = float(_TOKEN * model.tokens)
    inputs = {graph.add_input(kind, ids): ids for kind in ("token ids", "position ids")}
    rows = model.sequence_length + _TOKEN_TYPES
    last = graph.add("embedding", {t: costs.of(costs.embedding, t, len(inputs), rows) for t in degrees}, inputs)
    mask = graph.add_input("attention mask", model.mask_bytes)
    layer = {t: costs.of(costs.transformer_layer, t, True) for t in degrees}
    for _ in range(model.num_layers):
        last = graph.add("transformer layer", layer, {last: A, mask: model.mask_bytes})
    graph.add("pooler", dict.fromkeys(degrees, (costs.pooler(),)), {last: A})
    return _instance(name, graph, device)


def gpt(
    name: str,
    model: Architecture,
    device: Accelerator = A100,
    books: Bookkeeping = MIXED_PRECISION,
    forward_only: bool = False,
    sequences: bool = False,
    keeps_probabilities: bool = False,
) -> StageInstance:
    """A GPT: token ids, embedding, causal layers without a mask tensor, language-model head (not tied); a chain.

    Returns: ``num_layers + 3`` nodes in topological order; otherwise as ``bert``. With ``sequences`` devices may share
    them, and where probabilities are kept, the attention's core may be recomputed.
    """
    costs = TransformerCosts(model, device, books, forward_only, sequences, keeps_probabilities)
    degrees, A = model.degrees(), model.output_bytes
    graph = _Graph(costs)
    ids = float(_TOKEN * model.tokens)
    tokens = graph.add_input("token ids", ids)
    rows = model.sequence_length
    last = graph.add("embedding", {t: costs.of(costs.embedding, t, 1, rows) for t in degrees}, {tokens: ids})
    layer = {t: costs.of(costs.transformer_layer, t, False) for t in degrees}
    for _ in range(model.num_layers):
        last = graph.add("transformer layer", layer, {last: A})
    graph.add("language-model head", {t: costs.of(costs.head, t) for t in degrees}, {last: A})
    return _instance(name, graph, device)


def gpt_like(
    name: str,
    costs: TransformerCosts,
    kinds: Sequence[dict[int, tuple[Part, ...]]],
    devices: int,
    bandwidth: float,
    microbatches: int,
) -> StageInstance:
    """A chain of layers of these kinds between an embedding without positions and a head that is not tied."""
    degrees, A = costs.model.degrees(), costs.model.output_bytes
    graph = _Graph(costs)
    ids = float(_TOKEN * costs.model.tokens)
    tokens = graph.add_input("token ids", ids)
    last = graph.add("embedding", {t: costs.of(costs.embedding, t, 1, 0) for t in degrees}, {tokens: ids})
    for kind in kinds:
        last = graph.add("transformer layer", kind, {last: A})
    graph.add("language-model head", {t: costs.of(costs.head, t) for t in degrees}, {last: A})
    made = _instance(name, graph, costs.device)
    return replace(made, num_devices=devices, bandwidth=bandwidth, num_microbatches=microbatches)


def _instance(name: str, graph: _Graph, device: Accelerator) -> StageInstance:
    return StageInstance(
        name=name,
        layers=graph.layers(),
        edges=tuple(graph.edges),
        num_devices=64,
        memory_bytes=device.memory_bytes,
        bandwidth=25 * 2.0**30,
        num_microbatches=512,
    )
