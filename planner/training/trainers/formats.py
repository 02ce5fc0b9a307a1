"""The formats that plans are exported to: what each can express, and what it was checked with.

docs/which-trainer.md shows this table (`capabilities`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from formulations.stage_partitioning.definition.trainers import TRAINERS, Degrees, Recompute, Trainer
from planner.training.trainers import accelerate, deepspeed, galvatron, megatron, pytorch, serving, torchtitan
from planner.training.trainers.checked import CHECKED, Checked
from planner.training.trainers.layout import Layout


@dataclass(frozen=True)
class Format:
    """A format of layouts.

    ``trainer``: what it can express of a plan.
    ``write``, ``read``: from a layout that it can express to text, and back.
    ``says``: what the text is.
    ``is_script``: whether it is Python, which notes may follow.
    """

    trainer: Trainer
    write: Callable[[Layout], str]
    read: Callable[[str], Layout]
    says: str
    is_script: bool = False

    @property
    def name(self) -> str:
        """As ``--to`` has it."""
        return self.trainer.name

    @property
    def checked(self) -> Checked:
        """With what the text was checked."""
        return CHECKED[self.name]


_ALL = (
    Format(TRAINERS["megatron"], megatron.write, megatron.read, "arguments with --pipeline-model-parallel-layout"),
    Format(
        TRAINERS["torchtitan"],
        torchtitan.write,
        torchtitan.read,
        "a recipe in Python with module_fqns_per_model_part",
        is_script=True,
    ),
    Format(TRAINERS["torch"], pytorch.write, pytorch.read, "a script for torch.distributed.pipelining", is_script=True),
    Format(TRAINERS["deepspeed"], deepspeed.write, deepspeed.read, "a subclass of PipelineModule", is_script=True),
    Format(
        replace(TRAINERS["galvatron"], degrees=Degrees.PRODUCT),
        galvatron.write,
        galvatron.read,
        "JSON of strategies by layer",
    ),
    Format(
        TRAINERS["vllm"],
        serving.writer(serving.VLLM),
        serving.reader(serving.VLLM),
        "VLLM_PP_LAYER_PARTITION and a command",
    ),
    Format(
        TRAINERS["sglang"],
        serving.writer(serving.SGLANG),
        serving.reader(serving.SGLANG),
        "SGLANG_PP_LAYER_PARTITION and a command",
    ),
    Format(TRAINERS["accelerate"], accelerate.write, accelerate.read, "JSON of a device_map"),
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
    *("checked with", "on", "how far"),
)


def capabilities() -> str:
    """The table of docs/which-trainer.md: what each format can express, and what it was checked with."""
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
                f"{each.checked.program} {', '.join(each.checked.versions)}",
                each.checked.on,
                each.checked.how,
            )
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
