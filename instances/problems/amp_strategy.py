"""Training strategies on heterogeneous nodes: degrees, micro-batch, layer assignment, placement (nouns only).

Source: AMP's supplement, sections 6.2 and 6.5, and the profiles published with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from instances.errors import expect
from instances.exchange import in_files
from instances.problems.layer_assignment import TiedParameters
from instances.rules import Amount, Bandwidth, Count, Declared, Degree, Flag, Identifier, Index, one_of

#: How ranks may be placed on devices.
MEGATRON, TILING, ORIENTED = "megatron", "tiling", "oriented"
PLACEMENTS = (MEGATRON, TILING, ORIENTED)

#: What a layer's time is where nodes have different kinds of GPU.
MEAN, SLOWEST = "mean", "slowest"
LAYER_TIMES = (MEAN, SLOWEST)


@dataclass(frozen=True)
class Node:
    """A node: its kind of GPU, and the bandwidth between its GPUs and to other nodes."""

    gpu: Identifier
    intra_bytes_per_s: Bandwidth
    inter_bytes_per_s: Bandwidth


@dataclass(frozen=True)
class ModelLayer:
    """A layer.

    ``forward_s[gpu][tp]``: forward seconds of one sample on a kind of GPU at a tensor-parallel degree.
    ``activation_bytes``: sent to the next layer for one sample; ``split_activation``: each of the tensor-parallel ranks
    holds its part alone. ``parameters`` are split by tensor parallelism.
    """

    forward_s: Mapping[str, Mapping[Degree, Amount]]
    activation_bytes: Amount
    parameters: Amount = 0.0
    split_activation: Flag = False


@in_files(
    *("name", "nodes", "devices_per_node", "global_batch", "layers", "tied", "parameter_bytes", "passes"),
    *("head_layers", "tail_layers", "placement", "released_framing?", "layer_times?"),
    problem="amp_strategy",
    absent={"name": "strategies"},
)
@dataclass(frozen=True)
class AmpInstance(Declared):
    """A model, a cluster, and a global batch.

    Parameters
    ----------
    nodes, devices_per_node
        Devices are numbered node by node.
    global_batch
        Samples of a training step.
    tied
        Parameters that layers share.
    parameter_bytes
        Of one parameter's gradient in the data-parallel all-reduce.
    passes
        Forward and backward together, in forward times.
    head_layers, tail_layers
        Layers before and after the equal blocks, as Megatron splits them.
    released_framing
        The same two numbers as AMP's released program takes them where a stage has one micro-batch.
    placement
        ``megatron``: device r has rank r. ``tiling``: also every tiling of the mesh by one tile for each stage, in
        reading order, ranks handed out down the columns as released. ``oriented``: the same tilings, with
        tensor-parallel groups down upright tiles and across lying ones.
    layer_times
        ``mean``: over all nodes, wherever the layer runs, as released. ``slowest``: on the slowest of the kinds of GPU
        that the layer's stage has.
    """

    name: Identifier
    nodes: tuple[Node, ...]
    devices_per_node: Count
    layers: tuple[ModelLayer, ...]
    global_batch: Count
    tied: tuple[TiedParameters, ...] = ()
    parameter_bytes: Amount = 4.0
    passes: Amount = 3.0
    head_layers: Index = 0
    tail_layers: Index = 0
    released_framing: tuple[Index, Index] | None = None
    placement: Annotated[str, one_of(*PLACEMENTS)] = MEGATRON
    layer_times: Annotated[str, one_of(*LAYER_TIMES)] = MEAN
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_devices(self) -> int:
        """Devices of all nodes."""
        return len(self.nodes) * self.devices_per_node

    def bandwidth(self, device: int, other: int) -> float:
        """Bytes per second between two devices."""
        here, there = self.nodes[device // self.devices_per_node], self.nodes[other // self.devices_per_node]
        if device // self.devices_per_node == other // self.devices_per_node:
            return here.intra_bytes_per_s
        return min(here.inter_bytes_per_s, there.inter_bytes_per_s)


def check(instance: AmpInstance, where: str) -> None:
    """Rules between fields.

    Raises
    ------
    InstanceError
        No node or layer, a kind of GPU without times, layers profiled at different degrees, tied layers that do not
        exist, more framing layers than layers.
    """
    expect(bool(instance.nodes), where, "nodes", [], "at least one node")
    expect(bool(instance.layers), where, "layers", [], "at least one layer")
    kinds = {node.gpu for node in instance.nodes}
    degrees = {degree for times in instance.layers[0].forward_s.values() for degree in times}
    for number, layer in enumerate(instance.layers):
        for kind in sorted(kinds):
            known = set(layer.forward_s.get(kind, {}))
            rule = f"times at the degrees of the first layer, {sorted(degrees)}"
            expect(known == degrees, where, f"layers[{number}].forward_s.{kind}", sorted(known), rule)
    for number, tie in enumerate(instance.tied):
        known_layers = bool(tie.layers) and max(tie.layers) < len(instance.layers)
        rule = f"layers from 0 to {len(instance.layers) - 1}, at least one"
        expect(known_layers, where, f"tied[{number}].layers", list(tie.layers), rule)
    for name, (head, tail) in {
        "head_layers + tail_layers": (instance.head_layers, instance.tail_layers),
        "released_framing": instance.released_framing or (0, 0),
    }.items():
        expect(head + tail <= len(instance.layers), where, name, head + tail, f"at most {len(instance.layers)} layers")
