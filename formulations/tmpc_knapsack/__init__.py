"""TMPC knapsack: one TMPC per node of a stage, least total time, total memory within a capacity."""

from __future__ import annotations

from formulations.contract.family import Certificates, Family, lazy
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.plans import plan_from_json, plan_to_json
from formulations.tmpc_knapsack.definition.problem import evaluate, violations
from formulations.tmpc_knapsack.definition.quantities import VOCABULARY
from formulations.tmpc_knapsack.definition.settings import MEMORY, describe, memory_pressure, read, recognise
from formulations.tmpc_knapsack.methods import METHODS, choose
from formulations.tmpc_knapsack.questions.why_infeasible import why_infeasible
from instances.problems.tmpc_knapsack import KnapsackInstance, check, to_json

FAMILY: Family[KnapsackInstance, KnapsackPlan] = Family(
    name="tmpc_knapsack",
    recognise=recognise,
    read=read,
    overrides=(MEMORY,),
    check=check,
    to_json=to_json,
    plan_from_json=plan_from_json,
    plan_to_json=plan_to_json,
    evaluate=evaluate,
    violations=violations,
    unit=lambda _: "",
    methods=METHODS,
    vocabulary=VOCABULARY,
    choose=choose,
    describe=describe,
    memory_pressure=memory_pressure,
    why_infeasible=why_infeasible,
    certificates=Certificates(
        write=lazy("formulations.tmpc_knapsack.certificate.writer:write"),
        verify=lazy("formulations.tmpc_knapsack.certificate.checker:verify"),
    ),
    breakdown=lazy("formulations.tmpc_knapsack.definition.plan_figures:breakdown"),
    mining=lazy("formulations.tmpc_knapsack.questions.instance_space:mining"),
    questions=lazy("formulations.tmpc_knapsack.questions.what_if:questions"),
)
