"""What the declarative models of stage partitioning share on the way to an answer (`formulations.modelled`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from formulations import modelled
from formulations.family import Answer
from formulations.stage_partitioning.problem import (
    MEMORY_SLACK,
    Stage,
    StagePlan,
    evaluate,
    stage_memory,
    suffix_sums,
    violations,
)
from instances.stage_partitioning import StageInstance
from solvers.outcome import Limits, Watch


def prove(
    instance: StageInstance,
    build: Callable[[], modelled.Model[StagePlan]],
    limits: Limits,
    watch: Watch,
    *,
    to_scale: bool = False,
) -> Answer[StagePlan]:
    """Build and run a model of an instance (`formulations.modelled.prove`)."""
    return modelled.prove(instance, build, evaluate, violations, limits, watch, to_scale=to_scale)


def too_large(instance: StageInstance, plan: StagePlan) -> Iterator[tuple[Stage, int]]:
    """The stages with too many bytes, and how many micro-batches they have in flight."""
    for stage, s in zip(plan.stages, suffix_sums(plan), strict=True):
        if stage_memory(instance, stage, s) > instance.memory_bytes * MEMORY_SLACK:
            yield stage, -(-s // stage.dp_degree)
