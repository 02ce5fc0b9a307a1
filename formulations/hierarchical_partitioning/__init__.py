"""Hierarchical stage partitioning: machines of devices, a network inside a machine and another between machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from formulations.family import Claim, Family, Method, lazy
from formulations.hierarchical_partitioning.plans import plan_from_json, plan_to_json
from formulations.hierarchical_partitioning.problem import HierarchicalPlan, evaluate, violations
from formulations.hierarchical_partitioning.settings import OVERRIDES, apply, flat_share, on_cluster
from formulations.stage_partitioning import read as read_flat
from formulations.stage_partitioning import recognise as recognise_flat
from instances.hierarchical_partitioning import HierarchicalInstance, check, to_json
from solvers.outcome import Limits

_ROOM = "formulations.hierarchical_partitioning"


def recognise(content: Any) -> bool:
    """Whether this is an instance of the family: built already, or own JSON."""
    return isinstance(content, HierarchicalInstance) or (
        isinstance(content, dict) and content.get("problem") == "hierarchical_partitioning"
    )


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> HierarchicalInstance:
    """The instance that ``content`` and the overrides declare; `InstanceError` if it is bad.

    The ``flat`` part of the JSON is any content that stage partitioning reads, also a file of Piper's release; such
    content alone is put on the cluster that the overrides describe.
    """
    if isinstance(content, HierarchicalInstance):
        return apply(content, overrides, where)
    if recognise_flat(content):
        return on_cluster(read_flat(content, where, flat_share(overrides)), overrides, where)
    made: HierarchicalInstance = lazy("instances.readers.hierarchical_json:read")(
        content, where, lambda flat, place: read_flat(flat, place, {})
    )
    return apply(made, overrides, where)


def describe(instance: HierarchicalInstance) -> dict[str, Any]:
    """What a person wants to know of an instance at a glance."""
    flat = instance.flat
    return {
        "nodes": len(flat.layers),
        "edges": len(flat.edges),
        "machines": instance.num_machines,
        "devices_per_machine": instance.devices_per_machine,
        "inner_bandwidth": instance.inner_bandwidth,
        "outer_bandwidth": instance.outer_bandwidth,
        "memory_bytes": flat.memory_bytes,
        "memory_model": str(instance.memory_model),
        "microbatches": flat.num_microbatches,
        "time_unit": flat.time_unit,
        "tp_degrees": list(flat.tp_degrees),
    }


def choose(_instance: HierarchicalInstance, _limits: Limits, _exact: bool) -> tuple[str, str]:
    """The dispatcher's choice and its reason."""
    return "piper-hierarchical", "the recursion over superstages is exact"


METHODS: tuple[Method[HierarchicalInstance, HierarchicalPlan], ...] = (
    Method(
        name="piper-hierarchical",
        claim=Claim.EXACT,
        source="Piper, Appendix E: recursion over superstages and their splits inside a machine, exact knapsacks",
        solve=lazy(f"{_ROOM}.paper:solve"),
        supports=lazy(f"{_ROOM}.effort:supports"),
        effort=lazy(f"{_ROOM}.effort:effort"),
    ),
    Method(
        name="cpsat",
        claim=Claim.EXACT,
        source="direct assignment model in CP-SAT, made for this project",
        solve=lazy(f"{_ROOM}.cpsat:solve"),
        supports=lazy(f"{_ROOM}.effort:model_supports"),
        effort=lazy(f"{_ROOM}.effort:model_effort"),
    ),
)

FAMILY: Family[HierarchicalInstance, HierarchicalPlan] = Family(
    name="hierarchical_partitioning",
    recognise=recognise,
    read=read,
    overrides=OVERRIDES,
    check=check,
    to_json=to_json,
    plan_from_json=plan_from_json,
    plan_to_json=plan_to_json,
    evaluate=evaluate,
    violations=violations,
    unit=lambda instance: instance.flat.time_unit,
    methods=METHODS,
    choose=choose,
    describe=describe,
    warnings=lambda instance: instance.flat.warnings,
    why_infeasible=lazy(f"{_ROOM}.infeasible:why_infeasible"),
    also_reads=recognise_flat,
)
