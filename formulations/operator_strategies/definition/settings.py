"""What an instance of operator strategies is read from, and what a caller may change of it."""

from typing import Any

from formulations.contract.family import OwnJson
from instances.parameters import Setting
from instances.problems.operator_strategies import OperatorStrategies, check
from instances.units import parse_bytes

_JSON = OwnJson(OperatorStrategies, check)

#: What is minimised.
MINIMISES = {"": "cost of all nodes and edges"}
OVERRIDES = (
    Setting(
        "usage-limit",
        lambda given: int(parse_bytes(given)),
        "usage of all live nodes together at any time: a number, or 16GB where usages are bytes",
        metavar="SIZE",
    ),
)


def recognise(content: Any) -> bool:
    """The project's own JSON, or the contest's."""
    return (isinstance(content, dict) and isinstance(content.get("problem"), dict)) or _JSON.recognise(content)


def unit(_: OperatorStrategies) -> str:
    """The objective's unit: the contest says none."""
    return ""


def num_strategies(instance: OperatorStrategies) -> int:
    """Strategies of all nodes together."""
    return sum(len(node.costs) for node in instance.nodes)


def num_pairs(instance: OperatorStrategies) -> int:
    """Pairs of strategies of all edges together."""
    return sum(len(edge.costs) for edge in instance.edges)


def describe(instance: OperatorStrategies) -> dict[str, Any]:
    """The key figures of an instance."""
    return {
        "nodes": len(instance.nodes),
        "strategies": num_strategies(instance),
        "edges": len(instance.edges),
        "pairs of strategies": num_pairs(instance),
        "usage limit": "none" if instance.usage_limit is None else instance.usage_limit,
    }
