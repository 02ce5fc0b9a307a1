"""The best of several schedules (`search`), repaired and improved; for least memory, at every size that is tried."""

from formulations.contract.family import Answer
from formulations.microbatch_schedule.bounds import iteration_bound
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.feasibility import begin, figures, offer
from formulations.microbatch_schedule.heuristics.memory import least_memory
from formulations.microbatch_schedule.heuristics.search import search
from formulations.simulation.simulate_graph import PassGraph
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits, Watch


def solve(instance: ScheduleInstance, limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """The best schedule found, and the bound of `bounds`."""

    def go_on(graph: PassGraph, _bound: float) -> Answer[SchedulePlan]:
        if instance.objective == "memory":
            return least_memory(instance, limits, watch)
        goal = iteration_bound(graph) * (1 + 1e-9)
        search(graph, watch, limits.seed, lambda trace: offer(instance, watch, trace), goal)
        reason = "" if watch.best_plan is not None else "no schedule was found that keeps the deadline"
        stats = figures(instance, watch.best_plan)
        return Answer(watch.best_plan, watch.best_bound, stop=watch.why(), reason=reason, stats=stats)

    return begin(instance, watch, go_on)
