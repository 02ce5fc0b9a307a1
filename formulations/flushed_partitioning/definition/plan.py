"""What a plan decides: what a plan of the flat instance decides (docs/problems/flushed_partitioning.md)."""

from typing import Any

from formulations.stage_partitioning.definition import plan as flat
from formulations.stage_partitioning.definition.plan import StagePlan
from instances.problems.flushed_partitioning import FlushedInstance


def plan_to_json(instance: FlushedInstance, plan: StagePlan) -> dict[str, Any]:
    """``{"stages": [...]}``."""
    return flat.plan_to_json(instance.flat, plan)


def plan_from_json(instance: FlushedInstance, content: Any, where: str = "plan") -> StagePlan:
    """The plan that parsed JSON describes; `InstanceError` if it does not have the form of one."""
    found: StagePlan = flat.plan_from_json(instance.flat, content, where)
    return found
