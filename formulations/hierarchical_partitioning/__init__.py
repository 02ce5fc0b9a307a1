"""Hierarchical stage partitioning: machines of devices, a network inside a machine and another between machines."""

from __future__ import annotations

from formulations.family import Certificates, Family, lazy
from formulations.hierarchical_partitioning.inside import INSIDE
from formulations.hierarchical_partitioning.methods import METHODS, choose
from formulations.hierarchical_partitioning.plans import plan_from_json, plan_to_json
from formulations.hierarchical_partitioning.problem import HierarchicalPlan, evaluate, violations
from formulations.hierarchical_partitioning.settings import (
    OVERRIDES,
    describe,
    read,
    recognise,
)
from formulations.hierarchical_partitioning.vocabulary import VOCABULARY
from formulations.stage_partitioning.settings import recognise as recognise_flat
from instances.hierarchical_partitioning import HierarchicalInstance, check, to_json

FAMILY: Family[HierarchicalInstance, HierarchicalPlan] = Family(
    name="hierarchical_partitioning",
    recognise=recognise,
    read=read,
    overrides=OVERRIDES,
    check=check,
    to_json=to_json,
    plan_from_json=plan_from_json,
    plan_to_json=plan_to_json,
    evaluate=evaluate,
    violations=violations,
    unit=lambda instance: instance.flat.time_unit,
    methods=METHODS,
    vocabulary=VOCABULARY,
    choose=choose,
    describe=describe,
    warnings=lambda instance: instance.flat.warnings,
    why_infeasible=lazy("formulations.hierarchical_partitioning.infeasible:why_infeasible"),
    also_reads=recognise_flat,
    breakdown=lazy("formulations.hierarchical_partitioning.breakdown:breakdown"),
    certificates=Certificates(
        write=lazy("formulations.hierarchical_partitioning.certificates:write"),
        verify=lazy("formulations.hierarchical_partitioning.checker:verify"),
    ),
    sweepable=True,
    subproblems=INSIDE,
    questions=lazy("formulations.hierarchical_partitioning.questions:questions"),
)
