"""What an instance of amp strategy is read from, and what a caller may change of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from instances.parameters import Setting, choice, parse_count
from instances.problems.amp_strategy import LAYER_TIMES, PLACEMENTS, AmpInstance
from instances.units import parse_bandwidth

#: What is minimised.
MINIMISES = {"": "time of a training step"}
OVERRIDES = (
    Setting("global-batch", parse_count, "samples of a training step", metavar="B"),
    Setting(
        "inter-bandwidth", parse_bandwidth, "network bandwidth between any two nodes, such as 1GB/s", metavar="RATE"
    ),
    choice("placement", PLACEMENTS, "which placements of ranks on devices are considered"),
    choice(
        "layer-times", LAYER_TIMES, "a layer's time: mean of all nodes, as released, or slowest of its stage's GPUs"
    ),
)


def apply(instance: AmpInstance, overrides: Mapping[str, Any], _: str) -> AmpInstance:
    """The instance as the caller declares it."""
    rate = overrides.get("inter-bandwidth")
    return replace(
        instance,
        global_batch=overrides.get("global-batch") or instance.global_batch,
        placement=overrides.get("placement") or instance.placement,
        layer_times=overrides.get("layer-times") or instance.layer_times,
        nodes=tuple(replace(node, inter_bytes_per_s=rate or node.inter_bytes_per_s) for node in instance.nodes),
        options={**instance.options, **overrides},
    )


def describe(instance: AmpInstance) -> dict[str, Any]:
    """The key figures of an instance."""
    return {
        "layers": len(instance.layers),
        "nodes": len(instance.nodes),
        "devices": instance.num_devices,
        "global_batch": instance.global_batch,
        "placement": instance.placement,
        "layer_times": instance.layer_times,
    }
