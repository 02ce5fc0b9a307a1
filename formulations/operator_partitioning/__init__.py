"""Operator partitioning: an operator graph cut into pipeline stages, as Parmesan does it and exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from formulations.family import Claim, Family, Method, Setting, lazy
from formulations.operator_partitioning.plans import plan_from_json, plan_to_json
from formulations.operator_partitioning.problem import OperatorPlan, evaluate, violations
from formulations.operator_partitioning.settings import OVERRIDES, apply
from instances.operator_partitioning import OperatorInstance, check, to_json
from instances.parameters import parse_amount, parse_count, parse_flag

_ROOM = "formulations.operator_partitioning"

ALPHA = Setting("alpha", parse_amount, "weight of communication in clustering", metavar="A", default="0.001")
CLUSTERS = Setting(
    "clusters", parse_count, "hyper-operators for the dynamic program", metavar="K", default="8 S, 64 to 256"
)


def recognise(content: Any) -> bool:
    """Whether this is an instance of the family: built already, own JSON, PipeDream's profile, a placement graph."""
    if isinstance(content, OperatorInstance):
        return True
    if isinstance(content, str):  # kept here too, so that recognising a file imports no reader
        return "forward_compute_time=" in content.lstrip().split("\n", 1)[0]
    if not isinstance(content, dict):
        return False
    if "problem" in content:
        return bool(content["problem"] == "operator_partitioning")
    return "nodes" in content and ("maxFPGAs" in content or "maxSizePerFPGA" in content)


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> OperatorInstance:
    """The instance that ``content`` (see ``recognise``) and the overrides declare; `InstanceError` if it is bad."""
    if isinstance(content, OperatorInstance):
        instance = content
    elif isinstance(content, str):
        instance = lazy("instances.readers.pipedream_profile:read")(content, where)
    elif "problem" in content:
        instance = lazy("instances.readers.operator_json:read")(content, where)
    else:
        part = overrides.get("part") or "forward"
        instance = lazy("instances.readers.placement_json:read")(content, where, part)
    return apply(instance, overrides, where)


def describe(instance: OperatorInstance) -> dict[str, Any]:
    """What a person wants to know of an instance at a glance."""
    return {
        "operators": len(instance.operators),
        "tensors": len(instance.tensors),
        "stages": instance.num_stages,
        "replicas": instance.replicas,
        "devices": instance.num_devices,
        "bandwidth_bytes_per_s": instance.bandwidth_bytes_per_s,
        "memory_bytes": instance.memory_bytes,
        "compute_s": instance.total_compute_s,
    }


LOSSES = Setting("report-losses", parse_flag, "what each step loses against the optimum", is_flag=True)

_FLOW_EFFORT = lazy(f"{_ROOM}.effort:flow_effort")

METHODS: tuple[Method[OperatorInstance, OperatorPlan], ...] = (
    Method(
        name="parmesan",
        claim=Claim.HEURISTIC,
        source="Parmesan, section 4: clustering, dynamic programming, refinement",
        solve=lazy(f"{_ROOM}.parmesan.paper:solve"),
        effort=_FLOW_EFFORT,
        options=(ALPHA, CLUSTERS, LOSSES),
    ),
    Method(
        name="dp",
        claim=Claim.HEURISTIC,
        source="Parmesan, Equations 2 and 3 on the clustered graph, without refinement",
        solve=lazy(f"{_ROOM}.parmesan.paper:solve_dp"),
        effort=_FLOW_EFFORT,
        options=(ALPHA, CLUSTERS),
    ),
    Method(
        name="cluster",
        claim=Claim.HEURISTIC,
        source="Parmesan, section 4.2, until every cluster is a stage",
        solve=lazy(f"{_ROOM}.parmesan.paper:solve_cluster"),
        effort=_FLOW_EFFORT,
        options=(ALPHA,),
    ),
    Method(
        name="refine",
        claim=Claim.HEURISTIC,
        source="Parmesan, section 4.3, from the even cut",
        solve=lazy(f"{_ROOM}.parmesan.paper:solve_refine"),
        effort=_FLOW_EFFORT,
    ),
    Method(
        name="exact",
        claim=Claim.EXACT,
        source="thresholds over chains of all downsets, made for this project (the room's README)",
        solve=lazy(f"{_ROOM}.exact.threshold:solve"),
        supports=lazy(f"{_ROOM}.effort:exact_supports"),
        effort=lazy(f"{_ROOM}.effort:exact_effort"),
    ),
    Method(
        name="cpsat",
        claim=Claim.EXACT,
        source="assignment model in CP-SAT, made for this project",
        solve=lazy(f"{_ROOM}.cpsat:solve"),
        supports=lazy(f"{_ROOM}.effort:model_supports"),
        effort=lazy(f"{_ROOM}.effort:model_effort"),
    ),
    Method(
        name="milp",
        claim=Claim.EXACT,
        source="assignment model in Pyomo and HiGHS, made for this project",
        solve=lazy(f"{_ROOM}.milp:solve"),
        supports=lazy(f"{_ROOM}.effort:model_supports"),
        effort=lazy(f"{_ROOM}.effort:model_effort"),
    ),
    Method(
        name="pipedream",
        claim=Claim.HEURISTIC,
        source="PipeDream, SOSP 2019: the best intervals of one topological order",
        solve=lazy(f"{_ROOM}.parmesan.paper:solve_pipedream"),
        effort=_FLOW_EFFORT,
    ),
    Method(
        name="equal",
        claim=Claim.HEURISTIC,
        source="one topological order cut where the seconds are shared evenly",
        solve=lazy(f"{_ROOM}.parmesan.paper:solve_equal"),
    ),
)

FAMILY: Family[OperatorInstance, OperatorPlan] = Family(
    name="operator_partitioning",
    recognise=recognise,
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
    choose=lazy(f"{_ROOM}.effort:choose"),
    describe=describe,
    why_infeasible=lazy(f"{_ROOM}.infeasible:why_infeasible"),
)
