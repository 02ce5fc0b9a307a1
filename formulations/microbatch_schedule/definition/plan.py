"""What a plan decides."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from formulations.contract.plan_exchange import exchange
from formulations.simulation.simulate_graph import Pass, in_order, peak_in_flight
from instances.problems.microbatch_schedule import Kind
from instances.rules import Rule, Whole


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
        for task in in_order(self.passes):
            found.setdefault(task.stage, []).append(task)
        return found

    def peak_in_flight(self, stage: int) -> int:
        """Most micro-batches of a stage between the start of their forward and the end of their backward pass."""
        return peak_in_flight(self.by_stage.get(stage, []))


_Second = Annotated[float, Rule("a number", lambda core, _: core.float_schema(strict=True, ge=-1e300, le=1e300))]
_Task = Annotated[tuple[Whole, Kind, Whole, _Second, _Second], Rule('[stage, "F", "B" or "W", index, start_s, end_s]')]


@dataclass(frozen=True)
class _Declared:
    """A plan as files have it."""

    tasks: tuple[_Task, ...]


plan_from_json, plan_to_json = exchange(
    '``{"tasks": [[stage, "F", "B" or "W", index, start_s, end_s], ...]}``, by start.',
    _Declared,
    lambda _instance, declared, _where: SchedulePlan(tuple(Pass(*task) for task in declared.tasks)),
    lambda _, plan: _Declared(
        tuple(
            (task.stage, task.kind, task.index, task.start_s, task.end_s)
            for task in sorted(plan.passes, key=lambda task: (task.start_s, task.stage, task.end_s))
        )
    ),
)
