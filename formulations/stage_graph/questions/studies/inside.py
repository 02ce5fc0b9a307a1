"""What GraphPipe solves inside: the parts of the graph that its recursion visits, and the schedules of its plans.

Source: GraphPipe, Algorithms 1 and 2.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.inner_problems import Arisen, Subproblem
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.simulation.simulate_graph import PassGraph, run
from formulations.stage_graph.costs.costs import bits
from formulations.stage_graph.costs.series_parallel import nodes_of
from formulations.stage_graph.definition.problem import schedule_of, simulate
from formulations.stage_graph.paper.graphpipe import default_search, each_size, published_sizes, solve_graphpipe
from formulations.stage_graph.paper.program import Branches, Remainder, TooLargeError
from instances.problems.stage_graph import AffineTime, OperatorEdge, StageGraph, TableTime, Time
from solvers.outcome import Limits, Watch


def parts_of_graphpipe(instance: StageGraph, limits: Limits, watch: Watch) -> Iterator[Arisen]:
    """Each part of the graph that the recursion visits, on each number of devices.

    The part stands alone: nothing is in flight behind it. What is sent over its border is paid for by the operators at
    the border, wherever their stage ends.
    """
    with alarm(watch):
        try:
            search = default_search(replace(instance, objective="tps", schedule="uniform"), watch)
        except TooLargeError:
            return
        found = list(dict.fromkeys(_nodes(each) for each in search.program.visited(search.segment)))
    for number, nodes in enumerate(found):
        for devices in range(1, instance.num_devices + 1):
            where: dict[str, str | int | float] = {"part": number, "nodes": f"{nodes:x}", "devices": devices}
            yield partial(_plan_part, instance, nodes, devices, limits, where)


def schedules_of_graphpipe(instance: StageGraph, _limits: Limits, watch: Watch) -> Iterator[Arisen]:
    """The schedule of each plan, a plan for each micro-batch size: as planned, and with backward passes first."""
    with alarm(watch):
        try:
            search = default_search(replace(instance, schedule="uniform"), watch)
        except TooLargeError:
            return
        plans = each_size(instance, watch, search.best_at, published_sizes(instance))
    for plan in plans:
        schedule = schedule_of(instance, plan)
        where: dict[str, str | int | float] = {"microbatch": plan.stages[0].microbatch, "stages": len(plan.stages)}
        for inner, trace in (("1f1b", simulate(instance, plan)), ("greedy", run(PassGraph(schedule)))):
            yield partial(Subproblem, schedule, inner, None if trace.stuck else SchedulePlan(trace.passes), where)


def _nodes(remainder: Remainder) -> int:
    if isinstance(remainder, Branches):
        return nodes_of(part for branch in remainder.branches for part in branch)
    return nodes_of(remainder)


def _plan_part(
    instance: StageGraph, nodes: int, devices: int, limits: Limits, where: dict[str, str | int | float]
) -> Subproblem:
    part = induced_graph(instance, nodes, devices)
    inner = "powers of two" if devices & (devices - 1) == 0 else "other counts"
    return Subproblem(part, inner, solve_graphpipe(part, limits, Watch(limits)).plan, where)


def induced_graph(instance: StageGraph, nodes: int, devices: int) -> StageGraph:
    """The operators of a bitset on so many devices, as a graph of their own.

    An edge over the border is cut in every plan, so its message is part of the passes of the operator at its end
    inside, and what comes in over it is kept as one of that operator's activations.
    """
    members = list(bits(nodes))
    index = {node: position for position, node in enumerate(members)}
    entering: dict[int, list[float]] = {node: [] for node in members}
    leaving: dict[int, list[float]] = {node: [] for node in members}
    for edge in instance.edges:
        if (edge.source in index) != (edge.target in index):
            end = edge.source if edge.source in index else edge.target
            (leaving if end == edge.source else entering)[end].append(edge.bytes_per_sample)
    operators = []
    for node in members:
        sent = [*entering[node], *leaving[node]]
        own = instance.operators[node]
        operators.append(replace(
            own,
            forward=_with_messages(instance, own.forward, sent),
            backward=_with_messages(instance, own.backward, sent),
            activation_bytes=own.activation_bytes + sum(entering[node]),
        ))  # fmt: skip
    return replace(
        instance,
        operators=tuple(operators),
        edges=tuple(
            OperatorEdge(index[edge.source], index[edge.target], edge.bytes_per_sample)
            for edge in instance.edges
            if edge.source in index and edge.target in index
        ),
        ids=tuple(instance.id_of(node) for node in members),
        num_devices=devices,
        objective="tps",
        schedule="uniform",
        options={},
    )


def _with_messages(instance: StageGraph, time: Time, sent: list[float]) -> Time:
    """A pass and the messages over the border, of so many bytes per sample each."""
    fixed, each = instance.latency_s * len(sent), sum(sent) / instance.bandwidth_bytes_per_s
    if isinstance(time, AffineTime):
        return AffineTime(time.fixed_s + fixed, time.per_sample_s + each)
    if not sent:
        return time
    samples = tuple(range(1, instance.minibatch + 1))
    return TableTime(samples, tuple(time.at(count) + fixed + each * count for count in samples))
