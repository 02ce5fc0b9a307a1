"""Pipeline placement: operators cut into stages and stages put on devices, one phase after the other or at once."""

from __future__ import annotations

from formulations.contract.family import Certificates, Family, lazy
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.plans import plan_from_json, plan_to_json
from formulations.pipeline_placement.definition.problem import evaluate, violations
from formulations.pipeline_placement.definition.quantities import VOCABULARY
from formulations.pipeline_placement.definition.settings import JSON, OVERRIDES, describe, read
from formulations.pipeline_placement.methods import METHODS, choose
from formulations.pipeline_placement.questions.inner_problems import INSIDE
from instances.problems.pipeline_placement import PlacementInstance, check, to_json

FAMILY: Family[PlacementInstance, PlacementPlan] = Family(
    name="pipeline_placement",
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
    choose=choose,
    describe=describe,
    why_infeasible=lazy("formulations.pipeline_placement.questions.why_infeasible:why_infeasible"),
    certificates=Certificates(
        write=lazy("formulations.pipeline_placement.certificate.writer:write"),
        verify=lazy("formulations.pipeline_placement.certificate.checker:verify"),
    ),
    breakdown=lazy("formulations.pipeline_placement.definition.plan_figures:breakdown"),
    subproblems=INSIDE,
    mining=lazy("formulations.pipeline_placement.questions.instance_space:mining"),
)
