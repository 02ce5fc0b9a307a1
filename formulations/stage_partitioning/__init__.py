"""Stage partitioning with TMPC choice: a layer graph split into pipeline stages with degrees and configurations."""

from __future__ import annotations

from formulations.contract.family import Certificates, Family, lazy
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.plans import plan_from_json, plan_to_json
from formulations.stage_partitioning.definition.problem import evaluate, violations
from formulations.stage_partitioning.definition.quantities import VOCABULARY
from formulations.stage_partitioning.definition.settings import OVERRIDES, describe, memory_pressure, read, recognise
from formulations.stage_partitioning.methods import METHODS
from formulations.stage_partitioning.questions.alternatives import NEARBY
from formulations.stage_partitioning.questions.inner_problems import INSIDE
from instances.problems.stage_partitioning import StageInstance, check, to_json

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
    vocabulary=VOCABULARY,
    nearby=NEARBY,
    choose=lazy("formulations.stage_partitioning.exact.effort:choose"),
    describe=describe,
    memory_pressure=memory_pressure,
    warnings=lambda instance: instance.warnings,
    why_infeasible=lazy("formulations.stage_partitioning.questions.why_infeasible:why_infeasible"),
    breakdown=lazy("formulations.stage_partitioning.definition.plan_figures:breakdown"),
    certificates=Certificates(
        write=lazy("formulations.stage_partitioning.certificate.writer:write"),
        verify=lazy("formulations.stage_partitioning.certificate.checker:verify"),
    ),
    mining=lazy("formulations.stage_partitioning.questions.instance_space:mining"),
    questions=lazy("formulations.stage_partitioning.questions.what_if:questions"),
    sweepable=True,
    subproblems=INSIDE,
)
