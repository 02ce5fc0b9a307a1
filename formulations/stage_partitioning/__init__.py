"""Stage partitioning with TMPC choice: a layer graph split into pipeline stages with degrees and configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from formulations.family import Family, lazy
from formulations.stage_partitioning.methods import METHODS
from formulations.stage_partitioning.plans import plan_from_json, plan_to_json
from formulations.stage_partitioning.problem import StagePlan, evaluate, violations
from formulations.stage_partitioning.settings import OVERRIDES, apply
from instances.stage_partitioning import StageInstance, check, to_json

#: Top-level keys that mark a file of Piper's release (kept here too, so that recognising one imports no reader).
_PIPER_MARKS = frozenset({"maxDevices", "maxMemoryPerDevice", "mbsInBatch", "maxBatchSize"})


def recognise(content: Any) -> bool:
    """Whether this is an instance of the family: built already, own JSON, or JSON of Piper's release."""
    if isinstance(content, StageInstance):
        return True
    if not isinstance(content, dict):
        return False
    return content.get("problem") == "stage_partitioning" or (
        "problem" not in content and "nodes" in content and not _PIPER_MARKS.isdisjoint(content)
    )


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> StageInstance:
    """The instance that ``content`` (see ``recognise``) and the overrides declare; `InstanceError` if it is bad."""
    if isinstance(content, StageInstance):
        instance = content
    elif isinstance(content, dict) and "problem" in content:
        instance = lazy("instances.readers.stage_json:read")(content, where)
    else:
        instance = lazy("instances.readers.piper_json:read")(content, where)
    return apply(instance, overrides, where)


def describe(instance: StageInstance) -> dict[str, Any]:
    """What a person wants to know of an instance at a glance."""
    return {
        "nodes": len(instance.layers),
        "edges": len(instance.edges),
        "devices": instance.num_devices,
        "memory_bytes": instance.memory_bytes,
        "bandwidth": instance.bandwidth,
        "microbatches": instance.num_microbatches,
        "cost_model": str(instance.cost_model),
        "time_unit": instance.time_unit,
        "tp_degrees": list(instance.tp_degrees),
        "exactly": instance.exactly,
        "max_dp_degree": instance.max_dp_degree,
    }


FAMILY: Family[StageInstance, StagePlan] = Family(
    name="stage_partitioning",
    recognise=recognise,
    read=read,
    overrides=OVERRIDES,
    check=check,
    to_json=to_json,
    plan_from_json=plan_from_json,
    plan_to_json=plan_to_json,
    evaluate=evaluate,
    violations=violations,
    unit=lambda instance: instance.time_unit,
    methods=METHODS,
    choose=lazy("formulations.stage_partitioning.effort:choose"),
    describe=describe,
    warnings=lambda instance: instance.warnings,
    why_infeasible=lazy("formulations.stage_partitioning.infeasible:why_infeasible"),
)
