"""Micro-batch schedules of stage graphs, and how many samples a stage keeps in flight."""

from __future__ import annotations

from formulations.contract.family import Certificates, Family, lazy
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.plans import plan_from_json, plan_to_json
from formulations.microbatch_schedule.definition.problem import evaluate, violations
from formulations.microbatch_schedule.definition.quantities import VOCABULARY
from formulations.microbatch_schedule.definition.settings import OVERRIDES, describe, read, recognise
from formulations.microbatch_schedule.methods import METHODS, choose
from instances.problems.microbatch_schedule import ScheduleInstance, check, to_json

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
    why_infeasible=lazy("formulations.microbatch_schedule.questions.why_infeasible:why_infeasible"),
    certificates=Certificates(
        write=lazy("formulations.microbatch_schedule.certificate.writer:write"),
        verify=lazy("formulations.microbatch_schedule.certificate.checker:verify"),
    ),
    breakdown=lazy("formulations.microbatch_schedule.definition.plan_figures:breakdown"),
    mining=lazy("formulations.microbatch_schedule.questions.instance_space:mining"),
)
