"""Models with parallel branches, on devices like a V100: analytic times for the models of GraphPipe's evaluation.

Shapes are those of the paper (Appendix A.2, sections 7.2 and 7.5); its profiles are not public. An operator's time is
affine in the samples: per sample the arithmetic and the memory traffic, and a fixed part that makes small micro-batches
expensive: launching kernels, reading the weights, and arithmetic that does not fill the device. A backward pass takes
twice a forward pass. Everything is fp32; the paper names no precision.

Source: GraphPipe, Appendix A.2 (shapes, mini-batches). Constants: chosen (README of formulations/stage_graph).
"""

from dataclasses import dataclass, field

from instances.problems.stage_graph import AffineTime, Operator, OperatorEdge, StageGraph


@dataclass(frozen=True)
class Device:
    """What one device sustains; bytes, seconds and operations per second.

    ``half_rows``: rows of a matrix product at which the device reaches half of its speed.
    """

    flops_per_s: float = 13e12
    traffic_bytes_per_s: float = 800e9
    launch_s: float = 12e-6
    half_rows: float = 64.0
    bandwidth_bytes_per_s: float = 12e9
    latency_s: float = 15e-6
    memory_bytes: float = 15e9


V100 = Device()
FLOAT_BYTES = 4


@dataclass
class _Builder:
    """Operators and edges, in a topological order."""

    device: Device = V100
    operators: list[Operator] = field(default_factory=list)
    edges: list[OperatorEdge] = field(default_factory=list)

    def matrix(
        self, name: str, flops: float, parameters: float, kept: float, sources: dict[int, float], rows: int = 1
    ) -> int:
        """Matrix products of ``rows`` rows a sample; ``sources`` are operators and the bytes they send per sample."""
        traffic = FLOAT_BYTES * parameters / self.device.traffic_bytes_per_s
        unfilled = flops / rows * self.device.half_rows / self.device.flops_per_s
        fixed = self.device.launch_s + max(traffic, unfilled)
        return self._add(name, fixed, flops / self.device.flops_per_s, parameters, kept, sources)

    def move(self, name: str, traffic: float, parameters: float, kept: float, sources: dict[int, float]) -> int:
        """An operator that only moves bytes: an embedding lookup, a concatenation."""
        per_sample = traffic / self.device.traffic_bytes_per_s
        return self._add(name, self.device.launch_s, per_sample, parameters, kept, sources)

    def _add(
        self, name: str, fixed_s: float, per_sample_s: float, parameters: float, kept: float, sources: dict[int, float]
    ) -> int:
        forward, backward = AffineTime(fixed_s, per_sample_s), AffineTime(2 * fixed_s, 2 * per_sample_s)
        self.operators.append(Operator(name, forward, backward, float(FLOAT_BYTES * parameters), float(kept)))
        index = len(self.operators) - 1
        self.edges += [OperatorEdge(source, index, float(size)) for source, size in sources.items()]
        return index

    def finish(self, name: str, devices: int, minibatch: int) -> StageGraph:
        """The instance; the mini-batch must be positive."""
        device = self.device
        return StageGraph(
            name,
            tuple(self.operators),
            tuple(self.edges),
            devices,
            device.memory_bytes,
            device.bandwidth_bytes_per_s,
            device.latency_s,
            minibatch,
        )


#: Of a transformer layer: hidden size, tokens, attention heads, and width of its linear operators.
_WIDTH, _SEQUENCE, _HEADS, _FEEDFORWARD = 1024, 256, 16, 4096


def _transformer_branch(builder: _Builder, name: str, layers: int) -> int:
    """A chain of layers, each of attention and two linear operators; returns the last operator."""
    hidden, sequence, heads, feedforward = _WIDTH, _SEQUENCE, _HEADS, _FEEDFORWARD
    tensor = FLOAT_BYTES * sequence * hidden
    wide = FLOAT_BYTES * sequence * feedforward
    scores = FLOAT_BYTES * heads * sequence * sequence
    previous: dict[int, float] = {}
    last = -1
    for layer in range(layers):
        flops = 2 * sequence * 4 * hidden * hidden + 4 * sequence * sequence * hidden
        kept = 6 * tensor + 2 * scores
        here = f"{name}layer {layer} "
        attention = builder.matrix(here + "attention", flops, 4 * hidden * hidden, kept, previous, sequence)
        flops, size = 2 * sequence * hidden * feedforward, hidden * feedforward
        first = builder.matrix(here + "linear 1", flops, size, tensor + wide, {attention: tensor}, sequence)
        last = builder.matrix(here + "linear 2", flops, size, wide + tensor, {first: wide}, sequence)
        previous = {last: tensor}
    return last


