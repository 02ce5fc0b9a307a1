"""The project's own JSON of TMPC knapsacks, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from instances.errors import InstanceError
from instances.parameters import MAX_AMOUNT, one_of
from instances.readers.fields import Amount, Identifier, NodeId, Version, validated
from instances.tmpc_knapsack import Choice, KnapsackInstance, KnapsackNode


def _fact(value: Any) -> str | int | float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, str) and not (number and abs(value) <= MAX_AMOUNT):
        raise ValueError("text or a finite number")
    found: str | int | float = value
    return found


class _ChoiceRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: Identifier
    time: Amount
    memory_bytes: Amount


class _NodeRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: NodeId
    options: list[_ChoiceRecord]


class _InstanceRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, PlainValidator(one_of("tmpc_knapsack"))]
    schema_version: Version = 1
    name: Identifier = "knapsack"
    capacity_bytes: Amount
    nodes: list[_NodeRecord]
    origin: dict[str, Annotated[str | int | float, PlainValidator(_fact)]] = Field(default_factory=dict)


def read(content: Any, where: str) -> KnapsackInstance:
    """The instance that parsed JSON declares; no node at all is allowed.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule: wrong types, numbers that are negative, not finite or
        beyond 1e30, nodes without options, ids that occur twice (node 1 and node "1" are the same).
    """
    record = validated(_InstanceRecord, content, where)
    _check_unique(where, "nodes", [node.id for node in record.nodes])
    for position, node in enumerate(record.nodes):
        if not node.options:
            raise InstanceError.at(where, f"nodes[{position}].options", [], "at least one option")
        _check_unique(where, f"nodes[{position}].options", [option.id for option in node.options])
    return KnapsackInstance(
        name=record.name,
        nodes=tuple(
            KnapsackNode(node.id, tuple(Choice(x.id, x.time, x.memory_bytes) for x in node.options))
            for node in record.nodes
        ),
        capacity_bytes=record.capacity_bytes,
        origin=record.origin,
    )


def _check_unique(where: str, field: str, ids: Sequence[int | str]) -> None:
    first: dict[str, int] = {}
    for position, name in enumerate(ids):
        before = first.setdefault(str(name), position)
        if before != position:
            rule = f"an id other than that of {field}[{before}]"
            raise InstanceError.at(where, f"{field}[{position}].id", name, rule)
