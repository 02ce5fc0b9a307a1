"""Plans of hierarchical stage partitioning as JSON (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan, Superstage
from formulations.stage_partitioning.definition import plans as flat_plans
from formulations.stage_partitioning.definition.plan import StagePlan
from instances.errors import InstanceError
from instances.parameters import parse_count
from instances.problems.hierarchical_partitioning import HierarchicalInstance


def plan_to_json(instance: HierarchicalInstance, plan: HierarchicalPlan) -> dict[str, Any]:
    """``{"stages": [{"dp_degree", "inner": [stage, ...]}, ...]}`` from the input side on."""
    return {
        "stages": [
            {
                "dp_degree": superstage.dp_degree,
                "inner": flat_plans.plan_to_json(instance.flat, StagePlan(superstage.inner))["stages"],
            }
            for superstage in plan.stages
        ]
    }


def plan_from_json(instance: HierarchicalInstance, content: Any, where: str = "plan") -> HierarchicalPlan:
    """The plan that parsed JSON describes; nodes and TMPCs that do not exist are left to ``violations``.

    Raises
    ------
    InstanceError
        If a field is missing or of the wrong type.
    """
    if not isinstance(content, dict):
        raise InstanceError.at(where, "content", content, "an object")
    stages = content.get("stages")
    if not isinstance(stages, list):
        raise InstanceError.at(where, "stages", stages, "a list")
    return HierarchicalPlan(tuple(_superstage(instance, found, where, i) for i, found in enumerate(stages)))


def _superstage(instance: HierarchicalInstance, content: Any, where: str, position: int) -> Superstage:
    place = f"stages[{position}]"
    if not isinstance(content, dict):
        raise InstanceError.at(where, place, content, "an object")
    for name in ("dp_degree", "inner"):
        if name not in content:
            raise InstanceError.missing(where, f"{place}.{name}")
    if not isinstance(content["dp_degree"], int):
        raise InstanceError.at(where, f"{place}.dp_degree", content["dp_degree"], "a positive integer")
    try:
        dp_degree = parse_count(content["dp_degree"])
    except ValueError as error:
        raise InstanceError.at(where, f"{place}.dp_degree", content["dp_degree"], str(error)) from None
    inner = flat_plans.plan_from_json(instance.flat, {"stages": content["inner"]}, f"{where}: {place} (inner)")
    return Superstage(dp_degree, inner.stages)
