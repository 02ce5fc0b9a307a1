"""Layer assignment: a chain of layers cut into pipeline stages; waiting, sending, filling and the all-reduce add up."""

from __future__ import annotations

from formulations.family import Certificates, Family, lazy
from formulations.layer_assignment.infeasible import why_infeasible
from formulations.layer_assignment.methods import METHODS, choose
from formulations.layer_assignment.nearby import NEARBY
from formulations.layer_assignment.plans import plan_from_json, plan_to_json
from formulations.layer_assignment.problem import LayerPlan, evaluate, violations
from formulations.layer_assignment.settings import JSON, OVERRIDES, Instance, describe, read
from formulations.layer_assignment.vocabulary import VOCABULARY
from instances.layer_assignment import check, to_json

FAMILY: Family[Instance, LayerPlan] = Family(
    name="layer_assignment",
    recognise=JSON.recognise,
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
    choose=choose,
    describe=describe,
    why_infeasible=why_infeasible,
    certificates=Certificates(
        write=lazy("formulations.layer_assignment.certificates:write"),
        verify=lazy("formulations.layer_assignment.checker:verify"),
    ),
    breakdown=lazy("formulations.layer_assignment.breakdown:breakdown"),
    mining=lazy("formulations.layer_assignment.mining:mining"),
    questions=lazy("formulations.layer_assignment.questions:questions"),
)