def mmt(branches: int = 4, layers: int = 8, devices: int = 8, minibatch: int | None = None) -> StageGraph:
    """Multi-modal transformer: branches of transformer layers, concatenated at the end.

    By default Appendix A.2: four branches of eight layers, 16 samples of the mini-batch for each device. The text of
    section 7.2 has two branches.
    """
    builder = _Builder()
    tensor = FLOAT_BYTES * _SEQUENCE * _WIDTH
    ends = [_transformer_branch(builder, f"branch {branch} ", layers) for branch in range(branches)]
    builder.move("concat", 2 * branches * tensor, 0, branches * tensor, dict.fromkeys(ends, tensor))
    return builder.finish(f"mmt-{branches}x{layers}", devices, minibatch or 16 * devices)


#: Width of a branch of linear layers.
_HIDDEN = 4096


def _linear_branch(builder: _Builder, name: str, layers: int) -> int:
    previous: dict[int, float] = {}
    last = -1
    for layer in range(layers):
        kept = 2 * FLOAT_BYTES * _HIDDEN
        last = builder.matrix(f"{name} linear {layer}", 2 * _HIDDEN**2, _HIDDEN**2, kept, previous)
        previous = {last: FLOAT_BYTES * _HIDDEN}
    return last


def dlrm(
    dense: int = 7,
    sparse: int = 7,
    layers: int = 4,
    top_layers: int = 4,
    devices: int = 8,
    minibatch: int | None = None,
) -> StageGraph:
    """DLRM: branches of linear layers and of one embedding table each, joined and followed by linear layers.

    By default Appendix A.2: seven and seven, 64 samples of the mini-batch for each device. The text of section 7.2 has
    eight branches (four and four here). The paper does not count the layers after the join; here as many as before.
    """
    builder, hidden, embedding, bag, entries = _Builder(), _HIDDEN, 64, 100, 1_000_000
    ends = {_linear_branch(builder, f"dense {branch}", layers): float(FLOAT_BYTES * hidden) for branch in range(dense)}
    looked_up = FLOAT_BYTES * embedding * bag
    for branch in range(sparse):
        table = builder.move(f"sparse {branch} embedding", 4 * looked_up, entries * embedding, looked_up, {})
        ends[table] = looked_up
    width = dense * hidden + sparse * embedding * bag
    joined = FLOAT_BYTES * width
    last, size = builder.move("interaction", 2 * joined, 0, joined, ends), joined
    for layer in range(top_layers):
        flops, kept = 2 * width * hidden, joined + FLOAT_BYTES * hidden
        last = builder.matrix(f"top linear {layer}", flops, width * hidden, kept, {last: size})
        width, joined, size = hidden, FLOAT_BYTES * hidden, FLOAT_BYTES * hidden
    return builder.finish(f"dlrm-{dense}+{sparse}x{layers}", devices, minibatch or 64 * devices)


def candle_uno(branches: int = 7, layers: int = 4, devices: int = 8, minibatch: int | None = None) -> StageGraph:
    """CANDLE-Uno: branches of linear layers, concatenated.

    By default Appendix A.2: seven branches of four layers, 1024 samples of the mini-batch for each device. The text of
    section 7.2 has eight branches. The paper names no layers after the join.
    """
    builder = _Builder()
    tensor = FLOAT_BYTES * _HIDDEN
    ends = [_linear_branch(builder, f"branch {branch}", layers) for branch in range(branches)]
    builder.move("concat", 2 * branches * tensor, 0, branches * tensor, dict.fromkeys(ends, float(tensor)))
    return builder.finish(f"candle-uno-{branches}x{layers}", devices, minibatch or 1024 * devices)


def sequential_transformer(layers: int = 32, devices: int = 8, minibatch: int | None = None) -> StageGraph:
    """Appendix A.3: a chain of transformer layers, as large as those of the multi-modal transformer and as many."""
    builder = _Builder()
    _transformer_branch(builder, "", layers)
    return builder.finish(f"transformer-{layers}", devices, minibatch or 16 * devices)
