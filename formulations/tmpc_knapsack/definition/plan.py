"""What a plan decides."""

from collections.abc import Mapping
from dataclasses import dataclass

from formulations.contract.plan_exchange import exchange
from instances.problems.tmpc_knapsack import KnapsackInstance
from instances.rules import NodeId, Text


@dataclass(frozen=True)
class KnapsackPlan:
    """The id of the TMPC chosen for every node."""

    choice: Mapping[NodeId, Text]


def _with_ids(instance: KnapsackInstance, declared: KnapsackPlan, _: str) -> KnapsackPlan:
    """Texts become the ids of the nodes that they name."""
    ids = {str(node.id): node.id for node in instance.nodes}
    return KnapsackPlan({ids.get(str(node), node): option for node, option in declared.choice.items()})


plan_from_json, plan_to_json = exchange('``{"choice": {"node": "tmpc id"}}``.', KnapsackPlan, _with_ids)
