"""The project's own JSON of mesh tilings, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainValidator

from instances.errors import InstanceError
from instances.mesh_tiling import MeshInstance
from instances.parameters import one_of
from instances.readers.fields import Amount, Bandwidth, Count, Flag, Identifier, Version, validated

#: Devices of the largest mesh.
MAX_DEVICES = 2**16


class _InstanceRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, PlainValidator(one_of("mesh_tiling"))]
    schema_version: Version = 1
    name: Identifier = "mesh"
    rows: Count
    intra_bytes_per_s: list[Bandwidth]
    inter_bytes_per_s: list[Bandwidth]
    tp_degree: Count
    dp_degree: Count
    num_microbatches: Count = 8
    compute_s: Amount = 0.0
    tp_bytes: Amount = 0.0
    dp_bytes: Amount = 0.0
    stage_bytes: Amount = 0.0
    ordered: Flag = False


def read(content: Any, where: str) -> MeshInstance:
    """The instance that parsed JSON declares.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule.
    """
    record = validated(_InstanceRecord, content, where)
    nodes = len(record.intra_bytes_per_s)
    if not nodes:
        raise InstanceError.at(where, "intra_bytes_per_s", [], "a number for each node, at least one")
    if len(record.inter_bytes_per_s) != nodes:
        raise InstanceError.at(where, "len(inter_bytes_per_s)", len(record.inter_bytes_per_s), f"{nodes}")
    if record.rows * nodes > MAX_DEVICES:
        raise InstanceError.at(where, "rows x nodes", record.rows * nodes, f"at most {MAX_DEVICES} devices")
    fields = record.model_dump(exclude={"problem", "schema_version"})
    fields["intra_bytes_per_s"] = tuple(record.intra_bytes_per_s)
    fields["inter_bytes_per_s"] = tuple(record.inter_bytes_per_s)
    return MeshInstance(**fields)
