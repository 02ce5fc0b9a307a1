"""torchtitan: a recipe, which is a Python function that returns a configuration; it changes one of yours.

Activations of all transformer layers are recomputed, or of none.

Source: torchtitan/config/configs.py, torchtitan/distributed/pipeline_parallel.py and activation_checkpoint.py of 0.3.0;
torchtitan/config/job_config.py of 0.2.2, where the mode of activation checkpointing is a word.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile

from planner.training.trainers import pytorch
from planner.training.trainers.checked import CHECKED
from planner.training.trainers.layout import Layer, Layout, Stage
from planner.training.trainers.literals import constant, constants, read_constant

_PARALLELISM, _TRAINING = "config.parallelism.", "config.training."
_NAMES = "context_parallel_degree", "expert_parallel_degree"
_SCHEDULES = {"gpipe": "GPipe", "interleaved": "Interleaved1F1B", "zb-v": "ZBVZeroBubble", "dualpipe-v": "DualPipeV"}

_OF_TRANSFORMERS = re.compile(r"(?:model\.)?(tok_embeddings|embed_tokens|norm|lm_head|layers\.\d+)")

_RECIPE = '''"""A plan's layout as a torchtitan recipe: {world} devices, pipeline {pp} x data {dp} x tensor {tp}.

A training step has {batch}.
{checked}

Call `planned` in a function of your own that torchtitan finds (MODULE=... CONFIG=... ./run_train.sh), with the function
of the configuration to begin with:

    def my_model_planned():
        return planned(my_model)

torchtitan 0.2 has no such functions, but a parser that returns a configuration:

    torchtitan.train.Trainer(planned(torchtitan.config.ConfigManager().parse_args)).train()
"""

import dataclasses

{parts}
# The modules whose activations are recomputed, or not.
{blocks}
{recomputed}


def planned(base):
    """The configuration that ``base()`` returns, with the plan's layout and batch, checked by its class."""
    config = base()
{assigned}
    parts = MODULE_FQNS_PER_MODEL_PART
    try:
        from torchtitan.distributed.activation_checkpoint import FullAC
    except ImportError:  # up to 0.2, where the mode has a name, and so has the head another one
        config.activation_checkpoint.mode = "full" if RECOMPUTED else "none"
        parts = [["output" if name == "lm_head" else name for name in part] for part in parts]
        if config.parallelism.expert_parallel_degree > 1:  # of experts that tensor-parallel devices split
            config.parallelism.expert_parallel_degree //= config.parallelism.tensor_parallel_degree
            config.parallelism.expert_tensor_parallel_degree = config.parallelism.tensor_parallel_degree
    else:
        config.activation_checkpoint = FullAC.Config() if RECOMPUTED else None
        if config.parallelism.pipeline_parallel_degree > 1:
            config.training.disable_cuda_graphs = True  # they do not run in a pipeline
    config.parallelism.module_fqns_per_model_part = parts
    return dataclasses.replace(config)
'''


def own_names(modules: Iterable[str]) -> dict[str, str] | None:
    """What torchtitan calls the modules of a decoder of transformers (Llama, Qwen, Mixtral, gpt-oss).

    >>> own_names(["model.embed_tokens", "model.layers.0", "model.norm", "lm_head"])
    {'model.embed_tokens': 'tok_embeddings', 'model.layers.0': 'layers.0', 'model.norm': 'norm', 'lm_head': 'lm_head'}

    Returns: ``None`` if one of them is no such module.
    Source: ``from_hf_map`` of torchtitan/models/*/state_dict_adapter.py.
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
    """A recipe. ``layout`` has one pair of degrees, named modules, and all decoder layers recomputed or none.

    Replicas, or those of a group, are shards of FSDP, as torchtitan has no others beside a pipeline or tensor
    parallelism. All micro-batches of a pipeline are one local batch, as gradient accumulation empties it; without one
    they are accumulated.
    """
    pp, dp, tp = layout.pp_degree, layout.dp_degree, layout.tp_degree
    batch = replace(layout.batch, microbatches=pytorch.microbatches(layout))
    default = "1F1B" if layout.virtual == 1 else "Interleaved1F1B"
    is_sharded = layout.sharding > 0 or pp * tp * layout.context * layout.expert > 1
    assigned = {
        _PARALLELISM + "pipeline_parallel_degree": pp,
        _PARALLELISM + "data_parallel_replicate_degree": layout.groups if is_sharded else dp,
        _PARALLELISM + "data_parallel_shard_degree": dp // layout.groups if is_sharded else 1,
        _PARALLELISM + "tensor_parallel_degree": tp,
        _PARALLELISM + "pipeline_parallel_schedule": _SCHEDULES.get(layout.schedule or "", default),
        _PARALLELISM + "pipeline_parallel_microbatch_size": batch.samples,
        _TRAINING + "local_batch_size": batch.samples * (batch.microbatches if pp > 1 else 1),
        _TRAINING + "global_batch_size": batch.global_samples,
        **{_PARALLELISM + name: degree for name, degree in _shared(layout).items() if degree > 1},
        **({} if batch.tokens is None else {_TRAINING + "seq_len": batch.tokens}),
    }
    parts = [[module for layer in stage.layers for module in layer.modules] for stage in layout.stages]
    return _RECIPE.format(
        world=layout.world_size,
        batch=batch.says(),
        checked=CHECKED["torchtitan"].says(),
        pp=pp,
        dp=dp,
        tp=tp,
        parts=constant("MODULE_FQNS_PER_MODEL_PART", parts),
        blocks=constant("BLOCKS", [module for row in layout.decoders() for layer in row for module in layer.modules]),
        recomputed=constant("RECOMPUTED", any(layer.recompute for layer in layout.layers)),
        assigned="\n".join(f"    {constant(name, value)}" for name, value in assigned.items()),
    )


def _shared(layout: Layout) -> dict[str, int]:
    """Degrees by their names. Experts are whole on each of the devices that share them: no other ones split them."""
    whole = layout.expert * layout.tp_degree if layout.expert > 1 else 1
    return dict(zip(_NAMES, (layout.context, whole), strict=True))


def read(text: str) -> Layout:
    """The layout of a recipe, a layer for each module; `ValueError` for another text."""
    found = constants(text)
    pp, replicas, shards, tp = (
        read_constant(found, f"{_PARALLELISM}{name}_degree", int)
        for name in ("pipeline_parallel", "data_parallel_replicate", "data_parallel_shard", "tensor_parallel")
    )
    recomputed = set(read_constant(found, "BLOCKS", list) if read_constant(found, "RECOMPUTED", bool) else [])
    parts = read_constant(found, "MODULE_FQNS_PER_MODEL_PART", list)
    if pp < 1 or len(parts) % pp:
        raise ValueError(f"{len(parts)} parts of the model on {pp} ranks; expected as many on each")
    stages = (
        Stage(tuple(Layer("", (name,), name in recomputed) for name in part), replicas * shards, tp) for part in parts
    )
    context, whole = (int(found.get(_PARALLELISM + name, 1)) for name in _NAMES)
    expert = max(1, whole // tp)
    groups = replicas if shards * context > 1 else 1  # else nothing is shared
    return Layout(tuple(stages), virtual=len(parts) // pp, context=context, expert=expert, groups=groups)
