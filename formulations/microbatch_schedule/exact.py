"""Bounds and heuristics first, CP-SAT's model for what they leave open: the quickest way to a proof, whosever it is."""

from __future__ import annotations

from functools import partial

from formulations.contract.family import Answer
from formulations.microbatch_schedule.bounds import iteration_bound
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.feasibility import begin, figures, offer
from formulations.microbatch_schedule.heuristics.memory import Decision, by_search, least_memory
from formulations.microbatch_schedule.heuristics.search import EFFORT, search
from formulations.microbatch_schedule.models import cpsat
from formulations.microbatch_schedule.models.solving import decided, shortest
from formulations.simulation.simulate_graph import PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.cpsat.backend import run as run_cpsat
from solvers.cpsat.backend import whole
from solvers.outcome import Limits, Stop, Watch

#: Whose proof it is where the model closes the gap.
_MODEL = "cpsat"


def solve(instance: ScheduleInstance, limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """The best schedule, proved by bounds or by the model."""
    prove = _least_memory if instance.objective == "memory" else _shortest
    return begin(instance, watch, partial(prove, instance, limits, watch))


def _least_memory(
    instance: ScheduleInstance, limits: Limits, watch: Watch, _graph: PassGraph, _bound: float
) -> Answer[SchedulePlan]:
    searched = by_search(instance, limits, watch, EFFORT // 4)

    def decide(graph: PassGraph) -> Decision:
        known = searched(graph)
        if known.kept is not None or watch.stopped():
            return known
        return decided(build, instance, limits, watch, graph, _MODEL)

    return least_memory(instance, watch, decide)


def _shortest(
    instance: ScheduleInstance, limits: Limits, watch: Watch, graph: PassGraph, bound: float
) -> Answer[SchedulePlan]:
    goal = bound * (1 + 1e-9)
    best = search(graph, watch, limits.seed, lambda trace: offer(instance, watch, trace), goal, EFFORT // 3)
    if watch.stopped() or (watch.best_objective is not None and watch.best_objective <= goal):
        return Answer(watch.best_plan, watch.best_bound, stop=watch.why(), stats=figures(instance, watch.best_plan))
    return shortest(build, instance, limits, watch, graph, list(best.orders(len(graph.counts))), _MODEL)


def build(
    graph: PassGraph,
    orders: list[str] | None = None,
    *,
    deadline_s: float | None = None,
    minimised: bool = True,
    of_bytes: bool = False,
) -> cpsat.Model:
    """CP-SAT's model with the bound of heads and tails inside; only what goes beyond that is its own proof."""
    built = cpsat.build_graph(graph, orders, deadline_s=deadline_s, minimised=minimised, of_bytes=of_bytes)
    built.least = whole(iteration_bound(built.whole))
    built.model.add(built.iteration >= built.least).with_name("least")
    return built


def proved_seconds(graph: PassGraph, limits: Limits) -> float | None:
    """The seconds of the shortest iteration of a graph; ``None`` if there is none, or no proof within the limits."""
    if not graph.is_possible():
        return None
    built = build(graph)
    found = run_cpsat(built.model, limits)
    if found.stop is not Stop.PROVED or found.values is None:
        return None
    return run(graph, built.orders(found.values)).iteration_s
