"""What the declarative models of stage partitioning share on the way to an answer (`formulations.modelled`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from formulations import modelled
from formulations.family import Answer
from formulations.first_plan import First
from formulations.stage_partitioning.exact import linearised
from formulations.stage_partitioning.models.terms import Terms
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
from solvers.outcome import Limits, Prover, Watch


def prove(
    instance: StageInstance,
    build: Callable[[], modelled.Model[StagePlan]],
    limits: Limits,
    watch: Watch,
    *,
    to_scale: bool = False,
) -> Answer[StagePlan]:
    """Build and run a model of an instance (`formulations.modelled.prove`).

    Where the watch knows no plan yet, that of ``linearised`` is reported first (`formulations.first_plan`), for the
    model to begin with.
    """
    if watch.best_plan is not None:
        return modelled.prove(instance, build, evaluate, violations, limits, watch, to_scale=to_scale)
    watch.bound(Terms(instance).lower_bound, Prover.BOUNDS)
    first = First("linearised", lambda part: linearised.solve(instance, limits, part))
    known = first.report(instance, evaluate, violations, watch)
    answer = modelled.prove(instance, build, evaluate, violations, limits, watch, to_scale=to_scale)
    return replace(answer, stats={**answer.stats, **first.origin(known, watch)})


def too_large(instance: StageInstance, plan: StagePlan) -> Iterator[tuple[Stage, int]]:
    """The stages with too many bytes, and how many micro-batches they have in flight."""
    for stage, s in zip(plan.stages, suffix_sums(plan), strict=True):
        if stage_memory(instance, stage, s) > instance.memory_bytes * MEMORY_SLACK:
            yield stage, -(-s // stage.dp_degree)
