"""Flushed stage partitioning: Piper's problem for pipelines that are flushed after every batch."""

from __future__ import annotations

from formulations.contract.family import Certificates, Family, lazy
from formulations.flushed_partitioning.definition.problem import evaluate, violations
from formulations.flushed_partitioning.definition.quantities import VOCABULARY
from formulations.flushed_partitioning.definition.settings import (
    OVERRIDES,
    describe,
    memory_pressure,
    read,
    recognise,
)
from formulations.flushed_partitioning.methods import METHODS, choose
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.plans import plan_from_json, plan_to_json
from formulations.stage_partitioning.definition.settings import recognise as recognise_flat
from instances.problems.flushed_partitioning import FlushedInstance, check, to_json

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
    vocabulary=VOCABULARY,
    choose=choose,
    describe=describe,
    memory_pressure=memory_pressure,
    warnings=lambda instance: instance.flat.warnings,
    why_infeasible=lazy("formulations.flushed_partitioning.questions.why_infeasible:why_infeasible"),
    also_reads=recognise_flat,
    breakdown=lazy("formulations.flushed_partitioning.definition.plan_figures:breakdown"),
    certificates=Certificates(
        write=lazy("formulations.flushed_partitioning.certificate.writer:write"),
        verify=lazy("formulations.flushed_partitioning.certificate.checker:verify"),
    ),
    sweepable=True,
    questions=lazy("formulations.flushed_partitioning.questions.what_if:questions"),
)
