"""What the declarative models share: a solver decides, from the first schedule on, and no bound helps it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from formulations.contract.family import Answer
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.problem import TOLERANCE, evaluate, violations
from formulations.microbatch_schedule.feasibility import figures, offer
from formulations.microbatch_schedule.heuristics.memory import Decision, least_memory
from formulations.microbatch_schedule.models.first_plan import first_plan
from formulations.microbatch_schedule.models.quantities import OrderQuantities
from formulations.microbatch_schedule.models.units import order_only
from formulations.modelling.solve_model import WithoutSizes, prove
from formulations.modelling.warm_start import First
from formulations.simulation.simulate_graph import GraphTrace, PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits, Prover, Run, Stop, Watch


class ScheduleModel(OrderQuantities, WithoutSizes, ABC):
    """A solver's model of a graph of passes, whose values give each stage an order; see `modelled.Model`.

    ``of_bytes``: it minimises what the fullest stage holds, in bytes, and not the seconds of the iteration.
    """

    graph: PassGraph
    deadline_s: float | None
    of_bytes: bool = False

    @abstractmethod
    def orders(self, values: Any) -> list[str]:
        """The order of each stage's passes in a solution, as words such as ``FFBFBB``."""

    @abstractmethod
    def lower_bound(self, bound: float) -> float:
        """What a dual bound of the model proves, in seconds or bytes."""

    @abstractmethod
    def version(self) -> str:
        """Name and version of the solver."""

    @abstractmethod
    def run_solver(
        self, limits: Limits, watch: Watch, on_solution: Callable[[Any], None], on_bound: Callable[[float], None]
    ) -> Run:
        """Run the solver on the model as it is."""

    def decode(self, values: Any) -> SchedulePlan:
        """The plan of a solution: its orders, with the seconds as declared."""
        graph = PassGraph(self.graph.instance) if self.of_bytes else self.graph  # which may be of orders alone
        return SchedulePlan(run(graph, self.orders(values)).passes)

    def orders_of(self, plan: SchedulePlan) -> list[str]:
        """The order of each stage's passes in a plan."""
        return orders_of(self.graph, plan)

    def run(
        self,
        limits: Limits,
        watch: Watch,
        on_solution: Callable[[Any], None] | None = None,
        on_bound: Callable[[float], None] | None = None,
    ) -> Run:
        """Run the solver; rounding and tolerances let in schedules beyond the deadline, which are no solutions."""

        def report(values: Any) -> None:
            if on_solution is not None and self._is_kept(values):
                on_solution(values)

        found = self.run_solver(limits, watch, report, on_bound or (lambda _: None))
        if not self.of_bytes and found.bound is not None and self._is_late(self.lower_bound(found.bound)):
            return replace(found, stop=Stop.PROVED, values=None, bound=None, infeasible=True)
        return found if found.values is None or self._is_kept(found.values) else replace(found, values=None)

    def _trace(self, values: Any) -> GraphTrace:
        return run(self.graph, self.orders(values))

    def _is_kept(self, values: Any) -> bool:
        trace = self._trace(values)
        return not trace.stuck and not self._is_late(trace.iteration_s)

    def _is_late(self, seconds: float) -> bool:
        return self.deadline_s is not None and seconds > self.deadline_s + TOLERANCE * seconds


class Build(Protocol):
    """How a solver's model of a graph of passes is built."""

    def __call__(
        self,
        graph: PassGraph,
        orders: list[str] | None = None,
        *,
        deadline_s: float | None,
        minimised: bool,
        of_bytes: bool = False,
    ) -> ScheduleModel:
        """The model, to begin with a schedule; ``minimised``: the shortest iteration is wanted, or any schedule.

        ``of_bytes``: the fewest bytes are.
        """


