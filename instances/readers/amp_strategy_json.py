"""The project's own JSON of strategy searches, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from instances.amp_strategy import MEGATRON, PLACEMENTS, AmpInstance, ModelLayer, Node
from instances.errors import InstanceError
from instances.layer_assignment import TiedParameters
from instances.parameters import one_of, parse_count
from instances.readers.fields import Amount, Bandwidth, Count, Flag, Identifier, Version, validated
from instances.readers.layer_assignment_json import Index


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _NodeRecord(_Record):
    gpu: Identifier
    intra_bytes_per_s: Bandwidth
    inter_bytes_per_s: Bandwidth


class _LayerRecord(_Record):
    forward_s: dict[str, dict[Annotated[int, PlainValidator(parse_count)], Amount]]
    activation_bytes: Amount
    parameters: Amount = 0.0
    split_activation: Flag = False


class _TiedRecord(_Record):
    layers: list[Index]
    parameters: Amount


class _InstanceRecord(_Record):
    problem: Annotated[str, PlainValidator(one_of("amp_strategy"))]
    schema_version: Version = 1
    name: Identifier = "strategies"
    nodes: list[_NodeRecord]
    devices_per_node: Count
    global_batch: Count
    layers: list[_LayerRecord]
    tied: list[_TiedRecord] = Field(default_factory=list)
    parameter_bytes: Amount = 4.0
    passes: Amount = 3.0
    head_layers: Index = 0
    tail_layers: Index = 0
    released_framing: tuple[Index, Index] | None = None
    placement: Annotated[str, PlainValidator(one_of(*PLACEMENTS))] = MEGATRON


def read(content: Any, where: str) -> AmpInstance:
    """The instance that parsed JSON declares.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule: wrong types, no node or layer, a kind of GPU without
        times, layers profiled at different degrees, tied layers that do not exist.
    """
    record = validated(_InstanceRecord, content, where)
    _check(record, where)
    fields = record.model_dump(include={"name", "devices_per_node", "global_batch", "parameter_bytes", "passes"})
    return AmpInstance(
        **fields,
        head_layers=record.head_layers,
        tail_layers=record.tail_layers,
        released_framing=record.released_framing,
        placement=record.placement,
        nodes=tuple(Node(node.gpu, node.intra_bytes_per_s, node.inter_bytes_per_s) for node in record.nodes),
        layers=tuple(
            ModelLayer(layer.forward_s, layer.activation_bytes, layer.parameters, layer.split_activation)
            for layer in record.layers
        ),
        tied=tuple(TiedParameters(tuple(tie.layers), tie.parameters) for tie in record.tied),
    )


def _check(record: _InstanceRecord, where: str) -> None:
    _expect(bool(record.nodes), where, "nodes", [], "at least one node")
    _expect(bool(record.layers), where, "layers", [], "at least one layer")
    kinds = {node.gpu for node in record.nodes}
    degrees = {degree for times in record.layers[0].forward_s.values() for degree in times}
    for number, layer in enumerate(record.layers):
        for kind in sorted(kinds):
            known = set(layer.forward_s.get(kind, {}))
            rule = f"times at the degrees of the first layer, {sorted(degrees)}"
            _expect(known == degrees, where, f"layers[{number}].forward_s.{kind}", sorted(known), rule)
    for number, tie in enumerate(record.tied):
        known_layers = bool(tie.layers) and max(tie.layers) < len(record.layers)
        rule = f"layers from 0 to {len(record.layers) - 1}, at least one"
        _expect(known_layers, where, f"tied[{number}].layers", list(tie.layers), rule)
    for name, (head, tail) in {
        "head_layers + tail_layers": (record.head_layers, record.tail_layers),
        "released_framing": record.released_framing or (0, 0),
    }.items():
        _expect(head + tail <= len(record.layers), where, name, head + tail, f"at most {len(record.layers)} layers")


def _expect(holds: bool, where: str, field: str, value: Any, rule: str) -> None:
    if not holds:
        raise InstanceError.at(where, field, value, rule)
