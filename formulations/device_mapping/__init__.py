"""Device mapping: the stages of a pipeline and their replicas placed on devices with heterogeneous links."""

from __future__ import annotations

from formulations.contract.family import Certificates, Family, lazy
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.plans import plan_from_json, plan_to_json
from formulations.device_mapping.definition.problem import evaluate, violations
from formulations.device_mapping.definition.quantities import VOCABULARY
from formulations.device_mapping.definition.settings import JSON, OVERRIDES, Instance, describe, read
from formulations.device_mapping.methods import METHODS, choose
from formulations.device_mapping.questions.inner_problems import INSIDE
from instances.problems.device_mapping import (
    check,
    to_json,
)

FAMILY: Family[Instance, Mapping] = Family(
    name="device_mapping",
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
        write=lazy("formulations.device_mapping.certificate.writer:write"),
        verify=lazy("formulations.device_mapping.certificate.checker:verify"),
    ),
    breakdown=lazy("formulations.device_mapping.definition.plan_figures:breakdown"),
    subproblems=INSIDE,
    mining=lazy("formulations.device_mapping.questions.instance_space:mining"),
)
