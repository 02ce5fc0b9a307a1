"""Flushed stage partitioning: Piper's problem for pipelines that are flushed after every batch."""

from __future__ import annotations

from formulations.family import Certificates, Family, lazy
from formulations.flushed_partitioning.methods import METHODS, choose
from formulations.flushed_partitioning.problem import evaluate, violations
from formulations.flushed_partitioning.settings import OVERRIDES, describe, memory_pressure, read, recognise
from formulations.flushed_partitioning.vocabulary import VOCABULARY
from formulations.stage_partitioning.plans import plan_from_json, plan_to_json
from formulations.stage_partitioning.problem import StagePlan
from formulations.stage_partitioning.settings import recognise as recognise_flat
from instances.flushed_partitioning import FlushedInstance, check, to_json

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
    why_infeasible=lazy("formulations.flushed_partitioning.infeasible:why_infeasible"),
    also_reads=recognise_flat,
    breakdown=lazy("formulations.flushed_partitioning.breakdown:breakdown"),
    certificates=Certificates(
        write=lazy("formulations.flushed_partitioning.certificates:write"),
        verify=lazy("formulations.flushed_partitioning.checker:verify"),
    ),
    sweepable=True,
    questions=lazy("formulations.flushed_partitioning.questions:questions"),
)
