"""The formats that plans are exported to: what each can express, and where that was read.

docs/which-trainer.md shows this table (`capabilities`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from formulations.stage_partitioning.definition.trainers import TRAINERS, Degrees, Recompute, Trainer
from planner.training.trainers import accelerate, deepspeed, galvatron, megatron, pytorch, serving, torchtitan
from planner.training.trainers.layout import Layout


@dataclass(frozen=True)
class Format:
    """A format of layouts.

    Parameters
    ----------
    trainer
        What it can express of a plan.
    write, read
        From a layout that it can express to text, and back.
    says
        What the text is.
    version, seen
        Of what was read, and its date.
    held_to
        What the text was tried with.
    """

    trainer: Trainer
    write: Callable[[Layout], str]
    read: Callable[[str], Layout]
    says: str
    version: str
    seen: str
    held_to: str

    @property
    def name(self) -> str:
        """As ``--to`` has it."""
        return self.trainer.name


_OURS = "the grammar as read, by a validator of ours"
_ALL = (
    Format(
        TRAINERS["megatron"],
        megatron.write,
        megatron.read,
        "arguments with --pipeline-model-parallel-layout",
        "core 0.20.0, d98e8a64dd",
        "2026-08-22",
        "the rules of its own parser, by a validator of ours",
    ),
    Format(
        TRAINERS["torchtitan"],
        torchtitan.write,
        torchtitan.read,
        "a recipe in Python with module_fqns_per_model_part",
        "b5bcd76c6",
        "2026-08-21",
        _OURS,
    ),
    Format(
        TRAINERS["torch"],
        pytorch.write,
        pytorch.read,
        "a script for torch.distributed.pipelining",
        "torch 2.13.0",
        "2026-11-22",
        "runs with gloo, gradients compared with the unsplit model's",
    ),
    Format(
        TRAINERS["deepspeed"],
        deepspeed.write,
        deepspeed.read,
        "a subclass of PipelineModule",
        "0.19.6, edaa72212",
        "2026-08-22",
        "a stand-in for PipelineModule, not DeepSpeed",
    ),
    Format(
        replace(TRAINERS["galvatron"], degrees=Degrees.PRODUCT),
        galvatron.write,
        galvatron.read,
        "JSON of strategies by layer",
        "cea12ff",
        "2026-06-16",
        _OURS,
    ),
    Format(
        TRAINERS["vllm"],
        serving.writer(serving.VLLM),
        serving.reader(serving.VLLM),
        "VLLM_PP_LAYER_PARTITION and a command",
        "5a6541d",
        "2026-08",
        _OURS,
    ),
    Format(
        TRAINERS["sglang"],
        serving.writer(serving.SGLANG),
        serving.reader(serving.SGLANG),
        "SGLANG_PP_LAYER_PARTITION and a command",
        "1107be1",
        "2026-08",
        _OURS,
    ),
    Format(
        TRAINERS["accelerate"],
        accelerate.write,
        accelerate.read,
        "JSON of a device_map",
        "16cb6eb8",
        "2026-07-24",
        _OURS,
    ),
)
FORMATS: dict[str, Format] = {each.name: each for each in _ALL}

_DEGREES = {
    Degrees.ONE: "one pair for all stages",
    Degrees.PRODUCT: "a pair for each stage, as many devices for each",
    Degrees.NONE: "one device for each stage",
}
_RECOMPUTED = {
    Recompute.EACH: "any layer",
    Recompute.FIRST: "the first n layers of every stage",
    Recompute.ALL: "all layers or none",
    Recompute.NONE: "none (inference)",
}
_HEAD = (
    *("format", "what is written", "degrees (dp, tp)", "recomputation", "cut", "schedules"),
    *("version read", "on", "held to"),
)


def capabilities() -> str:
    """The table of docs/which-trainer.md: what each format can express, and where that was read."""
    rows = [_HEAD, ("---",) * len(_HEAD)]
    for each in FORMATS.values():
        able = each.trainer
        cut = "counts layers between an embedding and a head" if able.counts else "names modules"
        filled = ", each stage has one" if able.fills else ""
        rows.append(
            (
                f"`{each.name}`",
                each.says,
                _DEGREES[able.degrees],
                _RECOMPUTED[able.recompute],
                cut + filled,
                ", ".join(f"`{schedule}`" for schedule in able.schedules) or "none",
                each.version,
                each.seen,
                each.held_to,
            )
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
