"""Plans of stage graphs as JSON (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from formulations.stage_graph.definition.plan import Stage, StagePlan
from instances.errors import InstanceError, closest
from instances.problems.stage_graph import StageGraph

_MAX = 10**9


def plan_to_json(instance: StageGraph, plan: StagePlan) -> dict[str, Any]:
    """``{"stages": [{"nodes", "devices", "microbatch", "k", "in_flight"}], "edges": [[i, j]], "idle_devices": n}``.

    ``nodes`` are the operators' ids; ``devices`` is a number, or a list of devices where the
    instance has a device graph.
    """
    stages = [
        {
            "nodes": [instance.id_of(node) for node in stage.nodes],
            "devices": stage.devices if instance.device_graph is None else list(stage.device_ids),
            "microbatch": stage.microbatch,
            "k": stage.k,
            "in_flight": stage.in_flight,
        }
        for stage in plan.stages
    ]
    return {"stages": stages, "edges": [list(edge) for edge in plan.edges], "idle_devices": plan.idle_devices}


def plan_from_json(instance: StageGraph, content: Any, where: str = "plan") -> StagePlan:
    """The plan that parsed JSON describes; broken rules are left to ``violations``.

    Raises
    ------
    InstanceError
        If a field is missing or of the wrong type.
    """
    if not isinstance(content, dict):
        raise InstanceError.at(where, "content", content, "an object")
    for name in ("stages", "edges"):
        if name not in content:
            raise InstanceError.missing(where, name, "a list")
        if not isinstance(content[name], list):
            raise InstanceError.at(where, name, content[name], "a list")
    stages = tuple(_stage(instance, stage, f"stages[{i}]", where) for i, stage in enumerate(content["stages"]))
    edges = []
    for number, edge in enumerate(content["edges"]):
        pair = _integers(edge, f"edges[{number}]", where)
        if len(pair) != 2:
            raise InstanceError.at(where, f"edges[{number}]", edge, "two stages")
        edges.append((pair[0], pair[1]))
    idle = _integer(content.get("idle_devices", 0), "idle_devices", where)
    return StagePlan(stages, tuple(edges), idle)


def _stage(instance: StageGraph, content: Any, field: str, where: str) -> Stage:
    if not isinstance(content, dict):
        raise InstanceError.at(where, field, content, "an object")
    for name in ("nodes", "devices", "microbatch", "in_flight"):
        if name not in content:
            raise InstanceError.missing(where, f"{field}.{name}")
    nodes = _nodes(instance, content["nodes"], f"{field}.nodes", where)
    devices = 0
    ids: tuple[int, ...] = ()
    if instance.device_graph is None:
        devices = _integer(content["devices"], f"{field}.devices", where)
    else:
        ids = _integers(content["devices"], f"{field}.devices", where)
    microbatch, k, in_flight = (
        _integer(content.get(name, 1), f"{field}.{name}", where) for name in ("microbatch", "k", "in_flight")
    )
    return Stage(nodes, devices or len(ids), microbatch, in_flight, k, ids)


def _nodes(instance: StageGraph, content: Any, field: str, where: str) -> tuple[int, ...]:
    if not isinstance(content, list):
        raise InstanceError.at(where, field, content, "a list of operators")
    for number, node in enumerate(content):
        if isinstance(node, bool) or not isinstance(node, int | str) or node not in instance.index:
            rule = f"the id of an operator{closest(node, instance.index)}"
            raise InstanceError.at(where, f"{field}[{number}]", node, rule)
    return tuple(instance.index[node] for node in content)


def _integers(content: Any, field: str, where: str) -> tuple[int, ...]:
    if not isinstance(content, list):
        raise InstanceError.at(where, field, content, "a list of integers")
    return tuple(_integer(value, f"{field}[{i}]", where) for i, value in enumerate(content))


def _integer(value: Any, field: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX:
        raise InstanceError.at(where, field, value, "an integer")
    return value
