"""What a plan decides."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from formulations.contract.plan_exchange import exchange
from instances.problems.stage_partitioning import StageInstance
from instances.rules import Count, NodeId, Text


@dataclass(frozen=True)
class Stage:
    """Nodes run together with data-parallel degree d and tensor-parallel degree t, on d * t devices of their own."""

    nodes: tuple[NodeId, ...]
    dp_degree: Count
    tp_degree: Count
    tmpcs: Mapping[NodeId, Text]


@dataclass(frozen=True)
class StagePlan:
    """Stages from the input side on; the order decides how many micro-batches each has in flight."""

    stages: tuple[Stage, ...]


def with_ids(instance: StageInstance, declared: StagePlan, _: str = "") -> StagePlan:
    """Texts become the ids of the nodes that they name; those that do not exist are left to ``violations``."""
    ids = {str(node): node for node in instance.index}

    def name_stage(stage: Stage) -> Stage:
        nodes = tuple(ids.get(str(node), node) for node in stage.nodes)
        tmpcs = {ids.get(str(node), node): name for node, name in stage.tmpcs.items()}
        return replace(stage, nodes=nodes, tmpcs=tmpcs)

    return StagePlan(tuple(map(name_stage, declared.stages)))


def in_order(_: StageInstance, plan: StagePlan) -> StagePlan:
    """The plan with the TMPCs of each stage in the order of its nodes."""
    return StagePlan(
        tuple(replace(stage, tmpcs={node: stage.tmpcs[node] for node in stage.nodes}) for stage in plan.stages)
    )


plan_from_json, plan_to_json = exchange(
    '``{"stages": [{"nodes", "dp_degree", "tp_degree", "tmpcs"}, ...]}`` from the input side on.',
    StagePlan,
    with_ids,
    in_order,
)
