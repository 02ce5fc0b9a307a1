"""What the declarative models begin with: the published schedules, repaired and improved."""

from formulations.microbatch_schedule.feasibility import least_bytes, offer
from formulations.microbatch_schedule.heuristics import best_of
from formulations.microbatch_schedule.heuristics.memory import within
from formulations.modelling.warm_start import First
from formulations.simulation.simulate_graph import PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits, Watch


def first_plan(instance: ScheduleInstance, limits: Limits) -> First:
    """The plan of ``best-of``; for the least memory first the greedy schedule in the fewest bytes of any."""

    def find(watch: Watch) -> None:
        if instance.objective == "memory" and PassGraph(instance).is_possible():
            least = max(least_bytes(instance, device) for device in range(len(instance.stages_on)))
            graph = PassGraph(within(instance, least))
            if graph.is_possible():
                offer(instance, watch, run(graph))
        if not watch.stopped():
            best_of.solve(instance, limits, watch)

    return First("best-of", find)
