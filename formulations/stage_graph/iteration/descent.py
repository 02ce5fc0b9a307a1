"""Shorter iterations near a known plan: stages cut in two or merged, operators, devices and sizes that change.

Equation 1's plans, from which the search starts, leave devices idle where an iteration needs them. Each neighbour that
takes less than the best plan becomes the best plan, until none does. Nothing is proved here.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from formulations.contract.quantities import judge
from formulations.stage_graph.costs.costs import Costs, assemble, bits
from formulations.stage_graph.costs.iteration import iteration_s
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import violations
from formulations.stage_graph.iteration.warm_ups import STEP, WarmUps
from formulations.stage_graph.upsets.branches import UnsuitableError, structure_of
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Watch

#: Stages: operators as a bitset, and devices.
Parts = list[tuple[int, int]]


class _Stage(NamedTuple):
    """What a stage takes: t of a micro-batch and its all-reduce (``inf``: too much memory), and what it waits for."""

    step_s: float
    reduce_s: float
    begin: int


#: Of operators and devices.
_StageOf = Callable[[int, int], _Stage]
#: A plan that takes this many times as long as the best one is not near it.
_FAR = 2.0
#: Lengths of heads, and degrees of theirs, of which the quickest is chosen: about so many.
_TRIED = 32


def descend(costs: Costs, of_partitions: StageGraph, plans: list[StagePlan], watch: Watch) -> None:
    """Report plans near these, near a single stage and near the quickest equal heads, at every micro-batch size.

    ``of_partitions``: the instance without the requirements that are about warm-ups.
    """
    best = min((iteration_s(costs.instance, plan) for plan in plans), default=math.inf)
    starts = [[(sum(1 << v for v in stage.nodes), stage.devices) for stage in plan.stages] for plan in plans]
    kinds = [list(_heads(costs)), *([each] for each in starts), [[(costs.everything, 1)]]]
    for number, size in itertools.product(range(len(kinds)), costs.instance.microbatch_sizes):
        seconds, stage_of = best if not number else _FAR * best, functools.cache(functools.partial(_stage, costs, size))
        near_which = [[(nodes, min(devices, size)) for nodes, devices in each] for each in kinds[number]]
        rounds = costs.instance.minibatch // size
        parts = min(near_which, key=lambda each: _at_least_s(each, rounds, stage_of), default=None)
        while parts is not None:
            before, parts = parts, None
            for near, quicker in itertools.chain([(before, True)], _steps(costs, before, size, stage_of)):
                if watch.stopped():
                    return
                target = seconds * (1 - STEP if quicker else 1 + STEP)
                found = _within(costs, of_partitions, near, size, target, watch, stage_of)
                if found is not None:
                    watch.plan(*found)
                    parts, seconds = near, min(seconds, found[1])
                    best = min(best, seconds)
                    break


def _stage(costs: Costs, size: int, nodes: int, devices: int) -> _Stage:
    begin = functools.reduce(int.__or__, (costs.predecessors[v] for v in bits(nodes))) & ~nodes
    fits = devices <= size and costs.memory(nodes, size, devices, size) <= costs.instance.memory_bytes
    return _Stage(costs.step(nodes, size, devices), costs.all_reduce(nodes, devices) if fits else math.inf, begin)


def _heads(costs: Costs) -> Iterator[Parts]:
    """The first operators of each branch, as many on as many devices each, and a stage of all others."""
    try:
        branches = structure_of(costs).branches
    except UnsuitableError:
        return
    longest, most = max(map(len, branches)), (costs.instance.num_devices - 1) // len(branches)
    for length in range(1, longest + 1, 1 + longest // _TRIED):
        heads = [sum(1 << v for v in branch[:length]) for branch in branches]
        rest = costs.everything & ~sum(heads)
        for own in range(1, most + 1, 1 + most // _TRIED) if rest else ():
            yield [*((nodes, own) for nodes in heads), (rest, costs.instance.num_devices - own * len(branches))]


def _at_least_s(parts: Parts, rounds: int, stage_of: _StageOf) -> float:
    """Seconds of an iteration of these stages, at least; ``inf`` if they wait for each other or do not fit."""
    seconds = _in_order(parts, rounds, stage_of)
    reduce_s = max(stage_of(*part).reduce_s for part in parts)
    return max(seconds.values()) + reduce_s if len(seconds) == len(parts) else math.inf


def _within(
    costs: Costs, of_partitions: StageGraph, parts: Parts, size: int, target_s: float, watch: Watch, stage_of: _StageOf
) -> tuple[StagePlan, float] | None:
    """The quickest plan with these stages, if it is within the target."""
    rounds, stages = costs.instance.minibatch // size, [stage_of(*part) for part in parts]
    if rounds * max(stage.step_s for stage in stages) + max(stage.reduce_s for stage in stages) >= target_s:
        return None
    if _at_least_s(parts, rounds, stage_of) >= target_s:
        return None
    plan = assemble(costs.instance, [parts[number] for number in _in_order(parts, rounds, stage_of)], size)
    warm_ups = WarmUps(costs, plan)
    if not warm_ups.may_take(target_s) or judge(violations, of_partitions, plan):
        return None
    return warm_ups.best_below(target_s, watch)


def _in_order(parts: Parts, rounds: int, stage_of: _StageOf) -> dict[int, float]:
    """Stages in an order of the tensors, with head + N t of each (`search`); without those that wait for each other."""
    waiting = {number: stage_of(*part) for number, part in enumerate(parts)}
    seconds, ends, placed = dict[int, float](), list[tuple[int, float]](), 0
    while ready := [number for number, stage in waiting.items() if not stage.begin & ~placed]:
        for number in ready:
            nodes, (own, _, begin) = parts[number][0], waiting.pop(number)
            head = max((end for each, end in ends if each & begin), default=0.0)
            seconds[number] = head + rounds * own
            ends.append((nodes, head + own))
            placed |= nodes
    return seconds


def _devices(parts: Parts) -> int:
    return sum(devices for _, devices in parts)


def _steps(costs: Costs, parts: Parts, size: int, stage_of: _StageOf) -> Iterator[tuple[Parts, bool]]:
    """Stages near these, and whether they have to be quicker: not where devices are spared."""
    sparing = list[Parts]()
    for near in _neighbours(costs, parts):
        yield near, True
        if _devices(near) < _devices(parts):
            sparing.append(near)
    for near in sparing:  # what is spared goes to the stage that ends last
        seconds = _in_order(near, costs.instance.minibatch // size, stage_of)
        if len(seconds) == len(near):
            last = max(seconds, key=seconds.__getitem__)
            nodes, devices = near[last]
            more = min(size, devices + costs.instance.num_devices - _devices(near))
            yield [*near[:last], (nodes, more), *near[last + 1 :]], True
    for near in sparing:
        yield near, False


def _neighbours(costs: Costs, parts: Parts) -> Iterator[Parts]:
    """Stages near these; some break a rule."""
    idle = costs.instance.num_devices - _devices(parts)
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
