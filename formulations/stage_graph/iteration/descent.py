"""Shorter iterations near a known plan: stages cut in two or merged, operators, devices and sizes that change.

Equation 1's plans, from which the search starts, leave devices idle where an iteration needs them. Each neighbour that
takes less than the best plan becomes the best plan, until none does. Nothing is proved here.
"""

import itertools
import math
from collections.abc import Iterator

from formulations.contract.quantities import judge
from formulations.stage_graph.costs.costs import Costs, assemble, bits
from formulations.stage_graph.costs.iteration import iteration_s
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import violations
from formulations.stage_graph.iteration.warm_ups import STEP, WarmUps
from instances.graph import topological_order
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Watch

#: Stages: operators as a bitset, and devices.
Parts = list[tuple[int, int]]
#: A plan that takes this many times as long as the best one is not near it.
_FAR = 2.0


def descend(costs: Costs, of_partitions: StageGraph, plans: list[StagePlan], watch: Watch) -> None:
    """Report plans near these and near a single stage, at every micro-batch size.

    ``of_partitions``: the instance without the requirements that are about warm-ups.
    """
    best = min((iteration_s(costs.instance, plan) for plan in plans), default=math.inf)
    starts = [[(sum(1 << v for v in stage.nodes), stage.devices) for stage in plan.stages] for plan in plans]
    for start, size in itertools.product([*starts, [(costs.everything, 1)]], costs.instance.microbatch_sizes):
        parts: Parts | None = [(nodes, min(devices, size)) for nodes, devices in start]
        seconds = _FAR * best
        while parts is not None:
            before, parts = parts, None
            for near in itertools.chain([before], _neighbours(costs, before)):
                if watch.stopped():
                    return
                found = _within(costs, of_partitions, near, size, seconds * (1 - STEP), watch)
                if found is not None:
                    watch.plan(*found)
                    parts, seconds = near, found[1]
                    best = min(best, seconds)
                    break


def _within(
    costs: Costs, of_partitions: StageGraph, parts: Parts, size: int, target_s: float, watch: Watch
) -> tuple[StagePlan, float] | None:
    """The quickest plan with these stages, if it is within the target."""
    instance = costs.instance
    reduce_s = max(costs.all_reduce(*part) for part in parts)
    for nodes, devices in parts:
        if devices > size or costs.memory(nodes, size, devices, size) > instance.memory_bytes:
            return None
        if instance.minibatch // size * costs.step(nodes, size, devices) + reduce_s >= target_s:
            return None
    owner = {v: number for number, (nodes, _) in enumerate(parts) for v in bits(nodes)}
    edges = {(owner[edge.source], owner[edge.target]) for edge in instance.edges}
    order = topological_order(len(parts), tuple((u, v) for u, v in edges if u != v))
    if len(order) < len(parts):
        return None  # they wait for each other
    plan = assemble(instance, [parts[number] for number in order], size)
    warm_ups = WarmUps(costs, plan)
    if not warm_ups.may_take(target_s) or judge(violations, of_partitions, plan):
        return None
    return warm_ups.best_below(target_s, watch)


def _neighbours(costs: Costs, parts: Parts) -> Iterator[Parts]:
    """Stages near these; some break a rule."""
    idle = costs.instance.num_devices - sum(devices for _, devices in parts)
    for number, part in enumerate(parts):
        others = parts[:number] + parts[number + 1 :]
        for two in _cuts(costs, part, idle):
            yield [*others, *two]
        lightest = sorted(others, key=lambda each: costs.work_s(each[0]) / each[1])
        if not idle and len(others) > 1:  # merging two frees devices for the part that is cut
            (own, devices), (theirs, more) = lightest[:2]
            for two in _cuts(costs, part, min(devices, more)):
                yield [*lightest[2:], (own | theirs, max(devices, more)), *two]
        for devices in {part[1] - 1, part[1] + 1, part[1] + idle} - {0, part[1]}:
            if devices <= part[1] + idle:
                yield [*others, (part[0], devices)]
    for one, other in itertools.permutations(range(len(parts)), 2):
        others = [part for number, part in enumerate(parts) if number not in (one, other)]
        (own, devices), (theirs, more) = parts[one], parts[other]
        if devices > 1:
            yield [*others, (own, devices - 1), (theirs, more + 1)]
        if one < other:
            for merged in {max(devices, more), devices + more}:
                yield [*others, (own | theirs, merged)]
        for v in bits(own):
            if own != 1 << v and (costs.successors[v] | costs.predecessors[v]) & theirs:
                yield [*others, (own & ~(1 << v), devices), (theirs | 1 << v, more)]


def _cuts(costs: Costs, part: tuple[int, int], idle: int) -> Iterator[Parts]:
    """The stage in two: the first operators of a topological order, and the others; on its devices and idle ones."""
    nodes, devices = part
    members, whole = list(bits(nodes)), costs.work_s(nodes) or 1.0
    first = 0
    for v in members[:-1]:
        first |= 1 << v
        share = costs.work_s(first) / whole
        for total in {devices, devices + min(idle, 1), devices + idle} - {1}:
            own = max(1, min(total - 1, round(share * total)))
            yield [(first, own), (nodes & ~first, total - own)]
