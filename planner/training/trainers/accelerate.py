"""Hugging Face Accelerate: a ``device_map``, the device of each module, for inference.

One device holds one stage; there are no replicas, and nothing is recomputed.

Source: src/accelerate/inference.py and utils/modeling.py (16cb6eb8, 2026-07-24).
"""

import json

from planner.training.trainers.layout import Layer, Layout, Stage


def write(layout: Layout) -> str:
    """JSON of the device map alone. Every stage of ``layout`` has one device; modules are named, each in one stage."""
    placed = {
        module: device
        for device, stage in enumerate(layout.stages)
        for layer in stage.layers
        for module in layer.modules
    }
    return json.dumps(placed, indent=1) + "\n"


def read(text: str) -> Layout:
    """The layout of a device map whose devices are numbered in the order of the model; `ValueError` for another."""
    try:
        placed = list(json.loads(text).items())
    except AttributeError:
        raise ValueError("the file is no object; expected a device_map") from None
    devices = [device for _, device in placed]
    if not devices or sorted(set(devices)) != list(range(len(set(devices)))) or sorted(devices) != devices:
        raise ValueError(f"devices are {devices[:8]}; expected 0, 1, ... in the order of the modules")
    return Layout(
        tuple(
            Stage(tuple(Layer("", (module,)) for module, where in placed if where == device))
            for device in range(devices[-1] + 1)
        )
    )
