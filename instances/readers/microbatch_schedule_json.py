"""The project's own JSON of micro-batch schedules, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from instances.errors import InstanceError
from instances.microbatch_schedule import ScheduleEdge, ScheduleInstance, ScheduleStage
from instances.parameters import MAX_AMOUNT, one_of
from instances.readers.fields import Amount, Bandwidth, Count, Identifier, Version, validated

#: The shortest pass, as part of what all passes and delays take together: floats tell times apart that far.
SHORTEST = 1e-12
#: Passes of the largest instance.
MAX_PASSES = 200_000


def _index(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("an integer from 0 on")
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-30 <= value <= MAX_AMOUNT:
        raise ValueError(f"a positive number of seconds, at most {MAX_AMOUNT:g}")
    return float(value)


Index = Annotated[int, PlainValidator(_index)]
Seconds = Annotated[float, PlainValidator(_seconds)]


class _StageRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    forward_s: Seconds
    backward_s: Seconds
    microbatch: Count = 1
    k: Count = 1
    in_flight: Count | None = None
    weight_bytes: Amount = 0.0
    activation_bytes: Amount = 0.0
    memory_bytes: Amount | None = None


class _EdgeRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    source: Index
    target: Index
    delay_s: Amount = 0.0
    bytes_per_sample: Amount = 0.0


class _InstanceRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, PlainValidator(one_of("microbatch_schedule"))]
    schema_version: Version = 1
    name: Identifier = "schedule"
    minibatch: Count
    stages: list[_StageRecord]
    edges: list[_EdgeRecord] = Field(default_factory=list)
    bandwidth_bytes_per_s: Bandwidth | None = None
    latency_s: Amount = 0.0
    objective: Annotated[str, PlainValidator(one_of("time", "memory"))] = "time"
    deadline_s: Amount | None = None


def read(content: Any, where: str) -> ScheduleInstance:
    """The instance that parsed JSON declares.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule: wrong types, numbers out of range, micro-batches that do
        not divide the mini-batch, edges between stages that do not exist, twice the same edge, a cycle of edges.
    """
    record = validated(_InstanceRecord, content, where)
    instance = ScheduleInstance(
        record.name,
        record.minibatch,
        tuple(ScheduleStage(**stage.model_dump()) for stage in record.stages),
        tuple(ScheduleEdge(**edge.model_dump()) for edge in record.edges),
        record.bandwidth_bytes_per_s,
        record.latency_s,
        record.objective,
        record.deadline_s,
    )
    check(instance, where)
    return instance


def check(instance: ScheduleInstance, where: str) -> None:
    """What must fit together; `InstanceError` if it does not."""
    stages, batch = len(instance.stages), instance.minibatch
    if not stages:
        raise InstanceError.at(where, "stages", [], "at least one stage")
    for number, stage in enumerate(instance.stages):
        if batch % stage.microbatch:
            field, rule = f"stages[{number}].microbatch", f"a divisor of the mini-batch, {batch}"
            raise InstanceError.at(where, field, stage.microbatch, rule)
    seen = set()
    for number, edge in enumerate(instance.edges):
        ends = (edge.source, edge.target)
        if max(ends) >= stages or edge.source == edge.target:
            raise InstanceError.at(where, f"edges[{number}]", ends, f"two different stages from 0 to {stages - 1}")
        if ends in seen:
            raise InstanceError.at(where, f"edges[{number}]", ends, "every pair of stages once")
        seen.add(ends)
    if len(instance.order) < stages:
        raise InstanceError.at(where, "edges", sorted(seen), "edges without a cycle")
    if instance.num_passes > MAX_PASSES:
        raise InstanceError.at(where, "passes of an iteration", instance.num_passes, f"at most {MAX_PASSES}")
    least, longest = min(min(stage.forward_s, stage.backward_s) for stage in instance.stages), instance.longest_s
    if least < SHORTEST * longest:
        raise InstanceError.at(where, "the shortest pass", least, f"at least {SHORTEST:g} of all, {longest:g} s")
