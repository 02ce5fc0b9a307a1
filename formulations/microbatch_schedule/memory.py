"""The least memory: the fewest bytes at the stage that holds most, within the deadline if there is one.

Bytes decide how many micro-batches each stage has room for. Without a deadline a schedule exists exactly if precedences
and rooms form no cycle; with one, each size that bounds leave open is a question to a scheduler. More bytes never hurt,
so the sizes are bisected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from formulations.family import Answer
from formulations.microbatch_schedule.bounds import SAFE, iteration_bound
from formulations.microbatch_schedule.common import SLACK, figures, offer
from formulations.microbatch_schedule.problem import SchedulePlan
from formulations.microbatch_schedule.search import EFFORT, search
from formulations.simulate_graph import GraphTrace, PassGraph, run
from instances.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits, Stop, Watch

#: Whether an iteration with these rooms keeps the deadline: its orders, ``False`` if proved not, ``None`` if unknown.
Decide = Callable[[PassGraph], "list[str] | bool | None"]


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
    instance: ScheduleInstance, limits: Limits, watch: Watch, decide: Decide | None = None, **told: Any
) -> Answer[SchedulePlan]:
    """Bisect the sizes of an instance that is possible; without ``decide`` what is not found counts as too small.

    ``told`` goes into the answer (the solver's name).
    """
    every = sizes(instance)
    low, high, proved, tried = 0, len(every), 0, 0  # below `low` nothing was found, below `proved` nothing is
    while low < high and not watch.stopped():
        middle = (low + high) // 2
        graph = PassGraph(instance, rooms(instance, every[middle]))
        tried += 1
        answer = _attempt(instance, graph, limits, watch, decide)
        if answer is True:
            high = middle
            continue
        low = middle + 1
        if answer is False:
            proved = max(proved, low)
        elif decide is not None:
            break
    if proved < len(every):
        watch.bound(every[proved] * SAFE)
    infeasible = proved == len(every) and watch.best_plan is None
    reason = "no schedule keeps the deadline" if infeasible else ""
    if not infeasible and watch.best_plan is None:
        reason = "no schedule was found that keeps the deadline"
    stats = {**figures(instance, watch.best_plan), "sizes": len(every), "sizes_tried": tried}
    stop = Stop.PROVED if infeasible else watch.why()
    return Answer(watch.best_plan, watch.best_bound, infeasible, stop, reason=reason, stats=stats, **told)


def _attempt(
    instance: ScheduleInstance, graph: PassGraph, limits: Limits, watch: Watch, decide: Decide | None
) -> bool | None:
    """Whether there is a schedule with these rooms; the watch is told of it."""
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

    search(graph, watch, limits.seed, found, limit, EFFORT // 4 if decide else EFFORT)
    if kept or decide is None or watch.stopped():
        return kept or None
    orders = decide(graph)
    if isinstance(orders, list):
        found(run(graph, orders))
        return kept or None
    return orders
