"""What the declarative models of stage partitioning share on the way to an answer (`modelling.solve_model`)."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from formulations.contract.family import Answer
from formulations.modelling import solve_model
from formulations.modelling.warm_start import First
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import (
    MEMORY_SLACK,
    evaluate,
    stage_memory,
    suffix_sums,
    violations,
)
from formulations.stage_partitioning.exact import interval_plans
from formulations.stage_partitioning.models.assignment_data import Terms
from instances.problems.stage_partitioning import StageInstance
from solvers.outcome import Limits, Prover, Watch


def prove(
    instance: StageInstance,
    build: Callable[[], solve_model.Model[StagePlan]],
    limits: Limits,
    watch: Watch,
    *,
    to_scale: bool = False,
) -> Answer[StagePlan]:
    """Build and run a model of an instance (`formulations.modelling.solve_model.prove`).

    Where the watch knows no plan yet, that of ``linearised`` is reported first (`modelling.warm_start`), for the
    model to begin with.
    """
    if watch.best_plan is not None:
        return solve_model.prove(instance, build, evaluate, violations, limits, watch, to_scale=to_scale)
    watch.bound(Terms(instance).lower_bound, Prover.BOUNDS)
    origin = begin(instance, limits, watch)
    answer = solve_model.prove(instance, build, evaluate, violations, limits, watch, to_scale=to_scale)
    return replace(answer, stats={**answer.stats, **origin()})


def begin(instance: StageInstance, limits: Limits, watch: Watch) -> Callable[[], dict[str, float | str]]:
    """Report the plan of ``linearised``; the result says later whose plan the watch has (`warm_start.First.origin`)."""
    first = First("linearised", lambda part: interval_plans.solve(instance, limits, part))
    known = first.report(instance, evaluate, violations, watch)
    return lambda: first.origin(known, watch)


def too_large(instance: StageInstance, plan: StagePlan) -> Iterator[tuple[Stage, int]]:
    """The stages with too many bytes, and how many micro-batches they have in flight."""
    for stage, s in zip(plan.stages, suffix_sums(plan), strict=True):
        if stage_memory(instance, stage, s) > instance.memory_bytes * MEMORY_SLACK:
            yield stage, -(-s // stage.dp_degree)
