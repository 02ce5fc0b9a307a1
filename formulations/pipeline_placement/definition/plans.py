"""Plans of pipeline placement as JSON (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from formulations.device_mapping.definition.plans import plan_from_json as mapping_from_json
from formulations.device_mapping.definition.plans import plan_to_json as mapping_to_json
from formulations.operator_partitioning.definition.plans import plan_from_json as partition_from_json
from formulations.operator_partitioning.definition.plans import plan_to_json as partition_to_json
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.problem import second_phase
from instances.errors import InstanceError
from instances.problems.pipeline_placement import PlacementInstance


def plan_to_json(instance: PlacementInstance, plan: PlacementPlan) -> dict[str, Any]:
    """``{"partition": ..., "mapping": ...}``, each as its own problem has it."""
    return {
        "partition": partition_to_json(instance.operators, plan.partition),
        "mapping": mapping_to_json(second_phase(instance, plan.partition), plan.mapping),
    }


def plan_from_json(instance: PlacementInstance, content: Any, where: str = "plan") -> PlacementPlan:
    """The plan that parsed JSON describes; whether it keeps the rules is left to ``violations``.

    Raises
    ------
    InstanceError
        If a part is missing or malformed.
    """
    if not isinstance(content, dict):
        raise InstanceError.at(where, "content", content, "an object")
    for part in ("partition", "mapping"):
        if part not in content:
            raise InstanceError.missing(where, part, "both phases of a plan")
    partition = partition_from_json(instance.operators, content["partition"], f"{where}: partition")
    # The mapping's form does not depend on the stages; whether it fits them is a rule.
    return PlacementPlan(partition, mapping_from_json(None, content["mapping"], f"{where}: mapping"))  # type: ignore[arg-type]
