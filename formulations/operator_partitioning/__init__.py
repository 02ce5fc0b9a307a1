"""Operator partitioning: an operator graph cut into pipeline stages, as Parmesan does it and exactly."""

from __future__ import annotations

from formulations.family import Certificates, Family, lazy
from formulations.operator_partitioning.inside import INSIDE
from formulations.operator_partitioning.methods import METHODS
from formulations.operator_partitioning.nearby import NEARBY
from formulations.operator_partitioning.plans import plan_from_json, plan_to_json
from formulations.operator_partitioning.problem import OperatorPlan, evaluate, violations
from formulations.operator_partitioning.settings import OVERRIDES, describe, memory_pressure, read, recognise
from formulations.operator_partitioning.vocabulary import VOCABULARY
from instances.operator_partitioning import OperatorInstance, check, to_json

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
    why_infeasible=lazy("formulations.operator_partitioning.infeasible:why_infeasible"),
    certificates=Certificates(
        write=lazy("formulations.operator_partitioning.certificates:write"),
        verify=lazy("formulations.operator_partitioning.checker:verify"),
    ),
    breakdown=lazy("formulations.operator_partitioning.breakdown:breakdown"),
    mining=lazy("formulations.operator_partitioning.mining:mining"),
    subproblems=INSIDE,
    questions=lazy("formulations.operator_partitioning.questions:questions"),
)
