"""What a plan decides."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from formulations.simulation.simulate_graph import Pass


@dataclass(frozen=True)
class SchedulePlan:
    """All passes of an iteration with their times, in any order."""

    passes: tuple[Pass, ...]

    @cached_property
    def iteration_s(self) -> float:
        """When the last pass ends."""
        return max((task.end_s for task in self.passes), default=0.0)

    @cached_property
    def by_stage(self) -> dict[int, list[Pass]]:
        """The passes of each stage by start."""
        found: dict[int, list[Pass]] = {}
        for task in sorted(self.passes, key=lambda task: (task.start_s, task.end_s)):
            found.setdefault(task.stage, []).append(task)
        return found

    def peak_in_flight(self, stage: int) -> int:
        """Most micro-batches of a stage between the start of their forward and the end of their backward pass.

        A stage runs one pass at a time, so the order of its passes decides.
        """
        held = most = 0
        for task in self.by_stage.get(stage, []):
            held += 1 if task.is_forward else -1
            most = max(most, held)
        return most
