"""The project's own JSON of pipeline placements, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainValidator

from instances.device_mapping import MICROBATCHES, OBJECTIVES, RINGS
from instances.parameters import one_of
from instances.pipeline_placement import PlacementInstance, placed
from instances.readers import operator_json
from instances.readers.device_mapping_json import check_matrix
from instances.readers.fields import Amount, Count, Version, validated


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, PlainValidator(one_of("pipeline_placement"))]
    schema_version: Version = 1
    objective: Annotated[str, PlainValidator(one_of(*OBJECTIVES))] = "full"
    ring: Annotated[str, PlainValidator(one_of(*RINGS))] = RINGS[0]
    microbatches: Count = MICROBATCHES
    operators: dict[str, Any]
    bandwidth_bytes_per_s: list[list[Amount]]


def read(content: Any, where: str) -> PlacementInstance:
    """The instance that parsed JSON declares; `InstanceError` for the first field that breaks a rule."""
    record = validated(_Record, content, where)
    matrix = tuple(tuple(row) for row in record.bandwidth_bytes_per_s)
    check_matrix(matrix, where, "bandwidth_bytes_per_s")
    operators = operator_json.read({"problem": "operator_partitioning", **record.operators}, f"{where}: operators")
    more = {"objective": record.objective, "ring": record.ring, "microbatches": record.microbatches}
    return placed(operators, matrix, where, **more)
