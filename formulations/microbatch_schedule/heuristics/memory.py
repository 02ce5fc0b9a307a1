"""The least memory: the fewest bytes at the stage that holds most, within the deadline if there is one.

Bytes decide how many micro-batches each stage has room for. Without a deadline a schedule exists exactly if precedences
and rooms form no cycle; with one, each size that bounds leave open is decided by a scheduler. More bytes never hurt,
so the sizes are bisected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from formulations.contract.family import Answer
from formulations.microbatch_schedule.bounds import SAFE, iteration_bound
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.feasibility import SLACK, figures, offer
from formulations.microbatch_schedule.heuristics.search import EFFORT, search
from formulations.simulation.simulate_graph import GraphTrace, PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits, Prover, Stop, Watch


@dataclass(frozen=True)
class Decision:
    """Whether an iteration with some rooms keeps the deadline (``None``: unknown), by whose means, and which solver.

    ``reason``: why it is unknown, in the solver's words.
    """

    kept: bool | None
    by: str = Prover.BOUNDS
    solver: str = ""
    reason: str = ""


#: Answers for the rooms of a graph, and reports a schedule to the watch.
Decide = Callable[[PassGraph], Decision]


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
    instance: ScheduleInstance, watch: Watch, decide: Decide, *, past_unknown: bool = False
) -> Answer[SchedulePlan]:
    """Bisect the sizes; ``past_unknown``: what is not decided counts as too small, but for the bound."""
    every = sizes(instance) or [0.0]
    low, high, proved, tried = 0, len(every), 0, 0  # below `low` nothing was found, below `proved` nothing is
    by, solver, failed = str(Prover.BOUNDS), "", ""  # whatever is scheduled holds the smallest size
    while low < high and not watch.stopped():
        middle = (low + high) // 2
        answer = decide(PassGraph(instance, rooms(instance, every[middle])))
        tried, solver = tried + 1, answer.solver or solver
        if answer.kept:
            high = middle
            continue
        if answer.kept is False:
            low = proved = middle + 1
            by = answer.by  # of the largest size that is too small
        elif past_unknown:
            low = middle + 1
        else:
            failed = answer.reason
            break
    if proved < len(every):
        watch.bound(every[proved] * SAFE, by)
    infeasible = proved == len(every) and watch.best_plan is None
    reason = "no schedule keeps the rooms" + ("" if instance.deadline_s is None else " and the deadline")
    if not infeasible:
        reason = failed or ("" if watch.best_plan is not None else "no schedule was found that keeps the deadline")
    return Answer(
        watch.best_plan,
        watch.best_bound,
        infeasible,
        Stop.PROVED if infeasible else watch.why(),
        proved_by=by if infeasible else "",
        solver=solver,
        reason=reason,
        stats={**figures(instance, watch.best_plan), "sizes": len(every), "sizes_tried": tried},
    )


def by_search(instance: ScheduleInstance, limits: Limits, watch: Watch, effort: int = EFFORT) -> Decide:
    """Precedences and bounds exclude sizes, `search` finds schedules."""
    return lambda graph: Decision(_searched(instance, graph, limits, watch, effort))


def _searched(instance: ScheduleInstance, graph: PassGraph, limits: Limits, watch: Watch, effort: int) -> bool | None:
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
