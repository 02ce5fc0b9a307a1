"""Bounds and heuristics first, CP-SAT's model for what they leave open: the quickest way to a proof, whosever it is."""

from __future__ import annotations

from dataclasses import dataclass

from formulations.family import Answer
from formulations.microbatch_schedule import cpsat
from formulations.microbatch_schedule.bounds import iteration_bound
from formulations.microbatch_schedule.feasibility import figures, impossible, lower_bound, offer
from formulations.microbatch_schedule.memory import Decision, by_search, least_memory
from formulations.microbatch_schedule.model_solving import decided, minimised
from formulations.microbatch_schedule.problem import SchedulePlan
from formulations.microbatch_schedule.search import EFFORT, search
from formulations.simulate_graph import GraphTrace, PassGraph, run
from instances.microbatch_schedule import ScheduleInstance
from solvers.cpsat import run as run_cpsat
from solvers.cpsat import whole
from solvers.outcome import Limits, Prover, Stop, Watch

#: Whose proof it is where the model closes the gap.
_MODEL = "cpsat"


def solve(instance: ScheduleInstance, limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """The best schedule, proved by bounds or by the model."""
    if watch.stopped():
        return Answer(stop=watch.why())
    graph = PassGraph(instance)
    proof = impossible(instance, graph)
    if proof is not None:
        return proof
    bound, backend = lower_bound(instance, graph), _Bounded(instance, limits, watch)
    watch.bound(bound, Prover.BOUNDS)
    if instance.objective == "memory":
        searched = by_search(instance, limits, watch, EFFORT // 4)

        def decide(graph: PassGraph) -> Decision:
            known = searched(graph)
            if known.kept is not None or watch.stopped():
                return known
            return decided(instance, watch, backend, graph, _MODEL)

        return least_memory(instance, watch, decide)

    def found(trace: GraphTrace) -> None:
        offer(instance, watch, trace)

    goal = bound * (1 + 1e-9)
    best = search(graph, watch, limits.seed, found, goal, EFFORT // 3)
    if watch.stopped() or (watch.best_objective is not None and watch.best_objective <= goal):
        return Answer(watch.best_plan, watch.best_bound, stop=watch.why(), stats=figures(instance, watch.best_plan))
    return minimised(instance, watch, backend, graph, list(best.orders(len(graph.counts))), _MODEL)


@dataclass
class _Bounded(cpsat.Backend):
    """The model with the shared bound inside; what goes beyond that is its own proof."""

    def build(self, graph: PassGraph, orders: list[str] | None) -> cpsat.CpsatModel:
        """The model of a question."""
        return bounded(super().build(graph, orders))

    def hear_bound(self, built: cpsat.CpsatModel, bound: float) -> None:
        """Tell the watch of a bound on the iteration, and whose it is."""
        own = bound > built.least + 0.5
        self.watch.bound(built.units.seconds(whole(bound)), _MODEL if own else Prover.BOUNDS)


def bounded(built: cpsat.CpsatModel) -> cpsat.CpsatModel:
    """The model with the bound of heads and tails."""
    built.least = whole(iteration_bound(built.whole))
    built.model.add(built.iteration >= built.least)
    return built


def proved_seconds(graph: PassGraph, limits: Limits) -> float | None:
    """The seconds of the shortest iteration of a graph; ``None`` if there is none, or no proof within the limits."""
    if not graph.is_possible():
        return None
    built = bounded(cpsat.build(graph))
    built.model.minimize(built.iteration)
    outcome = run_cpsat(built.model, limits)
    if outcome.stop is not Stop.PROVED or outcome.values is None:
        return None
    return run(graph, built.orders(outcome.values)).iteration_s
