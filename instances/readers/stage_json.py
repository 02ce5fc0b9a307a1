"""The project's own JSON of stage partitioning, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from math import isclose
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from instances.errors import InstanceError, expect, path
from instances.memory_schemes import SCHEME, SCHEMES
from instances.problems.stage_partitioning import (
    CostModel,
    KeptTensor,
    SharedTensor,
    StageInstance,
    TiedWeights,
    check,
)
from instances.readers.stage_records import EdgeRecord, LayerRecord, built
from instances.rules import (
    Amount,
    Bandwidth,
    Count,
    Fact,
    Facts,
    Flag,
    Identifier,
    NodeId,
    Requirements,
    Text,
    Version,
    member_of,
    one_of,
)
from instances.validation import validated


class _TiedRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Identifier
    layers: list[NodeId]
    weight_bytes: Amount


class _SharedRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    source: NodeId
    targets: list[NodeId]
    bytes: Amount


class _KeptRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    layers: list[NodeId]
    tmpcs: list[Identifier]
    bytes: Amount


class _InstanceRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")
    problem: Annotated[str, one_of("stage_partitioning")]
    schema_version: Version
    name: Identifier = "instance"
    num_devices: Count
    memory_bytes: Amount
    bandwidth: Bandwidth
    num_microbatches: Count
    time_unit: Annotated[str, one_of("s", "ms")] = "s"
    cost_model: Annotated[CostModel, member_of(CostModel)] = CostModel.PAPER
    exactly: Flag = False
    max_dp_degree: Count | None = None
    layers: list[LayerRecord]
    edges: list[EdgeRecord] = Field(default_factory=list)
    options: dict[str, Fact] = Field(default_factory=dict)
    warnings: list[Text] = Field(default_factory=list)
    requirements: Requirements = ()
    tied: list[_TiedRecord] = Field(default_factory=list)
    shared: list[_SharedRecord] = Field(default_factory=list)
    kept: list[_KeptRecord] = Field(default_factory=list)
    origin: Facts = Field(default_factory=dict)


def read(content: Any, where: str, scheme: str | None = None) -> StageInstance:
    """The instance that parsed JSON declares.

    ``scheme``, or else the one that its ``options`` name, is the rule of `SCHEMES` for TMPCs without ``static_bytes``;
    the instance's ``options`` record it where there are any.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule; also for weights that no rule says the memory of.
    """
    record = validated(_InstanceRecord, content, where)
    scheme = _scheme(record, scheme, where)
    layers, edges = built(record.layers, record.edges, None if scheme is None else SCHEMES[scheme])
    ids = {str(layer.id): layer.id for layer in layers}
    instance = StageInstance(
        name=record.name,
        layers=layers,
        edges=edges,
        num_devices=record.num_devices,
        memory_bytes=record.memory_bytes,
        bandwidth=record.bandwidth,
        num_microbatches=record.num_microbatches,
        cost_model=record.cost_model,
        time_unit=record.time_unit,
        exactly=record.exactly,
        max_dp_degree=record.max_dp_degree,
        options=record.options if scheme is None else {**record.options, SCHEME: scheme},
        warnings=tuple(record.warnings),
        requirements=record.requirements,
        tied=tuple(
            TiedWeights(each.name, tuple(ids.get(str(node), node) for node in each.layers), each.weight_bytes)
            for each in record.tied
        ),
        shared=tuple(
            SharedTensor(
                ids.get(str(each.source), each.source),
                tuple(ids.get(str(node), node) for node in each.targets),
                each.bytes,
            )
            for each in record.shared
        ),
        kept=tuple(
            KeptTensor(tuple(ids.get(str(node), node) for node in each.layers), tuple(each.tmpcs), each.bytes)
            for each in record.kept
        ),
        origin=record.origin,
    )
    check(instance, where)
    return instance


def _expect_rule_kept(record: _InstanceRecord, where: str) -> None:
    """`InstanceError` for a rule that is named and gives none of the sizes: saved instances name the one they had."""
    scheme = record.options.get(SCHEME)
    held = [
        (x.static_bytes, x.weight_bytes) for layer in record.layers for found in layer.tmpcs.values() for x in found
    ]
    if scheme not in SCHEMES or not any(weights for _, weights in held):
        return
    rule = SCHEMES[str(scheme)]
    is_kept = any(weights and isclose(static or 0.0, rule.of_weights(weights)[0]) for static, weights in held)
    expect(
        is_kept, where, path(("options", SCHEME)), scheme, "none: it does not give the static_bytes that are declared"
    )


def _scheme(record: _InstanceRecord, given: str | None, where: str) -> str | None:
    """The rule for the TMPCs that leave out what is held; ``None`` if there are none, or none of them has weights."""
    left_out = [
        (("layers", number, "tmpcs", str(t), place, "static_bytes"), x.weight_bytes)
        for number, layer in enumerate(record.layers)
        for t, found in layer.tmpcs.items()
        for place, x in enumerate(found)
        if x.static_bytes is None
    ]
    if not left_out:
        _expect_rule_kept(record, where)
        return None
    scheme = given or record.options.get(SCHEME)
    if scheme is not None:
        expect(scheme in SCHEMES, where, path(("options", SCHEME)), scheme, f"one of {', '.join(SCHEMES)}")
        return str(scheme)
    for field, weights in left_out:
        if weights:
            rule = f"a size, or --{SCHEME} {'|'.join(SCHEMES)}, which says what is held of weight_bytes {weights:g}"
            raise InstanceError.missing(where, path(field), rule)
    return None
