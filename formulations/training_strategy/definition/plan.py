"""What a plan decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from formulations.contract.plan_exchange import exchange
from instances.problems.training_strategy import Schedule, StrategyInstance
from instances.rules import Count, NodeId, Text, member_of


@dataclass(frozen=True)
class StrategyPlan:
    """The same degrees in all stages, a schedule, and what each global stage holds.

    ``chunks[g]`` are the layers of global stage g, which device g mod p of a pipeline of p devices runs; there are
    p ``virtual_stages`` of them, from the input side on. ``tmpcs`` has a TMPC for every layer.
    """

    pp_degree: Count
    tp_degree: Count
    dp_degree: Count
    virtual_stages: Count
    schedule: Annotated[Schedule, member_of(Schedule)]
    chunks: tuple[tuple[NodeId, ...], ...]
    tmpcs: Mapping[NodeId, Text]


def _with_ids(instance: StrategyInstance, declared: StrategyPlan, _: str) -> StrategyPlan:
    """Texts become the ids of the nodes that they name; those that do not exist are left to ``violations``."""
    ids = {str(node): node for node in instance.flat.index}
    chunks = tuple(tuple(ids.get(str(node), node) for node in chunk) for chunk in declared.chunks)
    return replace(declared, chunks=chunks, tmpcs={ids.get(str(v), v): name for v, name in declared.tmpcs.items()})


def _in_order(_: StrategyInstance, plan: StrategyPlan) -> StrategyPlan:
    """The plan with its TMPCs in the order of the chunks."""
    return replace(plan, tmpcs={node: plan.tmpcs[node] for chunk in plan.chunks for node in chunk})


plan_from_json, plan_to_json = exchange(
    '``{"pp_degree", "tp_degree", "dp_degree", "virtual_stages", "schedule", "chunks", "tmpcs"}``.',
    StrategyPlan,
    _with_ids,
    _in_order,
)
