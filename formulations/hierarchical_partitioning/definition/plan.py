"""What a plan decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from formulations.contract.plan_exchange import exchange
from formulations.stage_partitioning.definition.plan import Stage, StagePlan, in_order, with_ids
from instances.problems.hierarchical_partitioning import HierarchicalInstance
from instances.problems.stage_partitioning import StageInstance
from instances.rules import Count


@dataclass(frozen=True)
class Superstage:
    """Stages (from the input side on) that share a machine, on ``dp_degree`` machines that do the same."""

    dp_degree: Count
    inner: tuple[Stage, ...]

    @property
    def num_devices(self) -> int:
        """Devices taken in each machine."""
        return sum(stage.dp_degree * stage.tp_degree for stage in self.inner)


@dataclass(frozen=True)
class HierarchicalPlan:
    """Superstages from the input side on."""

    stages: tuple[Superstage, ...]


def _in_superstages(change: Callable[[StageInstance, StagePlan], StagePlan]) -> Callable[..., HierarchicalPlan]:
    """What is done to the stages of a flat plan, done to those of every superstage."""

    def changed(instance: HierarchicalInstance, plan: HierarchicalPlan, *_: str) -> HierarchicalPlan:
        return HierarchicalPlan(
            tuple(replace(each, inner=change(instance.flat, StagePlan(each.inner)).stages) for each in plan.stages)
        )

    return changed


plan_from_json, plan_to_json = exchange(
    '``{"stages": [{"dp_degree", "inner": [stage, ...]}, ...]}`` from the input side on.',
    HierarchicalPlan,
    _in_superstages(with_ids),
    _in_superstages(in_order),
)
