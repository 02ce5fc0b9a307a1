"""Megatron-LM: ``--pipeline-model-parallel-layout``, with the arguments that belong to it.

Letters E (embedding), t (decoder layer), m (multi-token prediction), L (loss); ``|`` between stages in forward order;
``x*n`` is n times x. Only the same first n layers of each stage can be recomputed, or a part of all.

Source: megatron/core/transformer/pipeline_parallel_layer_layout.py, Megatron core 0.20.0 (d98e8a64dd, 2026-08-22);
megatron/training/arguments.py for the batch: micro-batches are global / (micro-batch * data) for each replica.
"""

import re
from itertools import groupby

from planner.training.trainers.checked import CHECKED
from planner.training.trainers.layout import DECODER, EMBEDDING, HEAD, MTP, Layer, Layout, Stage

_LETTERS = {EMBEDDING: "E", DECODER: "t", MTP: "m", HEAD: "L"}
_ROLES = {letter: role for role, letter in _LETTERS.items()}
_ARGUMENT = re.compile(r"--([a-z-]+) (?:\"([^\"]*)\"|(\S+))")
_SHARING = "context-parallel-size", "expert-model-parallel-size", "num-distributed-optimizer-instances"
#: Replicas are outermost on the devices.
_OUTERMOST = "--use-tp-pp-dp-mapping"
_WORLD = re.compile(r"WORLD_SIZE=(\d+)")
#: As Megatron's own parser unrolls them, in this order.
_REPEATED = (re.compile(r"\(([^)]+)\)\*(\d+)"), re.compile(r"(.)\*(\d+)"))


def write(layout: Layout) -> str:
    """Lines of a shell script: the world size, and the arguments of pretrain_gpt.py in an array.

    ``layout`` has one pair of degrees, and the first n decoder layers of every stage are recomputed.
    """
    counted = layout.by_count()
    recomputed = max((sum(layer.recompute for layer in row) for row in counted.decoders()), default=0)
    arguments = [
        f"--num-layers {sum(map(len, counted.decoders()))}",
        f"--tensor-model-parallel-size {layout.tp_degree}",
        f"--pipeline-model-parallel-size {layout.pp_degree}",
        *([f"--context-parallel-size {layout.context}"] if layout.context > 1 else []),
        *([f"--expert-model-parallel-size {layout.expert}"] if layout.expert > 1 else []),
        f'--pipeline-model-parallel-layout "{"|".join(map(_letters, counted.stages))}"',
    ]
    batch = layout.batch
    arguments += [f"--micro-batch-size {batch.samples}", f"--global-batch-size {batch.global_samples}"]
    if batch.tokens is not None:
        arguments.append(f"--seq-length {batch.tokens}")
    mtp = sum(layer.role == MTP for layer in counted.layers)
    if layout.sharding or layout.offloaded:
        arguments.append("--use-distributed-optimizer")
    if layout.offloaded:
        arguments += ["--use-precision-aware-optimizer", "--optimizer-cpu-offload"]
        arguments.append(f"--optimizer-offload-fraction {layout.offloaded:.15g}")
    if layout.groups > 1:
        arguments.append(f"--num-distributed-optimizer-instances {layout.groups}")
    if layout.outermost:
        arguments.append(_OUTERMOST)
    if layout.overlaps:
        arguments.append("--overlap-grad-reduce")
        if layout.virtual > 1:  # else all ranks begin a chunk's sum together
            arguments.append("--no-align-grad-reduce")
    if layout.sequences:
        arguments.append("--sequence-parallel")
    if mtp:
        arguments.append(f"--mtp-num-layers {mtp}")
    if recomputed:
        arguments += [
            "--recompute-granularity full",
            "--recompute-method block",
            f"--recompute-num-layers {recomputed}",
        ]
    if layout.selective:
        arguments += ["--recompute-granularity selective", f"--recompute-modules {layout.selective}"]
    head = f"# tensor {layout.tp_degree} x pipeline {layout.pp_degree} x data {layout.dp_degree}"
    lines = [
        head,
        f"# {batch.says()}",
        f"# {CHECKED['megatron'].says()}",
        f"WORLD_SIZE={layout.world_size}",
        "MODEL_PARALLEL_ARGS=(",
        *(f"    {each}" for each in arguments),
    ]
    return "\n".join([*lines, ")", ""])


def read(text: str) -> Layout:
    """The layout that such lines have; `ValueError` if they are none."""
    arguments = {name: quoted or plain for name, quoted, plain in _ARGUMENT.findall(text)}
    world = _WORLD.search(text)
    try:
        assert world is not None
        tp, pp = int(arguments["tensor-model-parallel-size"]), int(arguments["pipeline-model-parallel-size"])
        rows = stages(arguments["pipeline-model-parallel-layout"])
        context, expert, groups = (int(arguments.get(name, 1)) for name in _SHARING)
        dp, rest = divmod(int(world.group(1)), tp * pp * context)
        recomputed = int(arguments.get("recompute-num-layers", 0))
    except (KeyError, AssertionError, ZeroDivisionError) as missing:
        raise ValueError(f"the text has no {missing or 'WORLD_SIZE'}; expected what `write` writes") from None
    if rest or len(rows) % pp:
        raise ValueError(f"{len(rows)} stages, {pp} ranks and a world of {world.group(1)} do not fit together")
    made = tuple(Stage(_recomputing(row, recomputed), dp, tp) for row in rows)
    selective = arguments.get("recompute-modules", "")
    return Layout(
        made, virtual=len(rows) // pp, selective=selective, context=context, expert=expert, groups=groups,
        outermost=_OUTERMOST in text,
    )  # fmt: skip


def stages(text: str) -> list[list[str]]:
    """The roles of each stage's layers, for the text of ``--pipeline-model-parallel-layout``; `ValueError`."""
    text = text.replace(",", "")
    for pattern in _REPEATED:
        text = pattern.sub(lambda found: found.group(1) * int(found.group(2)), text)
    wrong = sorted(set(text) - {*_ROLES, "|"})
    if wrong:
        raise ValueError(f"the layout has {wrong[0]!r}; expected the letters E, t, m and L, |, commas, ( )*n and x*n")
    return [[_ROLES[letter] for letter in stage] for stage in text.split("|")]


def _letters(stage: Stage) -> str:
    runs = [(letter, len(list(run))) for letter, run in groupby(_LETTERS[layer.role] for layer in stage.layers)]
    return "".join(letter if count == 1 else f"{letter}*{count}" for letter, count in runs)


def _recomputing(roles: list[str], n: int) -> tuple[Layer, ...]:
    layers, left = [], n
    for role in roles:
        layers.append(Layer(role, recompute=role == DECODER and left > 0))
        left -= role == DECODER
    return tuple(layers)
