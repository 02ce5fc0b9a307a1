"""Mesh tiling: an exact cover of a mesh of devices by one tile for each pipeline stage."""

from __future__ import annotations

from formulations.family import Certificates, Family, lazy
from formulations.mesh_tiling.methods import METHODS, choose
from formulations.mesh_tiling.plans import plan_from_json, plan_to_json
from formulations.mesh_tiling.problem import TilingPlan, evaluate, violations
from formulations.mesh_tiling.settings import JSON, OVERRIDES, describe, read
from formulations.mesh_tiling.vocabulary import VOCABULARY
from instances.mesh_tiling import MeshInstance, check, to_json

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
        write=lazy("formulations.mesh_tiling.certificates:write"),
        verify=lazy("formulations.mesh_tiling.checker:verify"),
    ),
    picture=lazy("formulations.mesh_tiling.picture:svg"),
    breakdown=lazy("formulations.mesh_tiling.breakdown:breakdown"),
    mining=lazy("formulations.mesh_tiling.mining:mining"),
    questions=lazy("formulations.mesh_tiling.questions:questions"),
)
