"""Flushed stage partitioning: Piper's problem for pipelines that are flushed after every batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from formulations.family import Claim, Family, Method, Setting, lazy
from formulations.flushed_partitioning.problem import evaluate, violations
from formulations.stage_partitioning import describe as describe_flat
from formulations.stage_partitioning import read as read_flat
from formulations.stage_partitioning import recognise as recognise_flat
from formulations.stage_partitioning import settings as flat_overrides
from formulations.stage_partitioning.models.size import assignment_effort, assignment_supports
from formulations.stage_partitioning.plans import plan_from_json, plan_to_json
from formulations.stage_partitioning.problem import StagePlan
from instances.errors import InstanceError
from instances.flushed_partitioning import FlushedInstance, Schedule, check, flushed, to_json
from instances.parameters import one_of
from instances.stage_partitioning import StageInstance
from solvers.outcome import Limits

_ROOM = "formulations.flushed_partitioning"

SCHEDULE = Setting(
    "schedule", one_of(*Schedule), "1F1B: ceil(s/d) in flight; GPipe: the whole batch", metavar="1f1b|gpipe"
)
#: The flat family's settings, but a batch has N micro-batches whatever the degrees.
OVERRIDES = (*(setting for setting in flat_overrides.OVERRIDES if setting.name != "exactly"), SCHEDULE)


def recognise(content: Any) -> bool:
    """Whether this is an instance of the family: built already, or own JSON."""
    return isinstance(content, FlushedInstance) or (
        isinstance(content, dict) and content.get("problem") == "flushed_partitioning"
    )


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> FlushedInstance:
    """The instance that ``content`` and the overrides declare; `InstanceError` if it is bad.

    The ``flat`` part of the JSON is any content that stage partitioning reads, also a file of Piper's release; such
    content alone is an instance with the default schedule.
    """
    shared = {name: value for name, value in overrides.items() if name != "schedule"}
    if recognise_flat(content):
        made = flushed(read_flat(content, where, shared), where=where)
    elif isinstance(content, FlushedInstance):
        made = flushed(flat_overrides.apply(content.flat, shared, where), content.schedule, where)
    else:

        def flat(part: Any, place: str) -> StageInstance:
            return read_flat(part, place, shared)

        made = lazy("instances.readers.flushed_json:read")(content, where, flat)
    schedule = overrides.get("schedule")
    if schedule is None:
        return made
    try:
        return flushed(made.flat, Schedule(SCHEDULE.parse(schedule)), where)
    except ValueError as error:
        raise InstanceError.at(where, "--schedule", schedule, str(error)) from None


def describe(instance: FlushedInstance) -> dict[str, Any]:
    """What a person wants to know of an instance at a glance."""
    return {**describe_flat(instance.flat), "schedule": str(instance.schedule)}


def choose(instance: FlushedInstance, _limits: Limits, _exact: bool) -> tuple[str, str]:
    """The dispatcher's choice and its reason."""
    reason = supports(instance)
    return ("labels", "the recursion with depth is exact") if reason is None else ("cpsat", reason)


#: Whether the recursion with depth is exact for an instance and has few enough pairs of downsets.
supports = lazy(f"{_ROOM}.effort:supports")


METHODS: tuple[Method[FlushedInstance, StagePlan], ...] = (
    Method(
        name="labels",
        claim=Claim.EXACT,
        source="Piper's recursion with the pipeline's depth in its state (section 6); made for this project",
        solve=lazy(f"{_ROOM}.labels:solve"),
        supports=supports,
        effort=lazy(f"{_ROOM}.effort:effort"),
    ),
    Method(
        name="cpsat",
        claim=Claim.EXACT,
        source="direct assignment model in CP-SAT, made for this project",
        solve=lazy(f"{_ROOM}.cpsat:solve"),
        supports=lambda instance: assignment_supports(instance.flat),
        effort=lambda instance: assignment_effort(instance.flat),
    ),
)

FAMILY: Family[FlushedInstance, StagePlan] = Family(
    name="flushed_partitioning",
    recognise=recognise,
    read=read,
    overrides=OVERRIDES,
    check=check,
    to_json=to_json,
    plan_from_json=lambda instance, content: plan_from_json(instance.flat, content),
    plan_to_json=lambda instance, plan: plan_to_json(instance.flat, plan),
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
