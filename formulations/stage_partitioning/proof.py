"""From a declarative model's run to an answer: decode, re-check, cut off what only rounding let through, go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

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
from solvers.outcome import OPTIMAL_GAP, Limits, Run, Stop, Watch, relative_gap


class Stopped(Exception):  # noqa: N818 - not an error: the caller asked for it
    """The watch was stopped while a model was being built."""


def go_on(watch: Watch) -> None:
    """Raise `Stopped` once the watch is: the poll of every loop that builds a model."""
    if watch.stopped():
        raise Stopped


class Model(Protocol):
    """A built model of stage partitioning."""

    def run(
        self,
        limits: Limits,
        watch: Watch,
        on_solution: Callable[[Any], None],
        on_bound: Callable[[float], None],
    ) -> Run:
        """Run its solver."""

    def decode(self, values: Any) -> StagePlan:
        """The plan of a solution."""

    def lower_bound(self, bound: float) -> float:
        """What a dual bound of the model proves for the instance as declared, in its time unit."""

    def cut_off(self, stage: Stage, in_flight: int) -> None:
        """Forbid a stage that has too many bytes with ``in_flight`` micro-batches (or more)."""


def prove(instance: StageInstance, build: Callable[[], Model], limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """Build and run a model until its best plan passes the definition's own check, or a limit.

    Plans and bounds go to ``watch`` as they are found; the answer holds the best plan that the watch was told of,
    and is optimal by what `evaluate` says, not by the solver's word. A solver's claim that contradicts a checked plan
    (both of ours have been caught at it) is passed on as it is: whoever runs the method must see it and say so.

    Raises
    ------
    RuntimeError
        If the model accepts a plan that breaks a rule other than ``memory``, or one that was cut off.
    """

    def hear_bound(bound: float) -> None:
        watch.bound(model.lower_bound(bound))

    def hear_plan(plan: StagePlan) -> bool:
        if violations(instance, plan):
            return False
        watch.plan(plan, evaluate(instance, plan))
        return True

    rejected: StagePlan | None = None
    try:
        model = build()
        while True:
            run = model.run(
                limits,
                watch,
                on_solution=lambda values: _ignore(hear_plan(model.decode(values))),
                on_bound=hear_bound,
            )
            if run.values is None or hear_plan(plan := model.decode(run.values)):
                break
            if plan == rejected:
                raise RuntimeError(f"the model keeps a plan that was cut off: {violations(instance, plan)[0]}")
            _cut_off(instance, model, plan)
            rejected = plan
    except Stopped:
        return Answer(plan=watch.best_plan, bound=watch.best_bound, stop=watch.why())
    if run.bound is not None:
        hear_bound(run.bound)
    return Answer(
        plan=watch.best_plan,
        bound=None if run.infeasible else watch.best_bound,
        infeasible=run.infeasible,
        stop=_why(run, watch),
        solver=run.solver,
        reason="the model has no solution" if run.infeasible else "",
        stats=run.stats,
    )


def _ignore(_: object) -> None:
    """A listener returns nothing."""


def _why(run: Run, watch: Watch) -> Stop:
    if run.stop is not Stop.PROVED or run.infeasible:
        return run.stop
    gap = relative_gap(watch.best_objective, watch.best_bound)
    return Stop.PROVED if gap is not None and gap <= OPTIMAL_GAP else Stop.COMPLETED


def _cut_off(instance: StageInstance, model: Model, plan: StagePlan) -> None:
    """Cut off the stages with too many bytes; anything else that is wrong is a fault of the model."""
    others = [broken for broken in violations(instance, plan) if broken.rule != "memory"]
    if others:
        raise RuntimeError(f"the model accepts a plan that the definition rejects: {others[0]}")
    for stage, s in zip(plan.stages, suffix_sums(plan), strict=True):
        if stage_memory(instance, stage, s) > instance.memory_bytes * MEMORY_SLACK:
            model.cut_off(stage, -(-s // stage.dp_degree))
