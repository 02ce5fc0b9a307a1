"""What a hierarchical run solves inside: the split of each superstage inside a machine.

Source: Piper, Appendix E: the recursion at level 1.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from formulations.contract.inner_problems import Arisen, Subproblem
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from formulations.hierarchical_partitioning.paper import solve
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.paper import piper as flat_paper
from instances.parameters import MAX_AMOUNT
from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel
from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc
from instances.rules import NodeId
from solvers.outcome import Limits, Watch


def splits(instance: HierarchicalInstance, limits: Limits, watch: Watch) -> Iterator[Arisen]:
    """The split of each superstage of the best plan: as it is there, and by the flat problem's published program.

    Where memory is counted, only of the last superstage: what others hold depends on those behind them. None where
    there are levels above machines.
    """
    if instance.upper_levels:
        return
    plan = solve(instance, limits, watch).plan or watch.best_plan
    if plan is None or instance.memory_model is MemoryModel.CRUDE:
        return
    for number in range(len(plan.stages)):
        if instance.memory_model is MemoryModel.NONE or number == len(plan.stages) - 1:
            yield partial(_from_plan, instance, plan, number)
            yield partial(_from_piper, instance, plan, number, limits)


def _from_plan(instance: HierarchicalInstance, plan: HierarchicalPlan, number: int) -> Subproblem:
    part = inside(instance, plan, number)
    return Subproblem(part, "as planned", StagePlan(plan.stages[number].inner), _origin(plan, number))


def _from_piper(instance: HierarchicalInstance, plan: HierarchicalPlan, number: int, limits: Limits) -> Subproblem:
    part, watch = inside(instance, plan, number), Watch(limits)
    found = flat_paper.solve(part, limits, watch).plan or watch.best_plan
    return Subproblem(part, "piper", found, _origin(plan, number))


def _origin(plan: HierarchicalPlan, number: int) -> dict[str, str | int | float]:
    return {"superstage": number, "machines": plan.stages[number].dp_degree}


def inside(instance: HierarchicalInstance, plan: HierarchicalPlan, number: int) -> StageInstance:
    """The nodes of a superstage on the devices of one machine; its time is that of a machine's slowest stage.

    What crosses the superstage's boundary is sent by the stage of the node inside, wherever that stage ends, so it is
    part of the node's time. The degrees of the other superstages are taken from N.
    """
    own = plan.stages[number]
    flat, nodes = instance.inner, {node for stage in own.inner for node in stage.nodes}
    others = sum(each.dp_degree * stage.dp_degree for each in plan.stages if each is not own for stage in each.inner)
    counted = instance.memory_model is not MemoryModel.NONE
    return replace(
        flat,
        layers=tuple(_alone(flat, layer, nodes) for layer in flat.layers if layer.id in nodes),
        edges=tuple(edge for edge in flat.edges if edge.source in nodes and edge.target in nodes),
        num_devices=instance.devices_per_machine,
        num_microbatches=(flat.num_microbatches - others) // own.dp_degree,
        memory_bytes=flat.memory_bytes if counted else MAX_AMOUNT,
        options={},
        warnings=(),
        tied=(),
        shared=(),
    )


def _alone(flat: StageInstance, layer: Layer, nodes: set[NodeId]) -> Layer:
    """A layer that sends and receives what crosses the boundary within its own time."""
    entering = {edge.source: edge.bytes for edge in flat.edges if edge.target == layer.id and edge.source not in nodes}
    leaving = {edge.target: edge.bytes for edge in flat.edges if edge.source == layer.id and edge.target not in nodes}

    def alone(tmpc: Tmpc) -> Tmpc:
        sent = [size + tmpc.sync_forward_bytes.get(node, 0.0) for node, size in entering.items()]
        sent += [size + tmpc.sync_backward_bytes.get(node, 0.0) for node, size in leaving.items()]
        return replace(
            tmpc,
            time=tmpc.time + 2 * math.fsum(sent) / flat.bandwidth,
            sync_forward_bytes={node: size for node, size in tmpc.sync_forward_bytes.items() if node not in entering},
            sync_backward_bytes={node: size for node, size in tmpc.sync_backward_bytes.items() if node not in leaving},
        )

    return replace(layer, tmpcs={t: tuple(map(alone, tmpcs)) for t, tmpcs in layer.tmpcs.items()})
