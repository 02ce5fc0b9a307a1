"""Operator graphs from architectures: shapes give operations, activation and parameter bytes; a device gives times.

An operator takes the longer of its floating-point operations and its bytes through memory, and a launch; forward, and
backward twice that where it has weights or multiplies two activations (a gradient for each), else once. Everything
is of one micro-batch in single precision. A tensor is an activation forward and its gradient back.

Source: the architectures as cited at their builders; the paper's own settings (its Appendix I) are not published:
Source: reconstructed. Rates: vendors' peaks and the share that large kernels reach, about.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from instances.problems.operator_partitioning import (
    Operator,
    OperatorInstance,
    TrainingMemory,
    in_topological_order,
    merge_edges,
)

#: Bytes of an element.
_ELEMENT = 4


@dataclass(frozen=True)
class Device:
    """An accelerator as operators see it: achieved operations and bytes per second, seconds of a launch."""

    name: str
    flop_per_s: float
    memory_bandwidth_bytes_per_s: float
    launch_s: float


DEVICES: Mapping[str, Device] = {
    "v100": Device("v100", 0.7 * 15.7e12, 0.75 * 900e9, 5e-6),
    "a100": Device("a100", 0.6 * 156e12, 0.75 * 2.0e12, 4e-6),
}

Shape = tuple[int, ...]


class Builder:
    """Collects operators; ``add`` returns the number that later operators name as their input."""

    def __init__(self, name: str, device: Device) -> None:
        self.name = name
        self._device = device
        self._operators: list[Operator] = []
        self._links: list[tuple[int, int]] = []
        self._shapes: list[Shape] = []

    def shape(self, operator: int) -> Shape:
        """The shape of an operator's output."""
        return self._shapes[operator]

    def add(
        self,
        kind: str,
        inputs: Sequence[int],
        shape: Shape,
        flops: float = 0.0,
        parameters: float = 0.0,
        passes: float = 1.0,
        gradient: bool = True,
    ) -> int:
        """One operator.

        ``flops`` are those of the forward pass, ``passes`` how often its inputs and its output go through memory
        (0: a view), ``gradient`` whether anything goes back.
        """
        number = len(self._operators)
        moved = passes * (sum(math.prod(self._shapes[each]) for each in set(inputs)) + math.prod(shape)) + parameters
        rate, band = self._device.flop_per_s, self._device.memory_bandwidth_bytes_per_s
        forward = max(flops / rate, moved * _ELEMENT / band) if passes else 0.0
        back = 2.0 if flops else 1.0
        launches = 0.0 if not passes else self._device.launch_s * (1 + back * gradient)
        seconds = forward * (1 + back * gradient) + launches
        size = math.prod(shape) * _ELEMENT
        self._operators.append(
            Operator(f"{kind}{number}", seconds, float(parameters * _ELEMENT), float(size), name=kind)
        )
        self._shapes.append(shape)
        self._links += [(each, number) for each in dict.fromkeys(inputs)]
        return number

    def pointwise(self, kind: str, *inputs: int, passes: float = 1.0, parameters: float = 0.0) -> int:
        """An operator of the same shape as its first input."""
        return self.add(kind, inputs, self.shape(inputs[0]), parameters=parameters, passes=passes)

    def linear(self, source: int, width: int, bias: bool = True) -> int:
        """A matrix product with weights on the last axis."""
        *rows, depth = self.shape(source)
        flops = 2.0 * math.prod(rows) * depth * width
        return self.add("linear", [source], (*rows, width), flops, depth * width + width * bias)

    def matmul(self, left: int, right: int, shape: Shape, depth: int) -> int:
        """A product of two activations, summed over ``depth``."""
        return self.add("matmul", [left, right], shape, 2.0 * math.prod(shape) * depth)

    def instance(self, training: TrainingMemory | None = None) -> OperatorInstance:
        """The graph; what gives nothing back is sent forward alone."""
        volumes = [(a, b, 2.0 * self._operators[a].activation_bytes) for a, b in self._links]
        operators, tensors = in_topological_order(self._operators, merge_edges(volumes))
        return OperatorInstance(self.name, operators, tensors, training=training or TrainingMemory())


