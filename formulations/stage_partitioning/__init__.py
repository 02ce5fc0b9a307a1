"""Stage partitioning with TMPC choice: a layer graph split into pipeline stages with degrees and configurations."""

from __future__ import annotations

from formulations.family import Certificates, Family, lazy
from formulations.stage_partitioning.inside import INSIDE
from formulations.stage_partitioning.methods import METHODS
from formulations.stage_partitioning.nearby import NEARBY
from formulations.stage_partitioning.plans import plan_from_json, plan_to_json
from formulations.stage_partitioning.problem import StagePlan, evaluate, violations
from formulations.stage_partitioning.settings import OVERRIDES, describe, memory_pressure, read, recognise
from formulations.stage_partitioning.vocabulary import VOCABULARY
from instances.stage_partitioning import StageInstance, check, to_json

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
    choose=lazy("formulations.stage_partitioning.effort:choose"),
    describe=describe,
    memory_pressure=memory_pressure,
    warnings=lambda instance: instance.warnings,
    why_infeasible=lazy("formulations.stage_partitioning.infeasible:why_infeasible"),
    breakdown=lazy("formulations.stage_partitioning.breakdown:breakdown"),
    certificates=Certificates(
        write=lazy("formulations.stage_partitioning.certificates:write"),
        verify=lazy("formulations.stage_partitioning.checker:verify"),
    ),
    mining=lazy("formulations.stage_partitioning.mining:mining"),
    questions=lazy("formulations.stage_partitioning.questions:questions"),
    sweepable=True,
    subproblems=INSIDE,
)
