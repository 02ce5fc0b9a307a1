"""With which releases of trainers what is written was checked, and how far; docs/which-trainer.md has the table.

The checks are those of tests/planner/training/trainers/test_real_programs.py, which run where a program is installed.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Checked:
    """A program, the releases of it that were run, when, and what they did with the text."""

    program: str
    versions: tuple[str, ...]
    on: str
    how: str

    def says(self) -> str:
        """The releases in a line, for those who read the text."""
        return f"Checked with {self.program} {' and '.join(self.versions)} ({self.on}): {self.how}."


CHECKED = {
    "megatron": Checked(
        "Megatron core",
        ("0.19.2", "0.16.1"),
        "2026-11-28",
        "its class reads the layout, its parser (0.19.2) all arguments",
    ),
    "torchtitan": Checked("torchtitan", ("0.3.0", "0.2.2"), "2026-11-28", "its classes take the configuration"),
    "torch": Checked("torch", ("2.13.0",), "2026-11-28", "runs on gloo, gradients equal those of the unsplit model"),
    "deepspeed": Checked(
        "DeepSpeed", ("0.19.8",), "2026-11-28", "its PipelineModule has the stages, its class the configuration"
    ),
    "galvatron": Checked("Galvatron", ("2.4.0",), "2026-11-28", "its parser reads the strategies"),
    "vllm": Checked(
        "vLLM", ("0.33.0",), "2026-11-28", "its function gives each rank the layers, and it has the options"
    ),
    "sglang": Checked(
        "SGLang", ("0.5.23",), "2026-11-28", "its function gives each rank the layers, and it has the options"
    ),
    "accelerate": Checked("Accelerate", ("1.15.0",), "2026-11-28", "its check of device maps takes the map"),
}
