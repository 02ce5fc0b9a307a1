"""Pipeline placement: operators cut into stages and stages put on devices, one phase after the other or at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from formulations.family import Claim, Family, Method, OwnJson, Setting, lazy
from formulations.pipeline_placement.plans import plan_from_json, plan_to_json
from formulations.pipeline_placement.problem import PlacementPlan, evaluate, violations
from instances.device_mapping import OBJECTIVES, RINGS
from instances.parameters import one_of, parse_count, within
from instances.pipeline_placement import PlacementInstance, check, to_json
from instances.units import parse_bytes
from solvers.outcome import Limits

_ROOM = "formulations.pipeline_placement"
_JSON = OwnJson("pipeline_placement", PlacementInstance, "instances.readers.pipeline_placement_json:read")

#: Booleans of the joint model, about; beyond, it finds nothing that phases do not.
_JOINT_SIZE = 60_000

OVERRIDES = (
    Setting("objective", one_of(*OBJECTIVES), "what of a stage's time counts", metavar="p2p|allreduce|full"),
    Setting("ring", one_of(*RINGS), "all-reduce rings by replica number, or in any order", metavar="index|free"),
    Setting("microbatches", parse_count, "micro-batches of a step, for the simulation", metavar="N"),
    Setting("memory", within(parse_bytes), "memory per device: 16GiB or 16GB", metavar="SIZE"),
)


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> PlacementInstance:
    """The instance that ``content`` and the overrides declare; `InstanceError` if it is bad."""
    instance = _JSON.read(content, where)
    given = {name: value for name, value in overrides.items() if value is not None}
    operators = instance.operators
    if "memory" in given:
        operators = replace(operators, memory_bytes=given["memory"])
    fields = {name: value for name, value in given.items() if name != "memory"}
    return replace(instance, **fields, operators=operators, options={**instance.options, **given})


def describe(instance: PlacementInstance) -> dict[str, Any]:
    """What a person wants to know of an instance at a glance."""
    return {
        "operators": len(instance.operators.operators),
        "stages": instance.num_stages,
        "replicas": instance.operators.replicas,
        "devices": instance.num_devices,
        "objective": instance.objective,
        "ring": instance.ring,
    }


def joint_size(instance: PlacementInstance) -> int:
    """Booleans and clauses of the joint model, about."""
    stages, devices = instance.num_stages, instance.num_devices
    replicas = instance.operators.replicas
    pairs = stages * (stages - 1) // 2 * (instance.objective != "allreduce")
    links = pairs * replicas + stages * replicas * (instance.objective != "p2p")
    volumes = pairs * sum(1 + len(tensor.targets) for tensor in instance.operators.tensors)
    return 2 * stages * len(instance.operators.operators) + volumes + links * devices * devices


def supports_joint(instance: PlacementInstance) -> str | None:
    """Whether the joint model knows the rings that are declared, and is small enough."""
    if instance.objective == "full" and instance.ring == "free" and instance.operators.replicas > 3:
        return "its rings are by replica number, and free rings of more than three are declared"
    size = joint_size(instance)
    return None if size <= _JOINT_SIZE else f"a model of size {size}; expected at most {_JOINT_SIZE}"


def choose(instance: PlacementInstance, _limits: Limits, exact: bool) -> tuple[str, str]:
    """The joint model where it is small or a proof is asked for; else both phases exactly, one after the other."""
    refused = supports_joint(instance)
    if exact or refused is None:
        return "joint", "both phases at once, started from the best of one after the other"
    return "turns", f"partition and mapping in turns ({refused})"


METHODS: tuple[Method[PlacementInstance, PlacementPlan], ...] = (
    Method(
        name="parmesan",
        claim=Claim.HEURISTIC,
        source="Parmesan, sections 4 and 5: clustering, dynamic program, refinement, then Algorithm 1",
        solve=lazy(f"{_ROOM}.phases:solve"),
    ),
    Method(
        name="decoupled",
        claim=Claim.HEURISTIC,
        source="the best partition for the flat network, then its best mapping",
        solve=lazy(f"{_ROOM}.phases:solve_decoupled"),
    ),
    Method(
        name="turns",
        claim=Claim.HEURISTIC,
        source="moves of operators on the links of the mapping and swaps of devices, in turns",
        solve=lazy(f"{_ROOM}.phases:solve_turns"),
    ),
    Method(
        name="joint",
        claim=Claim.EXACT,
        source="both phases in one CP-SAT model (the future work of Parmesan's conclusion)",
        solve=lazy(f"{_ROOM}.joint:solve"),
        supports=supports_joint,
        effort=lambda instance: 1e4 * joint_size(instance),
    ),
)

FAMILY: Family[PlacementInstance, PlacementPlan] = Family(
    name="pipeline_placement",
    recognise=_JSON.recognise,
    read=read,
    overrides=OVERRIDES,
    check=check,
    to_json=to_json,
    plan_from_json=plan_from_json,
    plan_to_json=plan_to_json,
    evaluate=evaluate,
    violations=violations,
    unit=lambda _: "s",
    methods=METHODS,
    choose=choose,
    describe=describe,
    why_infeasible=lazy(f"{_ROOM}.phases:why_infeasible"),
)
