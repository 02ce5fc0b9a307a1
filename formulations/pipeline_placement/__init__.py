"""Pipeline placement: operators cut into stages and stages put on devices, one phase after the other or at once."""

from __future__ import annotations

from formulations.family import Certificates, Family, lazy
from formulations.pipeline_placement.inside import INSIDE
from formulations.pipeline_placement.methods import METHODS, choose
from formulations.pipeline_placement.plans import plan_from_json, plan_to_json
from formulations.pipeline_placement.problem import PlacementPlan, evaluate, violations
from formulations.pipeline_placement.settings import JSON, OVERRIDES, describe, read
from formulations.pipeline_placement.vocabulary import VOCABULARY
from instances.pipeline_placement import PlacementInstance, check, to_json

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
    why_infeasible=lazy("formulations.pipeline_placement.infeasible:why_infeasible"),
    certificates=Certificates(
        write=lazy("formulations.pipeline_placement.certificates:write"),
        verify=lazy("formulations.pipeline_placement.checker:verify"),
    ),
    breakdown=lazy("formulations.pipeline_placement.breakdown:breakdown"),
    subproblems=INSIDE,
    mining=lazy("formulations.pipeline_placement.mining:mining"),
)
