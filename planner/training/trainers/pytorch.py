"""PyTorch: a self-contained script that runs the plan with torch.distributed.pipelining.

Source: torch.distributed.pipelining 2.13.0 (PipelineStage and the schedules below), which the script was run with:
stages are adjacent, and all have one mesh of replicas.
"""

from dataclasses import replace
from importlib.resources import files

from planner.training.trainers.checked import CHECKED
from planner.training.trainers.layout import VEE, Layer, Layout, Stage
from planner.training.trainers.literals import constant, constants, read_constant

_HERE, _BATCH = "# What the plan says.", "\nBATCH\n"

_SCHEDULES = {
    "gpipe": "ScheduleGPipe",
    "interleaved": "ScheduleInterleaved1F1B",
    "zb-h1": "ScheduleInterleavedZeroBubble",
    "zb-v": "ScheduleZBVZeroBubble",
    "dualpipe-v": "ScheduleDualPipeV",
}


def microbatches(layout: Layout) -> int:
    """Those of each replica in the script: the plan's, or the next number that torch's schedule takes.

    1F1B wants at least as many as stages; those of a V any that plans have; interleaved schedules run as many rounds as
    ranks go into the number, which divide it.
    """
    p, m = layout.pp_degree, layout.batch.microbatches
    if layout.schedule in VEE:
        return m
    if layout.virtual > 1 or layout.schedule == "zb-h1":
        return m if m % max(1, m // p) == 0 else -(-m // p) * p
    return m if layout.schedule == "gpipe" else max(p, m)


def write(layout: Layout) -> str:
    """The script. ``layout`` has one pair of degrees and named modules."""
    layers = [layer for layer in layout.layers if layer.recompute]
    batch = replace(layout.batch, microbatches=microbatches(layout))
    default = "Schedule1F1B" if layout.virtual == 1 else "ScheduleInterleaved1F1B"
    said = [
        constant("STAGES", [[name for layer in stage.layers for name in layer.modules] for stage in layout.stages]),
        constant("RECOMPUTED", [name for layer in layers for name in layer.modules]),
        "# Whether these are computed again a stage at a time, of which its inputs alone are kept, and not a module.",
        constant("RECOMPUTED_BY_STAGE", layout.whole),
        "# The rank, as torchrun counts them, of each stage's replicas in turn; empty: in order.",
        constant("DEVICES", list(layout.devices)),
        constant("DATA_PARALLEL", layout.dp_degree),
        constant("TENSOR_PARALLEL", layout.tp_degree),
        constant("STAGES_PER_RANK", layout.virtual),
        constant("MICROBATCHES", batch.microbatches),
        "# Samples of a micro-batch, tokens of a sample (None: the plan does not know), and samples of a batch.",
        constant("MICROBATCH_SIZE", batch.samples),
        constant("SEQUENCE_LENGTH", batch.tokens),
        constant("GLOBAL_BATCH_SIZE", batch.global_samples),
        constant("SCHEDULE", _SCHEDULES.get(layout.schedule or "", default)),
    ]
    script = files("planner.training.trainers").joinpath("pipeline.py.txt").read_text(encoding="utf-8")
    script = script.replace("WORLD_SIZE", str(layout.world_size))
    script = script.replace(_BATCH, f"\nA training step has {batch.says()}.\n{CHECKED['torch'].says()}\n", 1)
    return script.replace(_HERE, "\n".join([_HERE, *said]))


def read(text: str) -> Layout:
    """The layout of such a script, a layer for each module; `ValueError` for another text."""
    found = constants(text)
    rows, recomputed = read_constant(found, "STAGES", list), set(read_constant(found, "RECOMPUTED", list))
    dp, tp = read_constant(found, "DATA_PARALLEL", int), read_constant(found, "TENSOR_PARALLEL", int)
    virtual = read_constant(found, "STAGES_PER_RANK", int)
    if virtual < 1 or len(rows) % virtual:
        raise ValueError(f"{len(rows)} stages, {virtual} on each rank; expected as many on each")
    stages = (Stage(tuple(Layer("", (name,), name in recomputed) for name in row), dp, tp) for row in rows)
    whole, devices = read_constant(found, "RECOMPUTED_BY_STAGE", bool), read_constant(found, "DEVICES", list)
    return Layout(tuple(stages), virtual=virtual, whole=whole, devices=tuple(devices))
