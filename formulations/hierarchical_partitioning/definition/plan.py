"""What a plan decides."""

from __future__ import annotations

from dataclasses import dataclass

from formulations.stage_partitioning.definition.plan import Stage


@dataclass(frozen=True)
class Superstage:
    """Stages (from the input side on) that share a machine, on ``dp_degree`` machines that do the same."""

    dp_degree: int
    inner: tuple[Stage, ...]

    @property
    def num_devices(self) -> int:
        """Devices taken in each machine."""
        return sum(stage.dp_degree * stage.tp_degree for stage in self.inner)


@dataclass(frozen=True)
class HierarchicalPlan:
    """Superstages from the input side on."""

    stages: tuple[Superstage, ...]
