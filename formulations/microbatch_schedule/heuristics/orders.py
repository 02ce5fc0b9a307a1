"""The paper's schedules: greedy (ScheduleTask), and kFkB with as many warm-up passes as the rule for in-flight samples.

Symbols: l, the forward passes of the warm-up; k, the consecutive passes of a kind.

Source: GraphPipe, section 6 (ScheduleTask, footnote 2) and Appendix A.1.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

from formulations.contract.family import Answer
from formulations.contract.quantities import judge
from formulations.microbatch_schedule.definition.in_flight import rule
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.problem import violations
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
        ratio = Fraction((own.backward_s + (own.weight_s or 0.0)) / own.forward_s).limit_denominator(_MAX_DENOMINATOR)
        below = [(samples[s], instance.stages[s].microbatch, ks[s]) for s in instance.successors(stage)]
        wanted = rule(below, own.microbatch, ks[stage], (ratio.denominator, max(1, ratio.numerator)))
        found[stage] = min(rooms[stage], wanted // own.microbatch + more)
        samples[stage] = found[stage] * own.microbatch
    return found


def kfkb_orders(graph: PassGraph, ks: Sequence[int], more: int = 0) -> list[str]:
    """The order of every device, which has one stage; a k beyond the room becomes the room."""
    ks = [min(k, room) for k, room in zip(ks, graph.rooms, strict=True)]
    warm_up = warm_ups(graph, ks, more)
    return [kfkb(graph.counts[stage], warm_up[stage], ks[stage]) for (stage,) in graph.instance.stages_on]


def greedy(instance: ScheduleInstance, _limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """A backward pass if one is ready, else a forward pass if there is room (ScheduleTask), else a weight gradient."""
    return answer(instance, watch, run)


def one_f_one_b(instance: ScheduleInstance, _limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """Strict 1F1B: one backward pass, one forward pass, in turn after the warm-up; it may get stuck."""
    return answer(instance, watch, lambda graph: run(graph, kfkb_orders(graph, [1] * len(instance.stages))))


def own_kfkb(instance: ScheduleInstance, _limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """Strict kFkB with the k of each stage; it may get stuck."""
    ks = [stage.k for stage in instance.stages]
    return answer(instance, watch, lambda graph: run(graph, kfkb_orders(graph, ks)))


def answer(instance: ScheduleInstance, watch: Watch, make: Callable[[PassGraph], GraphTrace]) -> Answer[SchedulePlan]:
    """The schedule that ``make`` gives, or why it is none."""

    def go_on(graph: PassGraph, _bound: float) -> Answer[SchedulePlan]:
        trace = make(graph)
        plan = offer(instance, watch, trace)
        reason = ""
        if trace.stuck:
            reason = f"the order gets stuck: stages {', '.join(map(str, trace.stuck))} wait for each other; try best-of"
        elif plan is None:
            broken = judge(violations, instance, SchedulePlan(trace.passes))
            reason = f"the order breaks a rule: {broken[0]}"
        return Answer(plan, watch.best_bound, reason=reason, stats=figures(instance, plan))

    return begin(instance, watch, go_on)
