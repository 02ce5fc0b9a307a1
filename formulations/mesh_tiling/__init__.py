"""Mesh tiling: an exact cover of a mesh of devices by one tile for each pipeline stage."""

from __future__ import annotations

from formulations.contract.family import Certificates, Family, lazy
from formulations.mesh_tiling.definition.plan import TilingPlan
from formulations.mesh_tiling.definition.plans import plan_from_json, plan_to_json
from formulations.mesh_tiling.definition.problem import evaluate, violations
from formulations.mesh_tiling.definition.quantities import VOCABULARY
from formulations.mesh_tiling.definition.settings import JSON, OVERRIDES, describe, read
from formulations.mesh_tiling.methods import METHODS, choose
from instances.problems.mesh_tiling import MeshInstance, check, to_json

FAMILY: Family[MeshInstance, TilingPlan] = Family(
    name="mesh_tiling",
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
    certificates=Certificates(
        write=lazy("formulations.mesh_tiling.certificate.writer:write"),
        verify=lazy("formulations.mesh_tiling.certificate.checker:verify"),
    ),
    picture=lazy("formulations.mesh_tiling.definition.picture:svg"),
    breakdown=lazy("formulations.mesh_tiling.definition.plan_figures:breakdown"),
    mining=lazy("formulations.mesh_tiling.questions.instance_space:mining"),
    questions=lazy("formulations.mesh_tiling.questions.what_if:questions"),
)
