"""Simulated pipelines as pictures: which pass runs when, and how much of the time stages wait."""

from __future__ import annotations

import math
from collections.abc import Sequence

from formulations.breakdown import Passes, Stage, Task
from formulations.simulate import PipelineStage, simulate
from formulations.simulate_graph import Pass, PassGraph, kfkb, run
from instances.microbatch_schedule import ScheduleInstance

#: A picture has at most about so many passes; longer simulations are shown in part.
MOST_SHOWN = 5000
#: Of a steady state, which repeats itself, so many.
_MOST_STEADY = 1500
#: A simulation has at most about so many passes.
_MOST_SIMULATED = 20_000


def forward_and_backward(time: float) -> tuple[float, float]:
    """A micro-batch's time as forward and backward pass: a third and two thirds, where an instance has only the sum."""
    return time / 3, time * 2 / 3


def waiting_share(tasks: Sequence[Task], lanes: int, start: float, end: float) -> float:
    """The part of the lanes' time from start to end in which nothing runs; 0 if there is no time.

    >>> waiting_share([Task(0, "F", 0, 0.0, 1.0), Task(1, "F", 0, 1.0, 2.0)], 2, 0.0, 2.0)
    0.5
    """
    if end <= start or not lanes:
        return 0.0
    busy = math.fsum(max(0.0, min(task.end, end) - max(task.start, start)) for task in tasks)
    return min(1.0, max(0.0, 1 - busy / (lanes * (end - start))))


def steady(own: Sequence[PipelineStage], stages: Sequence[Stage], pace: float, unit: str) -> Passes:
    """A pipeline without flushes, once it is filled: times count from the beginning of what is shown.

    Parameters
    ----------
    own
        The stages to be simulated, in the order of ``stages``.
    pace
        Time between micro-batches that enter: the bottleneck's time per sample.
    """
    filling = sum(stage.dp_degree for stage in own)
    count = max(6, min(3 * filling + 6, _MOST_SIMULATED // (2 * len(own))))
    trace = simulate(own, count, pace=pace)
    first = trace.makespan / 3
    length = trace.makespan / 3 * min(1.0, _MOST_STEADY / (2 * len(own) * count / 3))
    tasks = [
        Task(t.stage, "F" if t.is_forward else "B", t.microbatch, t.start - first, t.end - first, t.replica)
        for t in trace.tasks
        if t.end > first and t.start < first + length
    ]
    note = "Micro-batches enter at the pace of the objective, one every {}, and leave one every {}."
    within = [task._replace(start=max(0.0, task.start), end=min(length, task.end)) for task in tasks]
    return Passes(
        "Pipeline in its steady state, simulated",
        sorted(task for task in within if task.end > task.start),
        stages,
        waiting_share(within, filling, 0.0, length),
        unit,
        note,
        (pace, trace.time_per_sample()),
    )


def batch(
    own: Sequence[PipelineStage],
    stages: Sequence[Stage],
    num_microbatches: int,
    unit: str,
    *,
    backward_first: bool = True,
) -> Passes:
    """A batch of a flushed pipeline, from its first pass to its last; of large batches the first micro-batches."""
    count = _shown(num_microbatches, len(own))
    trace = simulate(own, count, backward_first=backward_first)
    tasks = [Task(t.stage, "F" if t.is_forward else "B", t.microbatch, t.start, t.end, t.replica) for t in trace.tasks]
    lanes = sum(stage.dp_degree for stage in own)
    share = waiting_share(tasks, lanes, 0.0, trace.makespan)
    return Passes(_title("A batch, simulated", count, num_microbatches), sorted(tasks), stages, share, unit)


def of_passes(title: str, passes: Sequence[Pass], stages: Sequence[Stage], unit: str = "s") -> Passes:
    """Passes that are known, as a picture: of many the first ones. The bubble is that of all."""
    tasks = [Task(p.stage, "F" if p.is_forward else "B", p.index, p.start_s, p.end_s) for p in passes]
    end = max((task.end for task in tasks), default=0.0)
    share = waiting_share(tasks, len(stages), 0.0, end)
    if len(tasks) > MOST_SHOWN:
        title = f"{title}: the first {MOST_SHOWN} of {len(tasks)} passes"
        tasks = sorted(tasks, key=lambda task: task.start)[:MOST_SHOWN]
    return Passes(title, sorted(tasks), stages, share, unit)


def one_f_one_b(instance: ScheduleInstance, stages: Sequence[Stage], unit: str = "s") -> Passes:
    """An iteration of equal micro-batches in the order of 1F1B; of large ones the first micro-batches alone.

    A stage warms up with as many forward passes as there are stages from it to the end.
    """
    count = _shown(instance.minibatch, len(stages))
    shown = ScheduleInstance(instance.name, count, instance.stages, instance.edges)
    behind = [1] * len(stages)
    for edge in sorted(instance.edges, key=lambda edge: -edge.source):
        behind[edge.source] = max(behind[edge.source], behind[edge.target] + 1)
    orders = [kfkb(count, min(count, each), 1) for each in behind]
    return of_passes(
        _title("An iteration, simulated (1F1B)", count, instance.minibatch),
        run(PassGraph(shown), orders).passes,
        stages,
        unit,
    )


def _shown(num_microbatches: int, num_stages: int) -> int:
    return min(num_microbatches, max(4, MOST_SHOWN // (2 * num_stages)))


def _title(what: str, count: int, of: int) -> str:
    return what if count == of else f"{what}: {count} of {of} micro-batches"
