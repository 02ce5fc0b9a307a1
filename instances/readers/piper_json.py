"""The JSON of Piper's release: layer graphs with profiled TMPCs.

Source: the release's README and input files (commit d7fc8cf). Sizes are bytes, bandwidth is bytes per time unit; the
unit of time is not in the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from instances.problems.published import MILLISECONDS, UNIT_WARNING, fingerprint
from instances.problems.stage_partitioning import StageInstance, check
from instances.readers.stage_records import EdgeRecord, LayerRecord, TmpcRecord, built
from instances.rules import Amount, Bandwidth, Count, Degree, NodeId
from instances.validation import validated

#: Our names of fields, and the file's.
NAMES = {
    "time": "timePerSample",
    "weight_bytes": "parameterSize",
    "activation_bytes": "memoryUsageA",
    "static_bytes": "memoryUsageB",
    "sync_forward_bytes": "syncTimeFw",
    "sync_backward_bytes": "syncTimeBw",
    "tmpcs": "TMPCs",
    "source": "sourceId",
    "target": "destId",
    "bytes": "communicationCost",
    "layers": "nodes",
    "num_devices": "maxDevices",
    "memory_bytes": "maxMemoryPerDevice",
}

# Files in the wild carry notes of their own; unknown fields are no error.
_LENIENT = ConfigDict(extra="ignore", alias_generator=lambda name: NAMES.get(name, name))


class _Tmpc(TmpcRecord):
    model_config = _LENIENT
    static_bytes: Amount


class _Layer(LayerRecord):
    model_config = _LENIENT
    id: NodeId
    tmpcs: dict[Degree, list[_Tmpc]]


class _Edge(EdgeRecord):
    model_config = _LENIENT


class _InstanceRecord(BaseModel):
    model_config = _LENIENT
    num_devices: Count
    memory_bytes: Amount
    bandwidth: Bandwidth
    # The release's README calls it maxBatchSize, its files mbsInBatch.
    num_microbatches: Count = Field(validation_alias=AliasChoices("mbsInBatch", "maxBatchSize"))
    layers: list[_Layer]
    edges: list[_Edge]


def read(content: Any, where: str) -> StageInstance:
    """The instance of a file, named after it; the two published files in milliseconds are recognised by content.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule.
    """
    record = validated(_InstanceRecord, content, where)
    layers, edges = built(record.layers, record.edges)
    in_ms = fingerprint(layers, edges) in MILLISECONDS
    instance = StageInstance(
        name=Path(where.removesuffix(".gz")).stem or "instance",
        layers=layers,
        edges=edges,
        num_devices=record.num_devices,
        memory_bytes=record.memory_bytes,
        bandwidth=record.bandwidth,
        num_microbatches=record.num_microbatches,
        time_unit="ms" if in_ms else "s",
        warnings=(UNIT_WARNING,) if in_ms else (),
    )
    check(instance, where, NAMES)
    return instance
