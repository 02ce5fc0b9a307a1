"""The best of several schedules (`search`), repaired and improved; for least memory, at every size that is tried."""

from __future__ import annotations

from formulations.family import Answer
from formulations.microbatch_schedule.bounds import iteration_bound
from formulations.microbatch_schedule.feasibility import figures, impossible, lower_bound, offer
from formulations.microbatch_schedule.memory import by_search, least_memory
from formulations.microbatch_schedule.problem import SchedulePlan
from formulations.microbatch_schedule.search import search
from formulations.simulate_graph import GraphTrace, PassGraph
from instances.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits, Prover, Watch


def solve(instance: ScheduleInstance, limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """The best schedule found, and the bound of `bounds`."""
    if watch.stopped():
        return Answer(stop=watch.why())
    graph = PassGraph(instance)
    proof = impossible(instance, graph)
    if proof is not None:
        return proof
    watch.bound(lower_bound(instance, graph), Prover.BOUNDS)
    if instance.objective == "memory":
        return least_memory(instance, watch, by_search(instance, limits, watch), past_unknown=True)

    def found(trace: GraphTrace) -> None:
        offer(instance, watch, trace)

    search(graph, watch, limits.seed, found, iteration_bound(graph) * (1 + 1e-9))
    reason = "" if watch.best_plan is not None else "no schedule was found that keeps the deadline"
    stats = figures(instance, watch.best_plan)
    return Answer(watch.best_plan, watch.best_bound, stop=watch.why(), reason=reason, stats=stats)
