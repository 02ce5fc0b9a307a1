"""Plans of stage partitioning as JSON (docs/interface.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from instances.errors import InstanceError
from instances.parameters import parse_count
from instances.problems.stage_partitioning import StageInstance


def plan_to_json(_: StageInstance, plan: StagePlan) -> dict[str, Any]:
    """``{"stages": [{"nodes", "dp_degree", "tp_degree", "tmpcs"}, ...]}`` from the input side on."""
    return {
        "stages": [
            {
                "nodes": list(stage.nodes),
                "dp_degree": stage.dp_degree,
                "tp_degree": stage.tp_degree,
                "tmpcs": {str(node): stage.tmpcs[node] for node in stage.nodes},
            }
            for stage in plan.stages
        ]
    }


def plan_from_json(instance: StageInstance, content: Any, where: str = "plan") -> StagePlan:
    """The plan that parsed JSON describes; nodes and TMPCs that do not exist are left to ``violations``.

    Raises
    ------
    InstanceError
        If a field is missing or of the wrong type.
    """
    stages = _field(content, "stages", where, "", list)
    ids = {str(node): node for node in instance.index}
    return StagePlan(tuple(_stage(stage, where, f"stages[{i}]", ids) for i, stage in enumerate(stages)))


def _stage(content: Any, where: str, place: str, ids: Mapping[str, int | str]) -> Stage:
    nodes = _field(content, "nodes", where, place, list)
    for position, node in enumerate(nodes):
        if isinstance(node, bool) or not isinstance(node, int | str):
            raise InstanceError.at(where, f"{place}.nodes[{position}]", node, "a node id")
    tmpcs = _field(content, "tmpcs", where, place, dict)
    for node, name in tmpcs.items():
        if not isinstance(name, str):
            raise InstanceError.at(where, f"{place}.tmpcs.{node}", name, "the id of a TMPC")
    degrees = {}
    for name in ("dp_degree", "tp_degree"):
        value = _field(content, name, where, place, int)
        try:
            degrees[name] = parse_count(value)
        except ValueError as error:
            raise InstanceError.at(where, f"{place}.{name}", value, str(error)) from None
    return Stage(
        nodes=tuple(ids.get(str(node), node) for node in nodes),
        tmpcs={ids.get(str(node), node): name for node, name in tmpcs.items()},
        **degrees,
    )


def _field(content: Any, name: str, where: str, place: str, kind: type) -> Any:
    kinds = {list: "a list", dict: "an object", int: "a positive integer"}
    if not isinstance(content, dict):
        raise InstanceError.at(where, place or "content", content, "an object")
    field = f"{place}.{name}" if place else name
    if name not in content:
        raise InstanceError.missing(where, field, kinds[kind])
    if not isinstance(content[name], kind):
        raise InstanceError.at(where, field, content[name], kinds[kind])
    return content[name]
