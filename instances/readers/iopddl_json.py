"""The JSON of the contest on intra-operator parallelism (IOPDDL, ASPLOS 2025 / EuroSys 2025), read and written.

``{"problem": {"name", "nodes": {"intervals", "costs", "usages"}, "edges": {"nodes", "costs"}, "usage_limit"}}``: lists
with an entry for each node or edge; an edge's costs have the first node's strategies as rows. Intervals are half-open.

Source: google/iopddl, iopddl.cc (commit 8a61c43), `ReadProblem`, and example.json; clarifications in IOPDDL.md of
asplos-contest/2025.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict

from instances.errors import InstanceError
from instances.problems.operator_strategies import OperatorStrategies, StrategyEdge, StrategyNode, check
from instances.rules import Identifier, Index
from instances.validation import read_instance, read_record


class _Nodes(BaseModel):
    model_config = ConfigDict(extra="ignore")
    intervals: list[tuple[Index, Index]]
    costs: list[tuple[Index, ...]]
    usages: list[tuple[Index, ...]]


class _Edges(BaseModel):
    model_config = ConfigDict(extra="ignore")
    nodes: list[tuple[Index, Index]]
    costs: list[tuple[Index, ...]]


class _Problem(BaseModel):
    model_config = ConfigDict(extra="ignore")
    name: Identifier = "iopddl"
    nodes: _Nodes
    edges: _Edges
    usage_limit: Index | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")
    problem: _Problem


def read(content: Any, where: str) -> OperatorStrategies:
    """The instance of a file of the contest, or of one in the project's own JSON.

    `InstanceError` if a field breaks a rule, or lists that belong together are of different lengths.
    """
    if isinstance(content, dict) and not isinstance(content.get("problem"), dict):
        return read_instance(OperatorStrategies, content, where, check)
    found = read_record(_File, content, where).problem
    nodes, edges = found.nodes, found.edges
    for field, count, expected in (
        ("nodes.costs", len(nodes.costs), len(nodes.intervals)),
        ("nodes.usages", len(nodes.usages), len(nodes.intervals)),
        ("edges.costs", len(edges.costs), len(edges.nodes)),
    ):
        if count != expected:
            raise InstanceError.at(where, f"len(problem.{field})", count, str(expected))
    instance = OperatorStrategies(
        found.name,
        tuple(map(StrategyNode, nodes.intervals, nodes.costs, nodes.usages)),
        tuple(map(StrategyEdge, edges.nodes, edges.costs)),
        found.usage_limit,
    )
    check(instance, where)
    return instance


def write(instance: OperatorStrategies) -> dict[str, Any]:
    """The content of a file that reads back as the instance; `InstanceError` if it has requirements."""
    if instance.requirements:
        raise InstanceError.at(instance.name, "requirements", list(instance.requirements), "none: the format has none")
    nodes, edges = instance.nodes, instance.edges
    limit = {} if instance.usage_limit is None else {"usage_limit": instance.usage_limit}
    return {
        "problem": {
            "name": instance.name,
            "nodes": {
                "intervals": [list(node.interval) for node in nodes],
                "costs": [list(node.costs) for node in nodes],
                "usages": [list(node.usages) for node in nodes],
            },
            "edges": {"nodes": [list(edge.nodes) for edge in edges], "costs": [list(edge.costs) for edge in edges]},
            **limit,
        }
    }
