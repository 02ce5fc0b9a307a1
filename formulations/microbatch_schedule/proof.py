"""What the exact methods share: bounds and heuristics first, a solver for what they leave open."""

from __future__ import annotations

from typing import Protocol

from formulations.family import Answer
from formulations.microbatch_schedule.common import figures, impossible, lower_bound, offer
from formulations.microbatch_schedule.memory import least_memory
from formulations.microbatch_schedule.problem import SchedulePlan
from formulations.microbatch_schedule.search import EFFORT, search
from formulations.simulate_graph import GraphTrace, PassGraph
from instances.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits, Prover, Run, Stop, Watch


class Backend(Protocol):
    """A solver's models of one instance.

    ``minimise(graph, orders)`` tells the watch of schedules and bounds, from a schedule on; ``decide(graph)`` asks
    whether an iteration keeps the deadline (`memory.Decide`).
    """

    version: str

    def minimise(self, graph: PassGraph, orders: list[str]) -> Run:
        """The shortest iteration."""

    def decide(self, graph: PassGraph) -> list[str] | bool | None:
        """Orders that keep the deadline, ``False`` if there are none, ``None`` if that is unknown."""


def prove(instance: ScheduleInstance, limits: Limits, watch: Watch, backend: Backend) -> Answer[SchedulePlan]:
    """The best schedule and its proof."""
    if watch.stopped():
        return Answer(stop=watch.why())
    graph = PassGraph(instance)
    proof = impossible(instance, graph)
    if proof is not None:
        return proof
    bound = lower_bound(instance, graph)
    watch.bound(bound, Prover.BOUNDS)
    if instance.objective == "memory":
        return least_memory(instance, limits, watch, backend.decide, solver=backend.version)

    def found(trace: GraphTrace) -> None:
        offer(instance, watch, trace)

    goal = bound * (1 + 1e-9)
    best = search(graph, watch, limits.seed, found, goal, EFFORT // 3)
    if watch.stopped() or (watch.best_objective is not None and watch.best_objective <= goal):
        stats = figures(instance, watch.best_plan)
        return Answer(watch.best_plan, watch.best_bound, stop=watch.why(), solver=backend.version, stats=stats)
    outcome = backend.minimise(graph, list(best.orders(len(graph.counts))))
    if outcome.infeasible:
        reason = "no schedule keeps the deadline"
        return Answer(infeasible=True, stop=Stop.PROVED, solver=outcome.solver, reason=reason, stats=outcome.stats)
    stats = {**figures(instance, watch.best_plan), **outcome.stats}
    return Answer(
        watch.best_plan,
        watch.best_bound,
        stop=outcome.stop,
        solver=outcome.solver,
        reason=outcome.reason,
        stats=stats,
    )
