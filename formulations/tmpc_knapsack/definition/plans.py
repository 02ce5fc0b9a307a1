"""Plans of the knapsack as JSON (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from instances.errors import InstanceError
from instances.problems.tmpc_knapsack import KnapsackInstance


def plan_to_json(_: KnapsackInstance, plan: KnapsackPlan) -> dict[str, Any]:
    """``{"choice": {"node": "tmpc id"}}``."""
    return {"choice": {str(node): option for node, option in plan.choice.items()}}


def plan_from_json(instance: KnapsackInstance, content: Any, where: str = "plan") -> KnapsackPlan:
    """The plan that parsed JSON describes; nodes and options that do not exist are left to ``violations``.

    Raises
    ------
    InstanceError
        If ``choice`` is missing or not an object of texts.
    """
    if not isinstance(content, dict):
        raise InstanceError.at(where, "content", content, "an object")
    if "choice" not in content:
        raise InstanceError.missing(where, "choice", "an object of option ids by node id")
    choice = content["choice"]
    if not isinstance(choice, dict):
        raise InstanceError.at(where, "choice", choice, "an object of option ids by node id")
    for node, option in choice.items():
        if not isinstance(option, str):
            raise InstanceError.at(where, f"choice.{node}", option, "the id of an option")
    ids: dict[str, int | str] = {str(node.id): node.id for node in instance.nodes}
    return KnapsackPlan({ids.get(str(node), str(node)): option for node, option in choice.items()})
