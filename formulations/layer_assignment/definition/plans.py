"""Plans of layer assignment as JSON (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from formulations.layer_assignment.definition.plan import LayerPlan
from instances.errors import InstanceError
from instances.problems.layer_assignment import LayerAssignmentInstance


def plan_to_json(_: LayerAssignmentInstance, plan: LayerPlan) -> dict[str, Any]:
    """``{"lengths": [...]}``."""
    return {"lengths": list(plan.lengths)}


def plan_from_json(_: LayerAssignmentInstance, content: Any, where: str = "plan") -> LayerPlan:
    """The plan that parsed JSON describes; wrong counts are left to ``violations``.

    Raises
    ------
    InstanceError
        If ``lengths`` is missing or not a list of integers.
    """
    if not isinstance(content, dict):
        raise InstanceError.at(where, "content", content, "an object")
    if "lengths" not in content:
        raise InstanceError.missing(where, "lengths", "a list of integers")
    lengths = content["lengths"]
    if not isinstance(lengths, list):
        raise InstanceError.at(where, "lengths", lengths, "a list of integers")
    for stage, length in enumerate(lengths):
        if isinstance(length, bool) or not isinstance(length, int):
            raise InstanceError.at(where, f"lengths[{stage}]", length, "an integer")
    return LayerPlan(tuple(lengths))
