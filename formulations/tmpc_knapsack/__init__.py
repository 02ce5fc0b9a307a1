"""TMPC knapsack: one TMPC per node of a stage, least total time, total memory within a capacity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from formulations.family import Claim, Family, Method, Setting, lazy
from formulations.tmpc_knapsack.plans import plan_from_json, plan_to_json
from formulations.tmpc_knapsack.problem import KnapsackPlan, evaluate, violations
from instances.errors import InstanceError
from instances.parameters import MAX_AMOUNT, one_of, within
from instances.tmpc_knapsack import KnapsackInstance, check, to_json
from instances.units import parse_bytes
from solvers.outcome import Limits, Watch

_MEMORY = Setting("memory", within(parse_bytes), "capacity: 8GiB (2^30 bytes) or 8GB (10^9)", metavar="SIZE")

_VARIANTS = ("rerank", "sort-once", "truncating")

#: Options beyond which a solver's model is too slow to build within seconds.
_MODEL_OPTIONS = 100_000


def recognise(content: Any) -> bool:
    """Whether this is an instance of the family: built already, or own JSON."""
    if isinstance(content, KnapsackInstance):
        return True
    return isinstance(content, dict) and content.get("problem") == "tmpc_knapsack"


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> KnapsackInstance:
    """The instance that ``content`` (see ``recognise``) and the overrides declare; `InstanceError` if it is bad."""
    memory = overrides.get("memory")
    if memory is not None:
        try:
            memory = _MEMORY.parse(memory)
        except ValueError as error:
            raise InstanceError.at(where, "--memory", memory, str(error)) from None
    if isinstance(content, KnapsackInstance):
        return content if memory is None else replace(content, capacity_bytes=memory)
    if memory is not None and isinstance(content, dict):
        content = {**content, "capacity_bytes": memory}
    instance: KnapsackInstance = lazy("instances.readers.knapsack_json:read")(content, where)
    return instance


def num_options(instance: KnapsackInstance) -> int:
    """Options of all nodes together."""
    return sum(len(node.options) for node in instance.nodes)


def describe(instance: KnapsackInstance) -> dict[str, Any]:
    """What a person wants to know of an instance at a glance."""
    return {
        "nodes": len(instance.nodes),
        "options": num_options(instance),
        "capacity_bytes": instance.capacity_bytes,
        **{f"origin.{key}": value for key, value in instance.origin.items()},
    }


def choose(instance: KnapsackInstance, _limits: Limits, _exact: bool) -> tuple[str, str]:
    """Always the exact search: where it cannot prove its plan in time, its plan and bound are still the best."""
    return "exact", f"{len(instance.nodes)} nodes: the compiled search settles nearly all in microseconds"


def why_infeasible(instance: KnapsackInstance, _limits: Limits, _watch: Watch) -> tuple[str, dict[str, float]]:
    """The least capacity that would be feasible, rounded up: the smallest options together."""
    sentence: str = lazy("formulations.tmpc_knapsack.costs:shortage")(instance)
    least: float = lazy("formulations.tmpc_knapsack.costs:least_capacity")(instance)
    return sentence, {"least_capacity_bytes": least} if least <= MAX_AMOUNT else {}


def _fits_a_model(instance: KnapsackInstance) -> str | None:
    count = num_options(instance)
    return f"{count} options; expected at most {_MODEL_OPTIONS} (use exact)" if count > _MODEL_OPTIONS else None


def _effort(steps_per_option: float) -> Callable[[KnapsackInstance], float]:
    return lambda instance: steps_per_option * num_options(instance)


METHODS: tuple[Method[KnapsackInstance, KnapsackPlan], ...] = (
    Method(
        name="piper",
        claim=Claim.HEURISTIC,
        source="Piper, section 4 (bang-per-buck)",
        solve=lazy("formulations.tmpc_knapsack.paper:solve"),
        effort=lambda instance: float(len(instance.nodes) * num_options(instance)),
        options=(
            Setting(
                "knapsack",
                one_of(*_VARIANTS),
                "rerank: as published; sort-once: as released, at most 2 TMPCs per node; truncating: caps the gain",
                metavar="|".join(_VARIANTS),
                default="rerank",
            ),
        ),
    ),
    Method(
        name="exact",
        claim=Claim.EXACT,
        source="expanding core with a Dantzig bound (after Pisinger 1995)",
        solve=lazy("formulations.tmpc_knapsack.exact:solve"),
        effort=_effort(100),
    ),
    Method(
        name="cpsat",
        claim=Claim.EXACT,
        source="multiple-choice knapsack with integer costs, CP-SAT",
        solve=lazy("formulations.tmpc_knapsack.cpsat:solve"),
        supports=_fits_a_model,
        effort=_effort(1e5),
    ),
    Method(
        name="milp",
        claim=Claim.EXACT,
        source="multiple-choice knapsack, Pyomo and HiGHS",
        solve=lazy("formulations.tmpc_knapsack.milp:solve"),
        supports=_fits_a_model,
        effort=_effort(1e6),
    ),
)

FAMILY: Family[KnapsackInstance, KnapsackPlan] = Family(
    name="tmpc_knapsack",
    recognise=recognise,
    read=read,
    overrides=(_MEMORY,),
    check=check,
    to_json=to_json,
    plan_from_json=plan_from_json,
    plan_to_json=plan_to_json,
    evaluate=evaluate,
    violations=violations,
    unit=lambda _: "",
    methods=METHODS,
    choose=choose,
    describe=describe,
    why_infeasible=why_infeasible,
)