def convolution(graph: Builder, source: int, channels: int, kernel: int, stride: int = 1, *, bias: bool = False) -> int:
    """A convolution of (batch, channels, height, width) with padding that keeps the size over the stride."""
    batch, depth, height, width = graph.shape(source)
    shape = (batch, channels, -(-height // stride), -(-width // stride))
    weights = channels * depth * kernel * kernel
    flops = 2.0 * math.prod(shape) * depth * kernel * kernel
    return graph.add("conv", [source], shape, flops, weights + channels * bias)


def add_normalisation(graph: Builder, source: int, kind: str = "batchnorm", relu: bool = True) -> int:
    """A normalisation over channels, two passes, and a ReLU."""
    channels = graph.shape(source)[1]
    done = graph.pointwise(kind, source, passes=2.0, parameters=2 * channels)
    return graph.pointwise("relu", done) if relu else done


def backbone(graph: Builder, image: int, blocks: Sequence[int]) -> list[int]:
    """The four levels of a ResNet with bottlenecks (He et al., Table 1), each by its last operator."""
    now = add_normalisation(graph, convolution(graph, image, 64, 7, 2))
    batch, channels, height, width = graph.shape(now)
    now = graph.add("maxpool", [now], (batch, channels, -(-height // 2), -(-width // 2)))
    levels = []
    for level, count in enumerate(blocks):
        for block in range(count):
            now = _bottleneck(graph, now, 64 * 2**level, 2 if block == 0 and level else 1)
        levels.append(now)
    return levels


def _bottleneck(graph: Builder, source: int, channels: int, stride: int) -> int:
    inner = add_normalisation(graph, convolution(graph, source, channels, 1))
    inner = add_normalisation(graph, convolution(graph, inner, channels, 3, stride))
    inner = add_normalisation(graph, convolution(graph, inner, 4 * channels, 1), relu=False)
    short = source
    if stride > 1 or graph.shape(source)[1] != 4 * channels:
        short = add_normalisation(graph, convolution(graph, source, 4 * channels, 1, stride), relu=False)
    return graph.pointwise("relu", graph.pointwise("add", inner, short))


def resnet(
    name: str, blocks: Sequence[int], microbatch_size: int = 16, image_size: int = 224, device: str = "v100"
) -> OperatorInstance:
    """A ResNet for ImageNet's thousand classes. Source: He et al., Deep Residual Learning, Table 1."""
    graph = Builder(name, DEVICES[device])
    image = graph.add("input", [], (microbatch_size, 3, image_size, image_size), passes=0)
    top = backbone(graph, image, blocks)[-1]
    batch, channels, _, _ = graph.shape(top)
    pooled = graph.add("avgpool", [top], (batch, channels))
    scores = graph.linear(pooled, 1000)
    graph.add("loss", [scores], (1,), passes=2.0)
    return graph.instance()


def semantic_fpn(
    name: str = "semantic-fpn", microbatch_size: int = 2, image_size: int = 512, device: str = "v100"
) -> OperatorInstance:
    """Semantic segmentation on a feature pyramid over ResNet-50; images are twice as wide as high.

    Source: Kirillov et al., Panoptic Feature Pyramid Networks, sections 3 and 4 (Figures 1 and 3).
    """
    graph = Builder(name, DEVICES[device])
    image = graph.add("input", [], (microbatch_size, 3, image_size, 2 * image_size), passes=0)
    levels = backbone(graph, image, (3, 4, 6, 3))
    pyramid: list[int] = []
    above: int | None = None
    for level in reversed(levels):
        now = convolution(graph, level, 256, 1, bias=True)
        if above is not None:
            now = graph.pointwise("add", now, _upsample(graph, above, 2))
        above = now
        pyramid.append(convolution(graph, now, 256, 3, bias=True))
    branches = []
    for doublings, source in zip((3, 2, 1, 0), pyramid, strict=True):
        now = source
        for _ in range(max(1, doublings)):
            now = add_normalisation(graph, convolution(graph, now, 128, 3), "groupnorm")
            now = _upsample(graph, now, 2) if doublings else now
        branches.append(now)
    total = branches[0]
    for branch in branches[1:]:
        total = graph.pointwise("add", total, branch)
    scores = _upsample(graph, convolution(graph, total, 54, 1, bias=True), 4)
    graph.add("loss", [scores], (1,), passes=2.0)
    return graph.instance()


def _upsample(graph: Builder, source: int, factor: int) -> int:
    batch, channels, height, width = graph.shape(source)
    return graph.add("upsample", [source], (batch, channels, factor * height, factor * width))
