"""Simulated pipelines as pictures: which pass runs when, and how much of the time stages wait."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from formulations.contract.figures.plan_figures import Passes, Stage, Task
from formulations.simulation import simulate_graph
from formulations.simulation.iteration import Iteration
from formulations.simulation.simulate_chain import PipelineStage, Trace, simulate
from formulations.simulation.simulate_graph import Pass
from instances.problems.microbatch_schedule import ScheduleInstance

#: A picture has at most about so many passes; longer simulations are shown in part.
MOST_SHOWN = 5000
#: Of a steady state, which repeats itself, so many.
_MOST_STEADY = 1500
#: A simulation has at most about so many passes.
_MOST_SIMULATED = 40_000
#: A pipeline settles while micro-batches enter, so many times as many as it has replicas, and so many at least.
_SETTLED, _FEW_SETTLED = 12, 200
#: What a stage waits for.
_WAITS = (
    "passes of other stages",
    "room, as stages keep no more micro-batches in flight than their memory is counted for",
)
#: Micro-batches that leave more slowly than they enter by no more than this share keep pace.
_SAME_PACE = 1e-6


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

    Where micro-batches leave more slowly than they enter, the note says how long the bottleneck waits, and for what.

    ``own``: the stages to be simulated, in the order of ``stages``.
    ``pace``: time between micro-batches that enter: the bottleneck's time per sample.
    """
    filling = sum(stage.dp_degree for stage in own)
    count = _long_enough(own, filling)
    trace = simulate(own, count, pace=pace)
    first = trace.makespan / 3
    shown = min(count / 3, filling + 2, _MOST_STEADY / (2 * len(own)))  # micro-batches
    length = trace.makespan * shown / count
    tasks = [
        Task(t.stage, "F" if t.is_forward else "B", t.microbatch, t.start - first, t.end - first, t.replica)
        for t in trace.tasks
        if t.end > first and t.start < first + length
    ]
    note = "Micro-batches enter at the pace of the objective, one every {}, and leave one every {}"
    within = [task._replace(start=max(0.0, task.start), end=min(length, task.end)) for task in tasks]
    return Passes(
        "Pipeline in its steady state, simulated",
        sorted(task for task in within if task.end > task.start),
        stages,
        waiting_share(within, filling, 0.0, length),
        unit,
        f"{note}{_why_later(own, stages, pace, trace)}.",
        (pace, trace.time_per_sample()),
    )


