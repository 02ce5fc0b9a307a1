"""DeepSpeed: a subclass of PipelineModule that cuts where the plan does (no ``partition_method`` can).

A layer is one entry of the list that PipelineModule is given; any of them can be recomputed.

Source: deepspeed/runtime/pipe/module.py, ``_partition_layers`` and ``_is_checkpointable``, 0.19.6 (edaa72212,
2026-08-22).
"""

from itertools import accumulate, pairwise
from typing import Any

from planner.training.trainers.checked import CHECKED
from planner.training.trainers.layout import Layer, Layout, Stage
from planner.training.trainers.literals import constant, constants, read_constant

#: What CONFIG says of 16-bit weights. Releases before 0.19.8 else have gradients of 32 bits without ZeRO.
_OF_DTYPES: dict[str | None, dict[str, Any]] = {
    "bf16": {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "bf16"}},
    "fp16": {"fp16": {"enabled": True}},
}

_FILE = '''"""A plan's layout for DeepSpeed: {world} devices, pipeline {pp} x data {dp} x tensor {tp}.

Give PlannedPipeline the layers of the model in the order of LAYERS, each made of the modules that are named there, and
as many tensor-parallel ranks as TENSOR_PARALLEL (a `topology` of PipeModelDataParallelTopology, if more than one):

    PlannedPipeline(layers, num_stages=len(PARTS) - 1, loss_fn=loss)

and CONFIG to deepspeed.initialize. A training step has {batch}.
{checked}
"""

from deepspeed.pipe import PipelineModule

# Stage i has the layers PARTS[i], ..., PARTS[i + 1] - 1.
{parts}
# The numbers of the layers whose activations are recomputed.
{recomputed}
{data}
{tensor}
{layers}
{config}
# Tokens of a sample; None: the plan does not know.
{tokens}


class PlannedPipeline(PipelineModule):
    """A pipeline of the plan's stages."""

    def __init__(self, layers, **options):
        super().__init__(layers, **{{**options, "activation_checkpoint_interval": int(bool(RECOMPUTED))}})

    def _partition_layers(self, method="uniform"):
        if len(PARTS) != self._topo.get_dim("pipe") + 1 or PARTS[-1] != len(self._layer_specs):
            raise ValueError(f"the plan has {{len(PARTS) - 1}} stages of {{PARTS[-1]}} layers")
        self.parts = PARTS
        stage = self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=PARTS[stage], stop=PARTS[stage + 1])

    def _is_checkpointable(self, funcs):
        first = next(place for place, func in enumerate(self.forward_funcs) if func is funcs[0])
        return self._local_start + first in RECOMPUTED
'''


def write(layout: Layout) -> str:
    """The file. ``layout`` has one pair of degrees, named modules and one stage on each rank."""
    layers, batch = layout.layers, layout.batch
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": batch.samples,
        "gradient_accumulation_steps": batch.microbatches,
        "train_batch_size": batch.global_samples,
        **_OF_DTYPES.get("bf16" if layout.dtype == "fp8" else layout.dtype, {}),
    }
    if layout.sharding:
        config["zero_optimization"] = {"stage": layout.sharding}
    return _FILE.format(
        world=layout.world_size,
        batch=batch.says(),
        checked=CHECKED["deepspeed"].says(),
        pp=layout.pp_degree,
        dp=layout.dp_degree,
        tp=layout.tp_degree,
        parts=constant("PARTS", [0, *accumulate(len(stage.layers) for stage in layout.stages)]),
        recomputed=constant("RECOMPUTED", [place for place, layer in enumerate(layers) if layer.recompute]),
        data=constant("DATA_PARALLEL", layout.dp_degree),
        tensor=constant("TENSOR_PARALLEL", layout.tp_degree),
        layers=constant("LAYERS", [list(layer.modules) for layer in layers]),
        config=constant("CONFIG", config),
        tokens=constant("SEQUENCE_LENGTH", batch.tokens),
    )


def read(text: str) -> Layout:
    """The layout of such a file, a layer for each module; `ValueError` for another text."""
    found = constants(text)
    parts, recomputed = read_constant(found, "PARTS", list), set(read_constant(found, "RECOMPUTED", list))
    dp, tp = read_constant(found, "DATA_PARALLEL", int), read_constant(found, "TENSOR_PARALLEL", int)
    names = read_constant(found, "LAYERS", list)
    if parts[:1] != [0] or parts[-1:] != [len(names)] or sorted(parts) != parts:
        raise ValueError(f"PARTS is {parts}; expected rising numbers from 0 to {len(names)}, the number of layers")
    layers = [Layer("", tuple(modules), place in recomputed) for place, modules in enumerate(names)]
    return Layout(tuple(Stage(tuple(layers[start:end]), dp, tp) for start, end in pairwise(parts))).by_module()