def opened(build: Build, instance: ScheduleInstance, watch: Watch | None, *, complete: bool) -> ScheduleModel:
    """One model of an instance, whatever its objective; iterations longer than a known one's may be left out.

    Those are left out where the seconds of the iteration are minimised and the watch has a plan, unless ``complete``.
    """
    posed, deadline_s = posed_as(instance, PassGraph(instance))
    if instance.objective == "memory":
        return build(posed, deadline_s=deadline_s, minimised=False, of_bytes=True)
    known = None if complete or watch is None else watch.best_plan
    return build(posed, None if known is None else orders_of(posed, known), deadline_s=deadline_s, minimised=True)


def orders_of(graph: PassGraph, plan: SchedulePlan) -> list[str]:
    """The order of each stage's passes in a plan."""
    passes = sorted(plan.passes, key=lambda task: (task.start_s, task.stage))
    return list(GraphTrace(tuple(passes)).orders(len(graph.counts)))


def solve_by(build: Build, instance: ScheduleInstance, limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """The best schedule and the solver's proof."""
    if watch.stopped():
        return Answer(stop=watch.why())
    first = first_plan(instance, limits)
    if instance.objective == "memory":
        known = first.report(instance, evaluate, violations, watch)
        found = least_memory(instance, watch, lambda graph: decided(build, instance, limits, watch, graph))
        return replace(found, stats={**found.stats, **first.origin(known, watch)})
    graph = PassGraph(instance)
    greedy = run(graph)
    offer(instance, watch, greedy)
    orders = None if greedy.stuck else list(greedy.orders(len(graph.counts)))
    return shortest(build, instance, limits, watch, graph, orders, first=first)


def shortest(
    build: Build,
    instance: ScheduleInstance,
    limits: Limits,
    watch: Watch,
    graph: PassGraph,
    orders: list[str] | None,
    by: str = Prover.SOLVER,
    first: First | None = None,
) -> Answer[SchedulePlan]:
    """The shortest iteration, from a schedule on, and by whose means it is proved.

    No longer iteration than that of ``orders`` is looked for, or with requirements than that of a plan that meets them;
    ``first`` is a hint.
    """

    def model() -> ScheduleModel:
        if instance.requirements:
            return opened(build, instance, watch, complete=False)
        posed, deadline_s = posed_as(instance, graph)
        return build(posed, orders, deadline_s=deadline_s, minimised=True)

    late = "" if instance.deadline_s is None else " and the deadline"
    reason = f"no schedule keeps the rooms{late}"
    found = prove(instance, model, evaluate, violations, limits, watch, reason=reason, by=by, first=first)
    return replace(found, stats={**figures(instance, found.plan), **found.stats})


def decided(
    build: Build,
    instance: ScheduleInstance,
    limits: Limits,
    watch: Watch,
    graph: PassGraph,
    by: str = Prover.SOLVER,
) -> Decision:
    """Whether the solver finds a schedule with some rooms that keeps the deadline; it is reported to the watch."""
    posed, deadline_s = posed_as(instance, graph)
    model = build(posed, deadline_s=deadline_s, minimised=False)

    def keep(values: Any) -> None:
        raise _Kept(model.orders(values))

    try:
        found = model.run(limits, watch, on_solution=keep, on_bound=lambda _: None)
        if found.values is not None:
            keep(found.values)
    except _Kept as kept:
        is_kept = offer(instance, watch, run(graph, kept.orders)) is not None
        return Decision(True if is_kept else None, by, model.version())
    return Decision(False if found.infeasible else None, by, found.solver, found.reason)


class _Kept(Exception):  # noqa: N818 - not an error: a schedule that keeps the deadline ends the search
    def __init__(self, orders: list[str]) -> None:
        super().__init__()
        self.orders = orders


def posed_as(instance: ScheduleInstance, graph: PassGraph) -> tuple[PassGraph, float | None]:
    """The graph and the deadline that a model is built of: where only the order counts, the seconds are left out.

    It alone counts where passes wait in a circle, whatever they take, and for the least memory without a deadline.
    """
    any_time = instance.objective == "memory" and instance.deadline_s is None
    return (order_only(graph), None) if any_time or not graph.is_possible() else (graph, instance.deadline_s)
