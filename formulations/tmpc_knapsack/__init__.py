"""TMPC knapsack: one TMPC per node of a stage, least total time, total memory within a capacity."""

from __future__ import annotations

from formulations.family import Certificates, Family, lazy
from formulations.tmpc_knapsack.infeasible import why_infeasible
from formulations.tmpc_knapsack.methods import METHODS, choose
from formulations.tmpc_knapsack.plans import plan_from_json, plan_to_json
from formulations.tmpc_knapsack.problem import KnapsackPlan, evaluate, violations
from formulations.tmpc_knapsack.settings import MEMORY, describe, memory_pressure, read, recognise
from formulations.tmpc_knapsack.vocabulary import VOCABULARY
from instances.tmpc_knapsack import KnapsackInstance, check, to_json

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
        write=lazy("formulations.tmpc_knapsack.certificates:write"),
        verify=lazy("formulations.tmpc_knapsack.checker:verify"),
    ),
    breakdown=lazy("formulations.tmpc_knapsack.breakdown:breakdown"),
    mining=lazy("formulations.tmpc_knapsack.mining:mining"),
    questions=lazy("formulations.tmpc_knapsack.questions:questions"),
)
