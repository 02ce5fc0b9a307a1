"""The paper's schedules: greedy (ScheduleTask), and kFkB with as many warm-up passes as the rule for in-flight samples.

Symbols: l, the forward passes of the warm-up; k, the consecutive passes of a kind.

Source: GraphPipe, section 6 (ScheduleTask, footnote 2) and Appendix A.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from formulations.contract.family import Answer
from formulations.microbatch_schedule.definition.in_flight import rule
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.feasibility import begin, figures, offer
from formulations.simulation.simulate_graph import GraphTrace, PassGraph, kfkb, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.outcome import Limits, Watch

#: Ratios of forward to backward times are rounded to fractions of so small numbers.
_MAX_DENOMINATOR = 1000


def warm_ups(graph: PassGraph, ks: Sequence[int], more: int = 0) -> list[int]:
    """Forward passes of each stage before its first backward pass: the rule, and so many more, as far as there is room.

    Links that take time are not counted: the rule knows none.
    """
    instance, rooms = graph.instance, graph.rooms
    samples, found = [0] * len(rooms), [0] * len(rooms)
    for stage in reversed(instance.order):
        own = instance.stages[stage]
        ratio = Fraction(own.backward_s / own.forward_s).limit_denominator(_MAX_DENOMINATOR)
        below = [(samples[s], instance.stages[s].microbatch, ks[s]) for s in instance.successors(stage)]
        wanted = rule(below, own.microbatch, ks[stage], (ratio.denominator, max(1, ratio.numerator)))
        found[stage] = min(rooms[stage], wanted // own.microbatch + more)
        samples[stage] = found[stage] * own.microbatch
    return found


def kfkb_orders(graph: PassGraph, ks: Sequence[int], more: int = 0) -> list[str]:
    """The order of every stage; a k beyond the room becomes the room."""
    ks = [min(k, room) for k, room in zip(ks, graph.rooms, strict=True)]
    warm_up = warm_ups(graph, ks, more)
    return [kfkb(count, warm_up[stage], ks[stage]) for stage, count in enumerate(graph.counts)]


def greedy(instance: ScheduleInstance, _limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """A backward pass if one is ready, else a forward pass if there is room (ScheduleTask)."""
    return _answer(instance, watch, run)


def one_f_one_b(instance: ScheduleInstance, _limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """Strict 1F1B: one backward pass, one forward pass, in turn after the warm-up; it may get stuck."""
    return _answer(instance, watch, lambda graph: run(graph, kfkb_orders(graph, [1] * len(instance.stages))))


def own_kfkb(instance: ScheduleInstance, _limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """Strict kFkB with the k of each stage; it may get stuck."""
    ks = [stage.k for stage in instance.stages]
    return _answer(instance, watch, lambda graph: run(graph, kfkb_orders(graph, ks)))


def _answer(instance: ScheduleInstance, watch: Watch, make: Callable[[PassGraph], GraphTrace]) -> Answer[SchedulePlan]:
    def go_on(graph: PassGraph, _bound: float) -> Answer[SchedulePlan]:
        trace = make(graph)
        plan = offer(instance, watch, trace)
        reason = ""
        if trace.stuck:
            reason = f"the order gets stuck: stages {', '.join(map(str, trace.stuck))} wait for each other; try best-of"
        elif plan is None:
            reason = f"the schedule takes {trace.iteration_s:.9g} s, longer than the deadline"
        return Answer(plan, watch.best_bound, reason=reason, stats=figures(instance, plan))

    return begin(instance, watch, go_on)
