"""torchtitan: a recipe, which is a Python function that returns a configuration; it changes one of yours.

Activations of all transformer layers are recomputed, or of none.

Source: torchtitan/config/configs.py and torchtitan/distributed/pipeline_parallel.py (b5bcd76c6, 2026-08-21).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile

from planner.training.trainers.layout import Layer, Layout, Stage
from planner.training.trainers.literals import constant, constants, read_constant

_PARALLELISM = "config.parallelism."
_MODE = "config.activation_checkpoint.mode"
_SCHEDULES = {"gpipe": "GPipe", "interleaved": "Interleaved1F1B"}
_BATCH = ",\nin which training.local_batch_size is {each} times parallelism.pipeline_parallel_microbatch_size"

_OF_TRANSFORMERS = re.compile(r"(?:model\.)?(tok_embeddings|embed_tokens|norm|lm_head|layers\.\d+)")

_RECIPE = '''"""A plan's layout as a torchtitan recipe: {world} devices, pipeline {pp} x data {dp} x tensor {tp}.

Call `planned` in a function of your own that torchtitan finds (MODULE=... CONFIG=... ./run_train.sh), with the function
of the configuration to begin with{batch}:

    def my_model_planned():
        return planned(my_model)
"""

{parts}
# The modules whose activations the mode below is about.
{blocks}


def planned(base):
    """The configuration that ``base()`` returns, with the plan's layout."""
    config = base()
{assigned}
    config.parallelism.module_fqns_per_model_part = MODULE_FQNS_PER_MODEL_PART
    return config
'''


def own_names(modules: Iterable[str]) -> dict[str, str] | None:
    """What torchtitan calls the modules of a decoder of transformers (Llama, Qwen, Mixtral, gpt-oss).

    >>> own_names(["model.embed_tokens", "model.layers.0", "model.norm", "lm_head"])
    {'model.embed_tokens': 'tok_embeddings', 'model.layers.0': 'layers.0', 'model.norm': 'norm', 'lm_head': 'lm_head'}

    Returns
    -------
    dict or None
        ``None`` if one of them is no such module.

    Source
    ------
    ``from_hf_map`` of torchtitan/models/*/state_dict_adapter.py.
    """
    paths = {module: module.split(".") for module in modules}
    levels = zip(*paths.values(), strict=False)
    around = sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, levels))  # of a model that holds it
    found = {}
    for module, path in paths.items():
        match = _OF_TRANSFORMERS.fullmatch(".".join(path[around:]))
        if match is None:
            return None
        found[module] = "tok_embeddings" if match[1] == "embed_tokens" else match[1]
    return found


def write(layout: Layout) -> str:
    """A recipe. ``layout`` has one pair of degrees, named modules, and all decoder layers recomputed or none."""
    pp, dp, tp = layout.pp_degree, layout.dp_degree, layout.tp_degree
    default, each = "1F1B" if layout.virtual == 1 else "Interleaved1F1B", layout.microbatches_each
    assigned = {
        _PARALLELISM + "pipeline_parallel_degree": pp,
        _PARALLELISM + "data_parallel_replicate_degree": dp,
        _PARALLELISM + "data_parallel_shard_degree": 1,
        _PARALLELISM + "tensor_parallel_degree": tp,
        _PARALLELISM + "pipeline_parallel_schedule": _SCHEDULES.get(layout.schedule or "", default),
        _MODE: "full" if any(layer.recompute for layer in layout.layers) else "none",
    }
    parts = [[module for layer in stage.layers for module in layer.modules] for stage in layout.stages]
    return _RECIPE.format(
        world=layout.world_size,
        batch="" if each is None else _BATCH.format(each=each),
        pp=pp,
        dp=dp,
        tp=tp,
        parts=constant("MODULE_FQNS_PER_MODEL_PART", parts),
        blocks=constant("BLOCKS", [module for row in layout.decoders() for layer in row for module in layer.modules]),
        assigned="\n".join(f"    {constant(name, value)}" for name, value in assigned.items()),
    )


def read(text: str) -> Layout:
    """The layout of a recipe, a layer for each module; `ValueError` for another text."""
    found = constants(text)
    pp = read_constant(found, _PARALLELISM + "pipeline_parallel_degree", int)
    dp = read_constant(found, _PARALLELISM + "data_parallel_replicate_degree", int)
    tp = read_constant(found, _PARALLELISM + "tensor_parallel_degree", int)
    recomputed = set(read_constant(found, "BLOCKS", list) if read_constant(found, _MODE, str) == "full" else [])
    parts = read_constant(found, "MODULE_FQNS_PER_MODEL_PART", list)
    if pp < 1 or len(parts) % pp:
        raise ValueError(f"{len(parts)} parts of the model on {pp} ranks; expected as many on each")
    stages = tuple(Stage(tuple(Layer("", (name,), name in recomputed) for name in part), dp, tp) for part in parts)
    return Layout(stages, virtual=len(parts) // pp)
