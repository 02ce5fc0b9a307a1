"""Hierarchical stage partitioning: machines of devices, a network inside a machine and another between machines."""

from __future__ import annotations

from formulations.contract.family import Certificates, Family, lazy
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from formulations.hierarchical_partitioning.definition.plans import plan_from_json, plan_to_json
from formulations.hierarchical_partitioning.definition.problem import evaluate, violations
from formulations.hierarchical_partitioning.definition.quantities import VOCABULARY
from formulations.hierarchical_partitioning.definition.settings import (
    OVERRIDES,
    describe,
    read,
    recognise,
)
from formulations.hierarchical_partitioning.methods import METHODS, choose
from formulations.hierarchical_partitioning.questions.inner_problems import INSIDE
from formulations.stage_partitioning.definition.settings import recognise as recognise_flat
from instances.problems.hierarchical_partitioning import HierarchicalInstance, check, to_json

FAMILY: Family[HierarchicalInstance, HierarchicalPlan] = Family(
    name="hierarchical_partitioning",
    recognise=recognise,
    read=read,
    overrides=OVERRIDES,
    check=check,
    to_json=to_json,
    plan_from_json=plan_from_json,
    plan_to_json=plan_to_json,
    evaluate=evaluate,
    violations=violations,
    unit=lambda instance: instance.flat.time_unit,
    methods=METHODS,
    vocabulary=VOCABULARY,
    choose=choose,
    describe=describe,
    warnings=lambda instance: instance.flat.warnings,
    why_infeasible=lazy("formulations.hierarchical_partitioning.questions.why_infeasible:why_infeasible"),
    also_reads=recognise_flat,
    breakdown=lazy("formulations.hierarchical_partitioning.definition.plan_figures:breakdown"),
    certificates=Certificates(
        write=lazy("formulations.hierarchical_partitioning.certificate.writer:write"),
        verify=lazy("formulations.hierarchical_partitioning.certificate.checker:verify"),
    ),
    sweepable=True,
    subproblems=INSIDE,
    questions=lazy("formulations.hierarchical_partitioning.questions.what_if:questions"),
)
