"""Operator partitioning: an operator graph cut into pipeline stages, as Parmesan does it and exactly."""

from __future__ import annotations

from formulations.contract.family import Certificates, Family, lazy
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.plans import plan_from_json, plan_to_json
from formulations.operator_partitioning.definition.problem import evaluate, violations
from formulations.operator_partitioning.definition.quantities import VOCABULARY
from formulations.operator_partitioning.definition.settings import (
    OVERRIDES,
    describe,
    memory_pressure,
    read,
    recognise,
)
from formulations.operator_partitioning.methods import METHODS
from formulations.operator_partitioning.questions.alternatives import NEARBY
from formulations.operator_partitioning.questions.inner_problems import INSIDE
from instances.problems.operator_partitioning import OperatorInstance, check, to_json

FAMILY: Family[OperatorInstance, OperatorPlan] = Family(
    name="operator_partitioning",
    recognise=recognise,
    read=read,
    overrides=OVERRIDES,
    check=check,
    to_json=to_json,
    plan_from_json=plan_from_json,
    plan_to_json=plan_to_json,
    evaluate=evaluate,
    violations=violations,
    unit=lambda _: "s",
    methods=METHODS,
    vocabulary=VOCABULARY,
    nearby=NEARBY,
    choose=lazy("formulations.operator_partitioning.effort:choose"),
    describe=describe,
    memory_pressure=memory_pressure,
    why_infeasible=lazy("formulations.operator_partitioning.questions.why_infeasible:why_infeasible"),
    certificates=Certificates(
        write=lazy("formulations.operator_partitioning.certificate.writer:write"),
        verify=lazy("formulations.operator_partitioning.certificate.checker:verify"),
    ),
    breakdown=lazy("formulations.operator_partitioning.definition.plan_figures:breakdown"),
    mining=lazy("formulations.operator_partitioning.questions.instance_space:mining"),
    subproblems=INSIDE,
    questions=lazy("formulations.operator_partitioning.questions.what_if:questions"),
)
