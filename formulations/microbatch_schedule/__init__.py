"""Micro-batch schedules of stage graphs, and how many samples a stage keeps in flight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from formulations.family import Claim, Family, Method, Setting, lazy
from formulations.microbatch_schedule.plans import plan_from_json, plan_to_json
from formulations.microbatch_schedule.problem import SchedulePlan, evaluate, violations
from instances.microbatch_schedule import ScheduleInstance, bounded, capped, check, to_json
from instances.parameters import one_of, parse_count
from instances.units import parse_bytes, parse_time
from solvers.outcome import Limits

_ROOM = "formulations.microbatch_schedule"

_OVERRIDES = (
    Setting("objective", one_of("time", "memory"), "seconds of the iteration, or bytes of the fullest stage"),
    Setting("deadline", parse_time, "longest iteration", metavar="TIME"),
    Setting("in-flight", parse_count, "most samples in flight at every stage", metavar="N"),
    Setting("memory", parse_bytes, "memory per device", metavar="BYTES"),
)

#: Beyond these a model takes too long to build: passes, and pairs of passes to order.
_CPSAT_PASSES, _MILP_PAIRS = 20_000, 5_000


def recognise(content: Any) -> bool:
    """Whether this is an instance of the family: built already, or own JSON."""
    if isinstance(content, ScheduleInstance):
        return True
    return isinstance(content, dict) and content.get("problem") == "microbatch_schedule"


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> ScheduleInstance:
    """The instance that ``content`` (see ``recognise``) and the overrides declare; `InstanceError` if it is bad."""
    if isinstance(content, ScheduleInstance):
        instance = content
    else:
        instance = lazy("instances.readers.microbatch_schedule_json:read")(content, where)
    if "in-flight" in overrides:
        instance = capped(instance, overrides["in-flight"])
    if "memory" in overrides:
        instance = bounded(instance, overrides["memory"])
    changed = {field: overrides[name] for name, field in _FIELDS.items() if name in overrides}
    return replace(instance, **changed, options={**instance.options, **overrides})


_FIELDS = {"objective": "objective", "deadline": "deadline_s"}


def describe(instance: ScheduleInstance) -> dict[str, Any]:
    """What a person wants to know of an instance at a glance."""
    return {
        "stages": len(instance.stages),
        "edges": len(instance.edges),
        "minibatch": instance.minibatch,
        "passes": instance.num_passes,
        "objective": instance.objective,
    }


def choose(instance: ScheduleInstance, _limits: Limits, exact: bool) -> tuple[str, str]:
    """Bounds, heuristics and CP-SAT, unless its model is too large to build."""
    if exact or _cpsat_fits(instance) is None:
        return "exact", f"{instance.num_passes} passes"
    return "best-of", f"{instance.num_passes} passes: the exact model is too large"


def _cpsat_fits(instance: ScheduleInstance) -> str | None:
    if instance.num_passes > _CPSAT_PASSES:
        return f"{instance.num_passes} passes; expected at most {_CPSAT_PASSES}"
    return None


def _pairs(instance: ScheduleInstance) -> int:
    return sum(instance.num_microbatches(stage) ** 2 for stage in range(len(instance.stages)))


def _milp_fits(instance: ScheduleInstance) -> str | None:
    if _pairs(instance) > _MILP_PAIRS:
        return f"{_pairs(instance)} pairs of passes to order; expected at most {_MILP_PAIRS}"
    return None


METHODS: tuple[Method[ScheduleInstance, SchedulePlan], ...] = (
    Method(
        name="exact",
        claim=Claim.EXACT,
        source="bounds of heads and tails, best-of, then CP-SAT for what they leave open; made for this project",
        solve=lazy(f"{_ROOM}.exact:solve"),
        supports=_cpsat_fits,
        effort=lambda instance: 1e4 * instance.num_passes,
    ),
    Method(
        name="cpsat",
        claim=Claim.EXACT,
        source="intervals on stages, CP-SAT",
        solve=lazy(f"{_ROOM}.cpsat:solve"),
        supports=_cpsat_fits,
        effort=lambda instance: 1e4 * instance.num_passes,
        options=(
            Setting(
                "resource",
                one_of("cap", "cumulative"),
                "how room is kept: a precedence for each pass, or a cumulative resource",
                metavar="cap|cumulative",
                default="cap",
            ),
        ),
    ),
    Method(
        name="milp",
        claim=Claim.EXACT,
        source="starts and an order for each pair of passes, Pyomo and HiGHS",
        solve=lazy(f"{_ROOM}.milp:solve"),
        supports=_milp_fits,
        effort=lambda instance: 1e6 * _pairs(instance),
    ),
    Method(
        name="greedy",
        claim=Claim.HEURISTIC,
        source="GraphPipe, section 6, ScheduleTask",
        solve=lazy(f"{_ROOM}.orders:greedy"),
        effort=lambda instance: 10 * instance.num_passes,
    ),
    Method(
        name="1f1b",
        claim=Claim.HEURISTIC,
        source="GraphPipe, section 6, synchronous 1F1B on graphs",
        solve=lazy(f"{_ROOM}.orders:one_f_one_b"),
        effort=lambda instance: 10 * instance.num_passes,
    ),
    Method(
        name="kfkb",
        claim=Claim.HEURISTIC,
        source="GraphPipe, Appendix A.1",
        solve=lazy(f"{_ROOM}.orders:own_kfkb"),
        effort=lambda instance: 10 * instance.num_passes,
    ),
    Method(
        name="best-of",
        claim=Claim.HEURISTIC,
        source="the published schedules, repaired, and exchanges along critical paths; made for this project",
        solve=lazy(f"{_ROOM}.best_of:solve"),
        effort=lambda instance: 1e3 * instance.num_passes,
    ),
)

FAMILY: Family[ScheduleInstance, SchedulePlan] = Family(
    name="microbatch_schedule",
    recognise=recognise,
    read=read,
    overrides=_OVERRIDES,
    check=check,
    to_json=to_json,
    plan_from_json=plan_from_json,
    plan_to_json=plan_to_json,
    evaluate=evaluate,
    violations=violations,
    unit=lambda instance: "bytes" if instance.objective == "memory" else "s",
    methods=METHODS,
    choose=choose,
    describe=describe,
    why_infeasible=lazy(f"{_ROOM}.infeasible:why_infeasible"),
)
