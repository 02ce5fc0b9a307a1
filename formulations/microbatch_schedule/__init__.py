"""Micro-batch schedules of stage graphs, and how many samples a stage keeps in flight."""

from __future__ import annotations

from formulations.family import Certificates, Family, lazy
from formulations.microbatch_schedule.methods import METHODS, choose
from formulations.microbatch_schedule.plans import plan_from_json, plan_to_json
from formulations.microbatch_schedule.problem import SchedulePlan, evaluate, violations
from formulations.microbatch_schedule.settings import OVERRIDES, describe, read, recognise
from formulations.microbatch_schedule.vocabulary import VOCABULARY
from instances.microbatch_schedule import ScheduleInstance, check, to_json

FAMILY: Family[ScheduleInstance, SchedulePlan] = Family(
    name="microbatch_schedule",
    recognise=recognise,
    read=read,
    overrides=OVERRIDES,
    check=check,
    to_json=to_json,
    plan_from_json=plan_from_json,
    plan_to_json=plan_to_json,
    evaluate=evaluate,
    violations=violations,
    unit=lambda instance: "bytes" if instance.objective == "memory" else "s",
    methods=METHODS,
    vocabulary=VOCABULARY,
    choose=choose,
    describe=describe,
    why_infeasible=lazy("formulations.microbatch_schedule.infeasible:why_infeasible"),
    certificates=Certificates(
        write=lazy("formulations.microbatch_schedule.certificates:write"),
        verify=lazy("formulations.microbatch_schedule.checker:verify"),
    ),
    breakdown=lazy("formulations.microbatch_schedule.breakdown:breakdown"),
    mining=lazy("formulations.microbatch_schedule.mining:mining"),
)
