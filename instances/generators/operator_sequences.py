"""Operator graphs of transformers and recurrent networks: BERT, Swin, GNMT (see operator_graphs.py for the costs)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from instances.generators.operator_graphs import DEVICES, Builder
from instances.problems.operator_partitioning import OperatorInstance


def bert(
    name: str = "bert-l",
    layers: int = 24,
    hidden_size: int = 1024,
    heads: int = 16,
    sequence_length: int = 512,
    microbatch_size: int = 8,
    vocabulary: int = 30522,
    device: str = "v100",
) -> OperatorInstance:
    """BERT with its two heads of pre-training. Source: Devlin et al., section 3."""
    graph = Builder(name, DEVICES[device])
    tokens = graph.add("input", [], (microbatch_size, sequence_length), passes=0, gradient=False)
    mask = graph.add("mask", [tokens], (microbatch_size, 1, 1, sequence_length), gradient=False)
    wide = (microbatch_size, sequence_length, hidden_size)
    words = graph.add("embedding", [tokens], wide, parameters=vocabulary * hidden_size)
    places = graph.add("embedding", [tokens], wide, parameters=(sequence_length + 2) * hidden_size)
    now = graph.pointwise("dropout", _layer_norm(graph, graph.pointwise("add", words, places)))
    for _ in range(layers):
        now = _encoder_layer(graph, now, mask, heads)
    pooled = graph.pointwise(
        "tanh", graph.linear(graph.add("slice", [now], (microbatch_size, hidden_size)), hidden_size)
    )
    sentence = graph.linear(pooled, 2)
    guess = _layer_norm(graph, graph.pointwise("gelu", graph.linear(now, hidden_size)))
    # The decoder's weights are the embedding's; they count there.
    flops = 2.0 * math.prod(wide) * vocabulary
    scores = graph.add("decoder", [guess], (microbatch_size, sequence_length, vocabulary), flops)
    graph.add("loss", [scores, sentence], (1,), passes=2.0)
    return graph.instance()


def _layer_norm(graph: Builder, source: int) -> int:
    return graph.pointwise("layernorm", source, passes=2.0, parameters=2 * graph.shape(source)[-1])


def _encoder_layer(graph: Builder, source: int, mask: int, heads: int) -> int:
    """Attention and feed-forward network, each with a residual and a norm behind it."""
    batch, length, width = graph.shape(source)
    head = (batch, heads, length, width // heads)
    query, key, value = (graph.add("permute", [graph.linear(source, width)], head) for _ in range(3))
    scores = graph.matmul(query, key, (batch, heads, length, length), width // heads)
    scores = graph.pointwise("dropout", graph.pointwise("softmax", graph.pointwise("add", scores, mask)))
    context = graph.matmul(scores, value, head, length)
    attended = graph.linear(graph.add("permute", [context], (batch, length, width)), width)
    source = _layer_norm(graph, graph.pointwise("add", graph.pointwise("dropout", attended), source))
    inner = graph.pointwise("gelu", graph.linear(source, 4 * width))
    return _layer_norm(graph, graph.pointwise("add", graph.pointwise("dropout", graph.linear(inner, width)), source))


@dataclass(frozen=True)
class _Windows:
    """How a Swin block attends."""

    heads: int
    side: int
    shifted: bool


def swin(
    name: str = "swin-l",
    width: int = 192,
    depths: Sequence[int] = (2, 2, 18, 2),
    microbatch_size: int = 16,
    image_size: int = 224,
    window: int = 7,
    device: str = "v100",
) -> OperatorInstance:
    """A Swin transformer for ImageNet; heads have 32 channels. Source: Liu et al., Swin Transformer, section 3."""
    graph = Builder(name, DEVICES[device])
    image = graph.add("input", [], (microbatch_size, 3, image_size, image_size), passes=0)
    side = image_size // 4
    shape = (microbatch_size, side, side, width)
    now = _layer_norm(graph, graph.add("conv", [image], shape, 2.0 * math.prod(shape) * 48, 48 * width + width))
    for level, depth in enumerate(depths):
        for block in range(depth):
            side = min(window, graph.shape(now)[1])
            shifted = block % 2 == 1 and side < graph.shape(now)[1]
            now = _swin_block(graph, now, _Windows(width * 2**level // 32, side, shifted))
        if level + 1 < len(depths):
            now = _merge_patches(graph, now)
    batch, _, _, channels = graph.shape(now)
    pooled = graph.add("avgpool", [_layer_norm(graph, now)], (batch, channels))
    graph.add("loss", [graph.linear(pooled, 1000)], (1,), passes=2.0)
    return graph.instance()


def _swin_block(graph: Builder, source: int, windows: _Windows) -> int:
    batch, height, width, channels = graph.shape(source)
    area, heads = windows.side**2, windows.heads
    count = batch * -(-height // windows.side) * -(-width // windows.side)
    now = _layer_norm(graph, source)
    now = graph.pointwise("roll", now) if windows.shifted else now
    now = graph.linear(graph.add("permute", [now], (count, area, channels)), 3 * channels)
    head = (count, heads, area, channels // heads)
    query, key, value = (graph.add("slice", [now], head) for _ in range(3))
    scores = graph.matmul(graph.pointwise("scale", query), key, (count, heads, area, area), channels // heads)
    scores = graph.pointwise("bias", scores, parameters=(2 * windows.side - 1) ** 2 * heads)
    scores = graph.pointwise("mask", scores) if windows.shifted else scores
    context = graph.matmul(graph.pointwise("softmax", scores), value, head, area)
    now = graph.linear(graph.add("permute", [context], (count, area, channels)), channels)
    now = graph.add("permute", [now], (batch, height, width, channels))
    now = graph.pointwise("roll", now) if windows.shifted else now
    source = graph.pointwise("add", now, source)
    inner = graph.linear(graph.pointwise("gelu", graph.linear(_layer_norm(graph, source), 4 * channels)), channels)
    return graph.pointwise("add", inner, source)


def _merge_patches(graph: Builder, source: int) -> int:
    """Patch merging: four neighbours side by side, then half of their channels."""
    batch, height, width, channels = graph.shape(source)
    quarter = (batch, height // 2, width // 2, channels)
    parts = [graph.add("slice", [source], quarter) for _ in range(4)]
    together = graph.add("concat", parts, (*quarter[:3], 4 * channels))
    return graph.linear(_layer_norm(graph, together), 2 * channels, bias=False)


def gnmt(
    name: str = "gnmt",
    layers: int = 8,
    hidden_size: int = 1024,
    sequence_length: int = 50,
    microbatch_size: int = 64,
    vocabulary: int = 32000,
    device: str = "v100",
) -> OperatorInstance:
    """Translation with stacked LSTMs and attention, a whole sequence to an operator.

    The attention of the first decoder layer goes to all later ones. Source: Wu et al., Google's Neural Machine
    Translation System, section 3.
    """
    graph = Builder(name, DEVICES[device])
    wide = (microbatch_size, sequence_length, hidden_size)
    words = [graph.add("input", [], wide[:2], passes=0, gradient=False) for _ in range(2)]
    source, target = (graph.add("embedding", [each], wide, parameters=vocabulary * hidden_size) for each in words)
    encoder = graph.pointwise("dropout", source)
    ways = [_lstm(graph, [encoder], hidden_size) for _ in range(2)]
    encoder = graph.add("concat", ways, (*wide[:2], 2 * hidden_size))
    for layer in range(1, layers):
        out = _lstm(graph, [graph.pointwise("dropout", encoder)], hidden_size)
        encoder = graph.pointwise("add", out, encoder) if layer > 1 else out
    decoder = _lstm(graph, [graph.pointwise("dropout", target)], hidden_size)
    square = (microbatch_size, sequence_length, sequence_length)
    keys = graph.linear(encoder, hidden_size, bias=False)
    scores = graph.matmul(graph.linear(decoder, hidden_size, bias=False), keys, square, hidden_size)
    context = graph.matmul(graph.pointwise("softmax", graph.pointwise("tanh", scores)), encoder, wide, sequence_length)
    for layer in range(1, layers):
        both = graph.add("concat", [graph.pointwise("dropout", decoder), context], (*wide[:2], 2 * hidden_size))
        out = _lstm(graph, [both], hidden_size)
        decoder = graph.pointwise("add", out, decoder) if layer > 1 else out
    graph.add("loss", [graph.linear(decoder, vocabulary)], (1,), passes=2.0)
    return graph.instance()


def _lstm(graph: Builder, inputs: list[int], hidden_size: int) -> int:
    """Four gates on the input and on the state before."""
    batch, length, depth = graph.shape(inputs[0])
    weights = 4 * hidden_size * (depth + hidden_size + 2)
    flops = 2.0 * batch * length * 4 * hidden_size * (depth + hidden_size)
    return graph.add("lstm", inputs, (batch, length, hidden_size), flops, weights)
