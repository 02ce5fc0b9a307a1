"""The least memory: the fewest bytes at the device that holds most, within the deadline if there is one.

Bytes decide how many micro-batches each stage has room for. Without a deadline, and with a device for each stage, a
schedule exists exactly if precedences and rooms form no cycle; else bounds refute sizes and a search finds schedules.
More bytes never hurt, so the sizes are bisected.
"""

from dataclasses import replace

import numpy as np

from formulations.contract.family import Answer
from formulations.microbatch_schedule.bounds import SAFE
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.feasibility import figures, impossible, no_schedule, offer
from formulations.microbatch_schedule.heuristics.search import EFFORT, search
from formulations.simulation.simulate_graph import GraphTrace, PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits, Prover, Stop, Watch

#: Beyond so many sizes of a device's stages together some are left out, and before that of the sums they come from.
_MOST_SIZES, _MOST_SUMS = 10_000, 1_000_000


def sizes(instance: ScheduleInstance, watch: Watch) -> tuple[list[float], bool]:
    """The bytes that a peak can have, ascending, and whether these are all; of very many some, with the largest.

    None is below the sum of floats that it stands for, in whichever order that is taken, and hardly above it.
    """
    found: set[float] = set()
    is_whole = True
    for stages in instance.stages_on:
        sums = np.zeros(1)
        for stage in stages:
            if watch.stopped():
                return sorted(found), False
            fewest, own = int(len(stages) == 1), instance.stages[stage]
            held = np.array([own.bytes_held(number) for number in range(instance.rooms[stage], fewest - 1, -1)])
            step = 1 + len(sums) * len(held) // _MOST_SUMS
            sums = np.unique(np.add.outer(sums, held[::step]))[::-1]
            is_whole = is_whole and max(step, 1 + len(sums) // _MOST_SIZES) == 1
            sums = sums[:: 1 + len(sums) // _MOST_SIZES]
        # A sum of n floats is off by a part of n 2^-53 at most.
        found.update((sums * (1 + len(stages) * 2.0**-51)).tolist() if len(stages) > 1 else sums.tolist())
    return sorted(found), is_whole


def within(instance: ScheduleInstance, size: float) -> ScheduleInstance:
    """The instance with so many bytes at most on every device."""
    stages = (
        replace(stage, memory_bytes=min(size, size if stage.memory_bytes is None else stage.memory_bytes))
        for stage in instance.stages
    )
    return replace(instance, stages=tuple(stages))


def least_memory(
    instance: ScheduleInstance, limits: Limits, watch: Watch, effort: int = EFFORT
) -> Answer[SchedulePlan]:
    """Bisect the sizes: precedences and bounds exclude some, `search` finds schedules; what is open is passed over."""
    every, is_whole = sizes(instance, watch)
    every = every or [0.0]
    low, high, proved, tried = 0, len(every), 0, 0  # below `low` nothing was found, below `proved` nothing is
    while low < high and not watch.stopped():
        middle = (low + high) // 2
        kept = _search(instance, within(instance, every[middle]), limits, watch, effort)
        tried += 1
        if kept:
            high = middle
            continue
        low = middle + 1
        if kept is False:
            proved = low
    if proved < len(every) and (is_whole or proved):
        # A size that is left out may be enough, but is larger than one that is not; the least may be left out, too.
        watch.bound(every[proved if is_whole else proved - 1] * SAFE, Prover.BOUNDS)
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


def _search(
    instance: ScheduleInstance, scarce: ScheduleInstance, limits: Limits, watch: Watch, effort: int
) -> bool | None:
    """Whether less memory is enough, as counting, bounds or a schedule say (``None``: unknown)."""
    graph = PassGraph(scarce)
    if impossible(scarce, graph):
        return False
    if instance.deadline_s is None:
        return offer(instance, watch, run(graph)) is not None or None
    kept = False

    def found(trace: GraphTrace) -> None:
        nonlocal kept
        kept = offer(instance, watch, trace) is not None or kept

    search(graph, watch, limits.seed, found, instance.deadline_s, effort)
    return kept or None
