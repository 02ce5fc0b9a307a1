"""The project's own JSON of layer assignments, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from instances.errors import InstanceError
from instances.layer_assignment import LayerAssignmentInstance, TiedParameters
from instances.parameters import one_of
from instances.readers.fields import Amount, Count, Identifier, Version, validated


def _index(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("an integer from 0 on")
    return value


Index = Annotated[int, PlainValidator(_index)]


class _TiedRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    layers: list[Index]
    parameters: Amount


class _InstanceRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, PlainValidator(one_of("layer_assignment"))]
    schema_version: Version = 1
    name: Identifier = "layers"
    num_stages: Count
    num_microbatches: Count
    layer_time_s: list[Amount]
    cut_cost_s: list[list[Amount]]
    parameters: list[Amount] = Field(default_factory=list)
    tied: list[_TiedRecord] = Field(default_factory=list)
    ring_s_per_parameter: list[Amount] = Field(default_factory=list)
    head_layers: Index = 0
    tail_layers: Index = 0


def read(content: Any, where: str) -> LayerAssignmentInstance:
    """The instance that parsed JSON declares.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule: wrong types, numbers that are negative, not finite or
        beyond 1e30, lists of the wrong length, tied layers that do not exist, an all-reduce without parameters.
    """
    record = validated(_InstanceRecord, content, where)
    instance = LayerAssignmentInstance(
        name=record.name,
        layer_time_s=tuple(record.layer_time_s),
        cut_cost_s=tuple(tuple(row) for row in record.cut_cost_s),
        num_stages=record.num_stages,
        num_microbatches=record.num_microbatches,
        parameters=tuple(record.parameters),
        tied=tuple(TiedParameters(tuple(tie.layers), tie.parameters) for tie in record.tied),
        ring_s_per_parameter=tuple(record.ring_s_per_parameter),
        head_layers=record.head_layers,
        tail_layers=record.tail_layers,
    )
    check(instance, where)
    return instance


def check(instance: LayerAssignmentInstance, where: str) -> None:
    """Lengths that must fit each other; `InstanceError` if they do not."""
    layers, stages = instance.num_layers, instance.num_stages
    _expect(layers >= 1, where, "layer_time_s", [], "at least one layer")
    _expect(len(instance.cut_cost_s) == layers - 1, where, "len(cut_cost_s)", len(instance.cut_cost_s), f"{layers - 1}")
    for layer, row in enumerate(instance.cut_cost_s):
        rule = f"1, or {max(1, stages - 1)} (one less than stages)"
        _expect(len(row) in (1, stages - 1), where, f"len(cut_cost_s[{layer}])", len(row), rule)
    sizes, rings = len(instance.parameters), len(instance.ring_s_per_parameter)
    _expect(sizes in (0, layers), where, "len(parameters)", sizes, f"0 or {layers}")
    _expect(rings in (0, 1, stages), where, "len(ring_s_per_parameter)", rings, f"0, 1 or {stages}")
    _expect(not rings or sizes > 0, where, "parameters", [], "those of every layer, for the all-reduce")
    _expect(not instance.tied or sizes > 0, where, "parameters", [], "those of every layer, beside the tied ones")
    for position, tie in enumerate(instance.tied):
        rule = f"layers from 0 to {layers - 1}, at least one"
        known = bool(tie.layers) and max(tie.layers) < layers
        _expect(known, where, f"tied[{position}].layers", list(tie.layers), rule)
    framing = instance.head_layers + instance.tail_layers
    _expect(framing <= layers, where, "head_layers + tail_layers", framing, f"at most {layers}")


def _expect(holds: bool, where: str, field: str, value: Any, rule: str) -> None:
    if not holds:
        raise InstanceError.at(where, field, value, rule)
