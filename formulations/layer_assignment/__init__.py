"""Layer assignment: a chain of layers cut into pipeline stages; waiting, sending, filling and the all-reduce add up."""

from __future__ import annotations

from formulations.contract.family import Certificates, Family, lazy
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.plans import plan_from_json, plan_to_json
from formulations.layer_assignment.definition.problem import evaluate, violations
from formulations.layer_assignment.definition.quantities import VOCABULARY
from formulations.layer_assignment.definition.settings import JSON, OVERRIDES, Instance, describe, read
from formulations.layer_assignment.methods import METHODS, choose
from formulations.layer_assignment.questions.alternatives import NEARBY
from formulations.layer_assignment.questions.why_infeasible import why_infeasible
from instances.problems.layer_assignment import check, to_json

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
        write=lazy("formulations.layer_assignment.certificate.writer:write"),
        verify=lazy("formulations.layer_assignment.certificate.checker:verify"),
    ),
    breakdown=lazy("formulations.layer_assignment.definition.plan_figures:breakdown"),
    mining=lazy("formulations.layer_assignment.questions.instance_space:mining"),
    questions=lazy("formulations.layer_assignment.questions.what_if:questions"),
)
