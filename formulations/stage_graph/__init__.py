"""Stage graphs: a branching model cut into pipeline stages that form a directed acyclic graph."""

from __future__ import annotations

from formulations.contract.family import Certificates, Family, lazy
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.plans import plan_from_json, plan_to_json
from formulations.stage_graph.definition.problem import evaluate, violations
from formulations.stage_graph.definition.quantities import VOCABULARY
from formulations.stage_graph.definition.settings import OVERRIDES, describe, memory_pressure, read, recognise
from formulations.stage_graph.methods import METHODS, choose, fits_levels, suits
from formulations.stage_graph.questions.alternatives import NEARBY
from formulations.stage_graph.questions.inner_problems import INSIDE
from instances.problems.stage_graph import StageGraph, check, to_json

FAMILY: Family[StageGraph, StagePlan] = Family(
    name="stage_graph",
    recognise=recognise,
    read=read,
    overrides=OVERRIDES,
    check=check,
    to_json=to_json,
    plan_from_json=plan_from_json,
    plan_to_json=plan_to_json,
    evaluate=evaluate,
    violations=violations,
    unit=lambda instance: "s" if instance.objective == "iteration" else "s/sample",
    methods=METHODS,
    vocabulary=VOCABULARY,
    nearby=NEARBY,
    choose=choose,
    describe=describe,
    memory_pressure=memory_pressure,
    chooses_by=(suits, fits_levels),
    breakdown=lazy("formulations.stage_graph.definition.plan_figures:breakdown"),
    certificates=Certificates(
        write=lazy("formulations.stage_graph.certificate.writer:write"),
        verify=lazy("formulations.stage_graph.certificate.checker:verify"),
    ),
    mining=lazy("formulations.stage_graph.questions.instance_space:mining"),
    subproblems=INSIDE,
    questions=lazy("formulations.stage_graph.questions.what_if:questions"),
)
