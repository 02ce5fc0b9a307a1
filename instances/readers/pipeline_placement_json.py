"""The project's own JSON of pipeline placements, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from instances.problems.device_mapping import MICROBATCHES, OBJECTIVES, RINGS
from instances.problems.pipeline_placement import PlacementInstance, check, placed
from instances.readers import operator_json
from instances.rules import Amount, Count, Requirements, Version, one_of
from instances.validation import validated


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, one_of("pipeline_placement")]
    schema_version: Version = 1
    objective: Annotated[str, one_of(*OBJECTIVES)] = "full"
    ring: Annotated[str, one_of(*RINGS)] = RINGS[0]
    microbatches: Count = MICROBATCHES
    operators: dict[str, Any]
    bandwidth_bytes_per_s: tuple[tuple[Amount, ...], ...]
    requirements: Requirements = ()


def read(content: Any, where: str) -> PlacementInstance:
    """The instance that parsed JSON declares; `InstanceError` for the first field that breaks a rule."""
    record = validated(_Record, content, where)
    operators = operator_json.read({"problem": "operator_partitioning", **record.operators}, f"{where}: operators")
    more = {"objective": record.objective, "ring": record.ring, "microbatches": record.microbatches}
    made = placed(operators, record.bandwidth_bytes_per_s, where, **more)
    instance = replace(made, requirements=record.requirements)
    check(instance, where)
    return instance