def _long_enough(own: Sequence[PipelineStage], filling: int) -> int:
    """So many micro-batches that the pipeline settles, a third of them whole rounds of all replicas if that is few."""
    most = _MOST_SIMULATED // (2 * len(own))
    count = max(6, min(max(_SETTLED * filling, _FEW_SETTLED), most))
    rounds = 3 * math.lcm(*(stage.dp_degree for stage in own))
    return -(-count // rounds) * rounds if rounds <= count else count


def _why_later(own: Sequence[PipelineStage], stages: Sequence[Stage], pace: float, trace: Trace) -> str:
    """Why micro-batches leave more slowly than they enter, behind a colon; empty where they do not.

    The objective is the bottleneck's own time, so it is right as long as the bottleneck always has a pass to run.
    """
    if trace.time_per_sample() <= (1 + _SAME_PACE) * pace:
        return ""
    slow = max(
        range(len(own)), key=lambda stage: (own[stage].forward_time + own[stage].backward_time) / own[stage].dp_degree
    )
    waits = dict(zip(_WAITS, _waits(own, slow, pace, trace), strict=True))
    said = [f"{100 * share:.2g} % of the time for {what}" for what, share in waits.items() if share > _SAME_PACE]
    if not said:
        return ""
    return (
        f": the objective counts the bottleneck, stage {stages[slow].label}, as always busy, and here it waits "
        f"{' and '.join(said)}"
    )


def _waits(own: Sequence[PipelineStage], stage: int, pace: float, trace: Trace) -> tuple[float, float]:
    """The parts of the middle third of the time in which a stage has no pass to run, and in which it has no room."""
    ready = {t.microbatch: t.end for t in trace.tasks if t.stage == stage - 1 and t.is_forward}
    first, last = trace.makespan / 3, 2 * trace.makespan / 3
    empty = full = 0.0
    for replica in range(own[stage].dp_degree):
        tasks = sorted((t for t in trace.tasks if (t.stage, t.replica) == (stage, replica)), key=lambda t: t.start)
        at_hand = math.inf  # since when the next forward pass could have run
        for before, task in reversed(list(pairwise(tasks))):
            if task.is_forward:
                at_hand = ready[task.microbatch] if stage else task.microbatch * pace
            start, end = max(before.end, first), min(task.start, last)
            if start < end:
                since = min(max(at_hand, start), end)
                empty, full = empty + since - start, full + end - since
    whole = own[stage].dp_degree * (last - first)
    return empty / whole, full / whole


def batch(simulated: Callable[[int], Iteration], stages: Sequence[Stage], num_microbatches: int, unit: str) -> Passes:
    """A batch of a flushed pipeline, from its first pass to its last; of large batches the first micro-batches.

    ``simulated(count)`` runs so many of them, with an order for every replica of every stage, stage by stage.
    """
    count = _num_drawn(num_microbatches, len(stages))
    found = simulated(count)
    tasks, replicas = [], Counter[int]()
    for order in found.orders:
        for action in order:
            end = found.end_s[action]
            begin = end - found.stages.seconds(action)
            tasks.append(Task(action.stage, action.kind, action.microbatch, begin, end, replicas[action.stage]))
        if order:
            replicas[order[0].stage] += 1
    share = waiting_share(tasks, len(found.orders), 0.0, found.makespan_s)
    title = _title("A batch, simulated", count, num_microbatches)
    return Passes(
        title, sorted(tasks), stages, share, unit, end=found.makespan_s if count == num_microbatches else None
    )


def of_passes(title: str, passes: Sequence[Pass], stages: Sequence[Stage], unit: str = "s") -> Passes:
    """Passes that are known, as a picture: of many the first ones. The bubble is that of all."""
    tasks = [Task(p.stage, p.kind, p.index, p.start_s, p.end_s) for p in passes]
    end = max((task.end for task in tasks), default=0.0)
    share = waiting_share(tasks, len(stages), 0.0, end)
    if len(tasks) > MOST_SHOWN:
        title = f"{title}: the first {MOST_SHOWN} of {len(tasks)} passes"
        tasks = sorted(tasks, key=lambda task: task.start)[:MOST_SHOWN]
    return Passes(title, sorted(tasks), stages, share, unit, end=end)


def one_f_one_b(instance: ScheduleInstance, stages: Sequence[Stage]) -> Passes:
    """An iteration of equal micro-batches in the order of 1F1B; of large ones the first micro-batches alone."""
    count = _num_drawn(instance.minibatch, len(stages))
    shown = ScheduleInstance(instance.name, count, instance.stages, instance.edges)
    title = _title("An iteration, simulated (1F1B)", count, instance.minibatch)
    passes = of_passes(title, simulate_graph.one_f_one_b(shown).passes, stages)
    return passes if count == instance.minibatch else replace(passes, end=None)


def beside_objective(
    passes: Passes, objective: float, says: str, undrawn: float = 0.0, what: str = "all-reduce"
) -> Passes:
    """The passes with a note of what the objective counts in another way, and both times if all were simulated.

    ``objective``: in the passes' unit.
    ``says``: what continues "The objective, 1.2 s": of what, and what it counts.
    ``undrawn``: how long ``what`` takes that follows the passes and is not drawn.
    """
    ended = "" if passes.end is None else ": these passes end after {}"
    after = f"; the {what} after them, {{}}, is not drawn" if undrawn and ended else ""
    amounts = [objective, *([] if passes.end is None else [passes.end, undrawn])]
    return replace(passes, note=f"The objective, {{}}{says}{ended}{after}.", amounts=amounts)


def _num_drawn(num_microbatches: int, num_stages: int) -> int:
    return min(num_microbatches, max(4, MOST_SHOWN // (2 * num_stages)))


def _title(what: str, count: int, of: int) -> str:
    return what if count == of else f"{what}: {count} of {of} micro-batches"
