"""PipeDream's recursion on machines: stages of machines, stages inside of each, and so on, by its own costs.

A stage of a level is replicated on whole machines of that level, each of which is cut into stages by the recursion of
the level below. It has no tensor parallelism, recomputes nothing, and all devices of a machine work.

Source: PipeDream's release (optimizer_graph_hierarchical.py, commit 11c40c0), as
`stage_partitioning.paper.pipedream_recursion` states it. Deviation: of the numbers of workers of the last level, those
whose plan keeps the rules are compared, as memory has no part in the recursion on several levels.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from formulations.contract.family import Answer
from formulations.hierarchical_partitioning.definition.plan import Group, HierarchicalPlan, Superstage
from formulations.hierarchical_partitioning.definition.problem import violations
from formulations.stage_partitioning.definition.plan import Stage
from formulations.stage_partitioning.paper.pipedream import NEEDS_TP, without_memory
from formulations.stage_partitioning.paper.pipedream_recursion import Level, Replicated, chain_of, partition
from instances.graph import lifo_order
from instances.problems.hierarchical_partitioning import HierarchicalInstance
from instances.problems.stage_partitioning import StageInstance
from solvers.outcome import Limits, Stop, Watch


def solve(
    instance: HierarchicalInstance, _limits: Limits, watch: Watch, *, sync: str = "beside"
) -> Answer[HierarchicalPlan]:
    """Of the recursion's plans that keep the rules the one of least time by its own costs (``own_objective``)."""
    free = without_memory(instance.flat)
    if free is None:
        return Answer(stop=Stop.COMPLETED, reason=NEEDS_TP)
    order = lifo_order(len(free.layers), free.edge_indices)
    levels = [Level(instance.devices_per_machine, instance.inner_bandwidth)]
    levels += [Level(each.count, each.bandwidth) for each in instance.levels]
    found = partition(chain_of(free, order), levels, beside=sync == "beside", stopped=watch.stopped)
    reason = ""
    for _, own, stages in sorted(found, key=lambda each: each[1]):
        plan = _plan_of(free, order, stages)
        broken = violations(instance, plan)
        if not broken:
            watch.plan(plan)
            return Answer(plan, stop=watch.why(Stop.COMPLETED), stats={"own_objective": own})
        reason = (
            reason or f"none of its plans keeps the rules; the fastest breaks {broken[0].rule} ({broken[0].message})"
        )
    return Answer(stop=watch.why(Stop.COMPLETED), reason=reason)


def _plan_of(free: StageInstance, order: Sequence[int], stages: Sequence[Replicated]) -> HierarchicalPlan:
    """The stages in the superstages that they share, and these in groups of each level above machines."""
    ways = {v: min(layer.tmpcs[1], key=lambda x: x.time) for v, layer in enumerate(free.layers)}
    above = [stage.outer for stage in stages]

    def inner(stage: Replicated) -> Stage:
        own = order[stage.start : stage.end]
        replicas = stage.replicas
        for _, copies in stage.outer:
            replicas //= copies
        return Stage(tuple(free.layers[v].id for v in own), replicas, 1, {free.layers[v].id: ways[v].id for v in own})

    superstages = [
        Superstage(outer[0][1], tuple(inner(stage) for stage in held))
        for outer, held in groupby(stages, key=lambda stage: stage.outer)
    ]
    return HierarchicalPlan(tuple(superstages), tuple(tuple(_groups(above, at)) for at in range(1, len(above[0]))))


def _groups(above: Sequence[tuple[tuple[int, int], ...]], at: int) -> Iterator[Group]:
    """The groups of a level, by the stages of the levels below that they hold."""
    for own, held in groupby(dict.fromkeys(outer[at - 1 :] for outer in above), key=lambda outer: outer[1:]):
        yield Group(own[0][1], len(list(held)))
