"""What all processes of a run know, and what comes of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.training.runtime.layout import Layout, Timing
from planner.training.runtime.objective import Objective
from planner.training.runtime.program import Program
from planner.training.runtime.stages import Stages


@dataclass(frozen=True)
class Job:
    """What all processes of a run know.

    ``rendezvous`` is a file that does not exist yet; ``timeout_s`` seconds of waiting for another process at most;
    ``is_pipelined``: through torch.distributed.pipelining.
    """

    program: Program
    layout: Layout
    stages: Stages
    objective: Objective
    rendezvous: str
    backend: str
    timeout_s: float
    is_pipelined: bool = False

    @property
    def is_tagged(self) -> bool:
        """Whether messages have tags: without them they are received in the order in which they are sent."""
        return self.backend != "nccl"

    def device_of(self, rank: int) -> Any:
        """The device of a process: the CPU with gloo, a GPU for each with NCCL (the plan's), else the model's."""
        import torch

        if self.backend == "emulated":
            return next(self.program.model.parameters()).device
        placed = self.layout.duties[self.layout.duties_of(rank)[0]].device
        return torch.device("cpu" if self.backend == "gloo" else f"cuda:{rank if placed is None else placed}")


@dataclass(frozen=True)
class Report:
    """What came of a duty, ``rank`` being its number.

    ``losses`` are parts of the loss by sample, ``gradients`` those of its stage's parameters (replica 0 alone; ``None``
    for a parameter without one), both of the first process of a replica alone; ``held_bytes`` the most that it held for
    backward passes, ``collective_bytes`` what it sent to sum tensors in its replica, ``gradient_bytes`` to sum
    gradients with other replicas and stages, as a ring sends them. ``peak_bytes`` are all that it had on a GPU at most;
    ``None`` where that is not measured. Where replicas share optimizer states, ``weights`` are those of `gradients`'
    parameters after a step, and ``state_bytes`` the states that it holds. ``end_s`` is when all of its gradients were
    summed; ``None`` where that is not measured.
    """

    rank: int
    losses: Mapping[int, float]
    gradients: Mapping[str, Any]
    bytes_sent: int
    held_bytes: int
    collective_bytes: float
    gradient_bytes: float
    timings: tuple[Timing, ...]
    peak_bytes: int | None = None
    weights: Mapping[str, Any] = field(default_factory=dict)
    state_bytes: int = 0
    end_s: float | None = None
