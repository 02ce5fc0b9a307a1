"""Training strategies on a cluster of unlike nodes: degrees, micro-batch, layer assignment, placement (nouns only).

Source: AMP's supplement, sections 6.2 and 6.5, and the profiles published with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from instances.layer_assignment import TiedParameters

#: How ranks may be placed on devices.
MEGATRON, TILING, ORIENTED = "megatron", "tiling", "oriented"
PLACEMENTS = (MEGATRON, TILING, ORIENTED)


@dataclass(frozen=True)
class Node:
    """A node: its kind of GPU, and the bandwidth between its GPUs and to other nodes."""

    gpu: str
    intra_bytes_per_s: float
    inter_bytes_per_s: float


@dataclass(frozen=True)
class ModelLayer:
    """A layer.

    ``forward_s[gpu][tp]``: forward seconds of one sample on a kind of GPU at a tensor-parallel degree.
    ``activation_bytes``: sent to the next layer for one sample; ``split_activation``: each of the tensor-parallel ranks
    holds its part alone. ``parameters`` are split by tensor parallelism.
    """

    forward_s: Mapping[str, Mapping[int, float]]
    activation_bytes: float
    parameters: float = 0.0
    split_activation: bool = False


@dataclass(frozen=True)
class AmpInstance:
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
    """

    name: str
    nodes: tuple[Node, ...]
    devices_per_node: int
    layers: tuple[ModelLayer, ...]
    global_batch: int
    tied: tuple[TiedParameters, ...] = ()
    parameter_bytes: float = 4.0
    passes: float = 3.0
    head_layers: int = 0
    tail_layers: int = 0
    released_framing: tuple[int, int] | None = None
    placement: str = MEGATRON
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


def to_json(instance: AmpInstance) -> dict[str, Any]:
    """The instance in the project's own JSON; reading it back gives an equal instance."""
    content: dict[str, Any] = {
        "problem": "amp_strategy",
        "schema_version": 1,
        "name": instance.name,
        "nodes": [
            {
                "gpu": node.gpu,
                "intra_bytes_per_s": node.intra_bytes_per_s,
                "inter_bytes_per_s": node.inter_bytes_per_s,
            }
            for node in instance.nodes
        ],
        "devices_per_node": instance.devices_per_node,
        "global_batch": instance.global_batch,
        "layers": [
            {
                "forward_s": {
                    gpu: {str(degree): seconds for degree, seconds in times.items()}
                    for gpu, times in layer.forward_s.items()
                },
                "activation_bytes": layer.activation_bytes,
                "parameters": layer.parameters,
                "split_activation": layer.split_activation,
            }
            for layer in instance.layers
        ],
        "tied": [{"layers": list(tie.layers), "parameters": tie.parameters} for tie in instance.tied],
        "parameter_bytes": instance.parameter_bytes,
        "passes": instance.passes,
        "head_layers": instance.head_layers,
        "tail_layers": instance.tail_layers,
        "placement": instance.placement,
    }
    if instance.released_framing is not None:
        content["released_framing"] = list(instance.released_framing)
    return content
