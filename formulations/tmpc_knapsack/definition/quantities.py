"""The quantities of a choice that requirements may speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formulations.contract.quantities import Domain, Quantity
from instances.problems.tmpc_knapsack import KnapsackInstance as Instance
from instances.rules import NodeId

if TYPE_CHECKING:
    from formulations.tmpc_knapsack.definition.plan import KnapsackPlan

_NODE = Domain("node", lambda instance: [node.id for node in instance.nodes])
_OPTION = Domain(
    "option", lambda instance: list(dict.fromkeys(option.id for node in instance.nodes for option in node.options))
)


def chosen(_: Instance, plan: KnapsackPlan, node: NodeId, option: str) -> int:
    """1 if a node takes an option; 0 also if it has none of that id."""
    return int(plan.choice[node] == option)


def num_chosen(_: Instance, plan: KnapsackPlan, option: str) -> int:
    """Nodes that take an option of that id."""
    return sum(taken == option for taken in plan.choice.values())


VOCABULARY = (
    Quantity(
        "chosen",
        "whether a node takes an option; no if it has none of that id",
        chosen,
        (_NODE, _OPTION),
        is_yes_no=True,
    ),
    Quantity("num_chosen", "number of nodes that take an option of that id", num_chosen, (_OPTION,)),
)
