"""The least memory: the fewest bytes at the stage that holds most, within the deadline if there is one.

Bytes decide how many micro-batches each stage has room for. Without a deadline a schedule exists exactly if precedences
and rooms form no cycle; with one, bounds refute sizes and a search finds schedules. More bytes never hurt, so
the sizes are bisected.
"""

from __future__ import annotations

from formulations.contract.family import Answer
from formulations.microbatch_schedule.bounds import SAFE, iteration_bound
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.feasibility import SLACK, figures, no_schedule, offer
from formulations.microbatch_schedule.heuristics.search import EFFORT, search
from formulations.simulation.simulate_graph import GraphTrace, PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits, Prover, Stop, Watch


def sizes(instance: ScheduleInstance) -> list[float]:
    """The bytes that a peak can have, ascending."""
    every = {
        stage.bytes_held(count)
        for stage, room in zip(instance.stages, instance.rooms, strict=True)
        for count in range(1, room + 1)
    }
    return sorted(every)


def rooms(instance: ScheduleInstance, size: float) -> list[int]:
    """Micro-batches that each stage has room for in so many bytes."""
    found = []
    for stage, room in zip(instance.stages, instance.rooms, strict=True):
        low, high = 0, room + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if stage.bytes_held(middle) <= size else (low, middle)
        found.append(low)
    return found


def least_memory(
    instance: ScheduleInstance, limits: Limits, watch: Watch, effort: int = EFFORT
) -> Answer[SchedulePlan]:
    """Bisect the sizes: precedences and bounds exclude some, `search` finds schedules; what is open is passed over."""
    every = sizes(instance) or [0.0]
    low, high, proved, tried = 0, len(every), 0, 0  # below `low` nothing was found, below `proved` nothing is
    while low < high and not watch.stopped():
        middle = (low + high) // 2
        kept = _search(instance, PassGraph(instance, rooms(instance, every[middle])), limits, watch, effort)
        tried += 1
        if kept:
            high = middle
            continue
        low = middle + 1
        if kept is False:
            proved = low
    if proved < len(every):
        watch.bound(every[proved] * SAFE, Prover.BOUNDS)
    infeasible = proved == len(every) and watch.best_plan is None
    reason = "" if watch.best_plan is not None else "no schedule was found that keeps the deadline"
    return Answer(
        watch.best_plan,
        watch.best_bound,
        infeasible,
        Stop.PROVED if infeasible else watch.why(),
        proved_by=Prover.BOUNDS if infeasible else "",
        reason=no_schedule(instance) if infeasible else reason,
        stats={**figures(instance, watch.best_plan), "sizes": len(every), "sizes_tried": tried},
    )


def _search(instance: ScheduleInstance, graph: PassGraph, limits: Limits, watch: Watch, effort: int) -> bool | None:
    """Whether some rooms keep the deadline, as precedences, bounds or a schedule say (``None``: unknown)."""
    if not graph.is_possible():
        return False
    if instance.deadline_s is None:
        return offer(instance, watch, run(graph)) is not None
    limit = instance.deadline_s
    if iteration_bound(graph) > limit * (1 + 2 * SLACK):
        return False
    kept = False

    def found(trace: GraphTrace) -> None:
        nonlocal kept
        kept = offer(instance, watch, trace) is not None or kept

    search(graph, watch, limits.seed, found, limit, effort)
    return kept or None
