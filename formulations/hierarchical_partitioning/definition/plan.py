"""What a plan decides."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from formulations.contract.plan_exchange import exchange
from formulations.stage_partitioning.definition.plan import Stage, StagePlan, in_order, with_ids
from instances.exchange import in_files
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
class Group:
    """``size`` superstages of the level below, one behind the other, on ``dp_degree`` devices that do the same."""

    dp_degree: Count
    size: Count


@in_files("stages", "groups?")
@dataclass(frozen=True)
class HierarchicalPlan:
    """Superstages from the input side on; ``groups`` are those of levels 3 to L, each level's from the input side on.

    The first group of level 3 holds the first ``size`` superstages, the first of level 4 the first groups of level 3.
    """

    stages: tuple[Superstage, ...]
    groups: tuple[tuple[Group, ...], ...] = ()


@dataclass(frozen=True)
class Span:
    """A superstage of some level: the superstages ``first`` to ``last - 1`` of level 2, on ``dp_degree`` devices.

    ``replicas`` multiplies its degree and those of the levels above it: so many of its level's devices do the same.
    """

    first: int
    last: int
    dp_degree: int
    replicas: int = 1

    @property
    def above(self) -> int:
        """Data-parallel degrees of the levels above it, multiplied."""
        return self.replicas // self.dp_degree


def spans(plan: HierarchicalPlan) -> list[list[Span]]:
    """The superstages of each level from 2 to L, if the groups of each hold those of the level below.

    `ValueError` if they do not.
    """
    levels = [[Span(i, i + 1, found.dp_degree) for i, found in enumerate(plan.stages)]]
    for groups in plan.groups:
        below, at, own = levels[-1], 0, []
        for group in groups:
            if group.size < 1 or at + group.size > len(below):
                break
            own.append(Span(below[at].first, below[at + group.size - 1].last, group.dp_degree))
            at += group.size
        if at != len(below) or len(own) != len(groups):
            raise ValueError("the groups of a level do not hold the superstages of the level below")
        levels.append(own)
    above = [1] * len(plan.stages)
    for own in reversed(levels):
        for number, span in enumerate(own):
            own[number] = replace(span, replicas=above[span.first] * span.dp_degree)
            above[span.first : span.last] = [own[number].replicas] * (span.last - span.first)
    return levels


def _in_superstages(change: Callable[[StageInstance, StagePlan], StagePlan]) -> Callable[..., HierarchicalPlan]:
    """What is done to the stages of a flat plan, done to those of every superstage."""

    def changed(instance: HierarchicalInstance, plan: HierarchicalPlan, *_: str) -> HierarchicalPlan:
        stages = [replace(each, inner=change(instance.flat, StagePlan(each.inner)).stages) for each in plan.stages]
        return replace(plan, stages=tuple(stages))

    return changed


plan_from_json, plan_to_json = exchange(
    '``{"stages": [{"dp_degree", "inner": [stage, ...]}, ...]}`` from the input side on.',
    HierarchicalPlan,
    _in_superstages(with_ids),
    _in_superstages(in_order),
)
