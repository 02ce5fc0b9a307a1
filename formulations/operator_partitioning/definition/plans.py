"""Plans of operator partitioning as JSON (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from formulations.operator_partitioning.definition.plan import OperatorPlan
from instances.errors import InstanceError, closest
from instances.problems.operator_partitioning import OperatorInstance


def plan_to_json(instance: OperatorInstance, plan: OperatorPlan) -> dict[str, Any]:
    """``{"stages": [[id, ...], ...], "replicas": [...]}``."""
    ids = [operator.id for operator in instance.operators]
    return {"stages": [[ids[each] for each in stage] for stage in plan.stages], "replicas": list(plan.replicas)}


def plan_from_json(instance: OperatorInstance, content: Any, where: str = "plan") -> OperatorPlan:
    """The plan that parsed JSON describes; without ``replicas`` every stage has as many as declared.

    Raises
    ------
    InstanceError
        If ``stages`` is missing, is no list of lists, or names an operator that is not there.
    """
    if not isinstance(content, dict):
        raise InstanceError.at(where, "content", content, "an object")
    if "stages" not in content:
        raise InstanceError.missing(where, "stages", "a list of lists of operators")
    if not isinstance(content["stages"], list):
        raise InstanceError.at(where, "stages", content["stages"], "a list of lists of operators")
    index = {str(operator.id): number for number, operator in enumerate(instance.operators)}
    stages = []
    for number, stage in enumerate(content["stages"]):
        if not isinstance(stage, list):
            raise InstanceError.at(where, f"stages[{number}]", stage, "a list of operators")
        for place, identity in enumerate(stage):
            known = isinstance(identity, int | str) and not isinstance(identity, bool) and str(identity) in index
            if not known:
                rule = f"an operator{closest(identity, index)}"
                raise InstanceError.at(where, f"stages[{number}][{place}]", identity, rule)
        stages.append(tuple(sorted(index[str(identity)] for identity in stage)))
    return OperatorPlan(tuple(stages), _replicas(instance, content.get("replicas"), len(stages), where))


def _replicas(instance: OperatorInstance, given: Any, count: int, where: str) -> tuple[int, ...]:
    if given is None:
        free = instance.num_stages is None
        each = max(1, (instance.num_devices or 1) // max(1, count)) if free else instance.replicas
        return (each,) * count
    if not isinstance(given, list):
        raise InstanceError.at(where, "replicas", given, "a list of positive integers")
    for number, value in enumerate(given):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InstanceError.at(where, f"replicas[{number}]", value, "a positive integer")
    return tuple(given)
