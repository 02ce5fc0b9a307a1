"""What all methods begin with: is there a schedule at all, and how fast could it be."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.contract.quantities import judge
from formulations.contract.rounding import exactly
from formulations.microbatch_schedule.bounds import SAFE, chains, iteration_bound
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.problem import evaluate, peak_bytes, violations
from formulations.simulation.simulate_graph import GraphTrace, PassGraph, in_order
from instances.problems.microbatch_schedule import ScheduleInstance
from instances.units import of_room
from solvers.outcome import Prover, Watch

#: A deadline holds up to this part, as in the definition.
SLACK = 1e-9


def least_in_flight(instance: ScheduleInstance) -> list[int]:
    """Micro-batches in flight without which a stage alone gets stuck, whatever the others may hold.

    Its backward pass j waits, through the passes of all stages below, for a forward pass of its own that may come after
    forward pass j, as stages below may want more samples at once.
    """
    found = []
    for stage, own in enumerate(instance.stages):
        most = 1
        for index in range(instance.num_microbatches(stage)):
            samples = _closure(instance, stage, (index + 1) * own.microbatch)
            most = max(most, -(-samples // own.microbatch) - index)
        found.append(most)
    return found


def _closure(instance: ScheduleInstance, stage: int, samples: int) -> int:
    """Samples that must have passed forward through ``stage`` before its first ``samples`` can go backward."""
    wanted = {stage: samples}
    for number in instance.order:  # backward passes below that these wait for, and their own forward passes
        for after in instance.successors(number) if number in wanted else ():
            size = instance.stages[after].microbatch
            wanted[after] = max(wanted.get(after, 0), -(-wanted[number] // size) * size)
    for number in reversed(instance.order):
        for after in instance.successors(number):
            if after in wanted:
                size = instance.stages[number].microbatch
                wanted[number] = max(wanted.get(number, 0), -(-wanted[after] // size) * size)
    return wanted[stage]


def least_bytes(instance: ScheduleInstance, device: int) -> float:
    """Bytes that a device holds at some moment of every schedule.

    Some stage of it alone needs `least_in_flight`. And when the first backward pass of a stage starts, each stage from
    which there is a path to it has a micro-batch in flight, as its own backward pass is still to come.
    """
    stages, least = instance.stages_on[device], least_in_flight(instance)
    alone = [[least[s] if s == stage else 0 for s in range(len(least))] for stage in stages]
    above: dict[int, set[int]] = {}
    for stage in instance.order:
        before = (edge.source for edge in instance.edges if edge.target == stage)
        above[stage] = {stage}.union(*(above[each] for each in before))
    together = [[int(s in above[last]) for s in range(len(least))] for last in range(len(least))]
    return max(instance.bytes_held(device, held) for held in (*alone, *together))


def too_little_room(instance: ScheduleInstance) -> str:
    """Why no schedule keeps the caps."""
    for stage, (room, least) in enumerate(zip(instance.rooms, least_in_flight(instance), strict=True)):
        if room < least:
            b = instance.stages[stage].microbatch
            return f"stage {stage} has room for {room * b} samples in flight; it gets stuck with less than {least * b}"
    return "the rooms of several stages together leave a circle of passes that wait for each other"


def no_schedule(instance: ScheduleInstance) -> str:
    """Why there is no plan, where a method has refuted all."""
    return "no schedule keeps the rooms" + ("" if instance.deadline_s is None else " and the deadline")


def impossible(instance: ScheduleInstance, graph: PassGraph) -> Answer[SchedulePlan] | None:
    """The proof that there is no schedule, where precedences or a bound give one."""
    if not graph.is_possible():
        return infeasible_by_counting(too_little_room(instance))
    for device, stages in enumerate(instance.stages_on):
        memory = instance.memory(device)
        if graph.shares_memory(device) and memory is not None and (least := least_bytes(instance, device)) > memory:
            names = ", ".join(map(str, stages))
            return infeasible_by_counting(f"stages {names} of a device hold at least {of_room(least, memory)}")
    if instance.deadline_s is not None:
        bound = iteration_bound(graph)
        if bound > instance.deadline_s * (1 + 2 * SLACK):
            late = f"no schedule is faster than {exactly(bound)} s; the deadline is {exactly(instance.deadline_s)} s"
            return infeasible_by_counting(late)
    return None


def begin(
    instance: ScheduleInstance, watch: Watch, go_on: Callable[[PassGraph, float], Answer[SchedulePlan]]
) -> Answer[SchedulePlan]:
    """The proof that there is no schedule, or what a method makes of the graph and of the bound, which is reported."""
    if watch.stopped():
        return Answer(stop=watch.why())
    graph = PassGraph(instance)
    proof = impossible(instance, graph)
    if proof is not None:
        return proof
    bound = lower_bound(instance, graph)
    watch.bound(bound, Prover.BOUNDS)
    return go_on(graph, bound)


def lower_bound(instance: ScheduleInstance, graph: PassGraph) -> float:
    """Of the objective, for a graph that is possible."""
    if instance.objective == "memory":
        return max(least_bytes(instance, device) for device in range(len(instance.stages_on))) * SAFE
    return iteration_bound(graph, chains(graph))


def offer(instance: ScheduleInstance, watch: Watch, trace: GraphTrace) -> SchedulePlan | None:
    """Report a schedule to the watch, unless it is stuck or late; returns it if it was reported."""
    if trace.stuck:
        return None
    plan = SchedulePlan(trace.passes)
    if judge(violations, instance, plan):
        return None
    watch.plan(plan, evaluate(instance, plan))
    return plan


def figures(instance: ScheduleInstance, plan: SchedulePlan | None) -> dict[str, Any]:
    """What a schedule is like: seconds, idle time by phase, peaks by stage, and of bytes by device."""
    if plan is None:
        return {}
    lanes = GraphTrace(tuple(replace(task, stage=instance.device_of[task.stage]) for task in in_order(plan.passes)))
    devices = range(len(instance.stages_on))
    idle = [lanes.idle(device) for device in devices]
    return {
        "iteration_s": plan.iteration_s,
        "fill_idle_s": sum(each.fill for each in idle),
        "steady_idle_s": sum(each.steady for each in idle),
        "drain_idle_s": sum(each.drain for each in idle),
        "peak_in_flight": [plan.peak_in_flight(stage) * own.microbatch for stage, own in enumerate(instance.stages)],
        "bytes_at_peak": [peak_bytes(instance, plan, device) for device in devices],
    }
