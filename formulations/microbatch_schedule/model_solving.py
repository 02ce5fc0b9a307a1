"""What the declarative models share: a solver decides, from the greedy schedule on; no bound and no search helps it."""

from __future__ import annotations

from typing import Protocol

from formulations.family import Answer
from formulations.microbatch_schedule.feasibility import figures, offer
from formulations.microbatch_schedule.memory import Decision, least_memory
from formulations.microbatch_schedule.problem import SchedulePlan
from formulations.microbatch_schedule.units import order_only
from formulations.simulate_graph import PassGraph, run
from instances.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits, Prover, Run, Stop, Watch


class Backend(Protocol):
    """A solver's models of one instance.

    ``minimise(graph, orders)`` tells the watch of schedules and bounds, from a schedule on (``None``: from nothing);
    ``decide(graph)`` is the run that asks whether an iteration keeps the deadline, and orders that do.
    """

    def minimise(self, graph: PassGraph, orders: list[str] | None) -> Run:
        """The shortest iteration."""

    def decide(self, graph: PassGraph) -> tuple[Run, list[str] | None]:
        """Orders that keep the deadline, or a run that is infeasible if there are none."""


def posed(instance: ScheduleInstance, graph: PassGraph) -> tuple[PassGraph, float | None]:
    """The graph and the deadline that a model is built of: where only the order counts, the seconds are left out.

    It alone counts where passes wait in a circle, whatever they take, and for the least memory without a deadline.
    """
    any_time = instance.objective == "memory" and instance.deadline_s is None
    return (order_only(graph), None) if any_time or not graph.is_possible() else (graph, instance.deadline_s)


def prove(instance: ScheduleInstance, _limits: Limits, watch: Watch, backend: Backend) -> Answer[SchedulePlan]:
    """The best schedule and the solver's proof."""
    if watch.stopped():
        return Answer(stop=watch.why())
    if instance.objective == "memory":
        return least_memory(instance, watch, lambda graph: decided(instance, watch, backend, graph))
    graph = PassGraph(instance)
    greedy = run(graph)
    offer(instance, watch, greedy)
    orders = None if greedy.stuck else list(greedy.orders(len(graph.counts)))
    return minimised(instance, watch, backend, graph, orders)


def minimised(
    instance: ScheduleInstance,
    watch: Watch,
    backend: Backend,
    graph: PassGraph,
    orders: list[str] | None,
    whose: str = Prover.SOLVER,
) -> Answer[SchedulePlan]:
    """The shortest iteration, from a schedule on; ``whose`` proof infeasibility is."""
    outcome = backend.minimise(graph, orders)
    if outcome.infeasible:
        late = "" if instance.deadline_s is None else " and the deadline"
        reason = f"no schedule keeps the rooms{late}"
        return Answer(
            infeasible=True,
            stop=Stop.PROVED,
            proved_by=whose,
            solver=outcome.solver,
            reason=reason,
            stats=outcome.stats,
        )
    stats = {**figures(instance, watch.best_plan), **outcome.stats}
    return Answer(
        watch.best_plan,
        watch.best_bound,
        stop=outcome.stop,
        solver=outcome.solver,
        reason=outcome.reason,
        stats=stats,
    )


def decided(
    instance: ScheduleInstance, watch: Watch, backend: Backend, graph: PassGraph, whose: str = Prover.SOLVER
) -> Decision:
    """What the solver says of some rooms; the watch is told of the schedule."""
    outcome, orders = backend.decide(graph)
    if outcome.infeasible:
        return Decision(False, whose, outcome.solver)
    kept = orders is not None and offer(instance, watch, run(graph, orders)) is not None
    return Decision(True if kept else None, whose, outcome.solver, outcome.reason)
