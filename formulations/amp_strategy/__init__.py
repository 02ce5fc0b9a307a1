"""Training strategies: degrees, micro-batch, placement and layer assignment of a model on heterogeneous nodes."""

from __future__ import annotations

from formulations.amp_strategy.definition.plan import StrategyPlan
from formulations.amp_strategy.definition.plans import plan_from_json, plan_to_json
from formulations.amp_strategy.definition.problem import evaluate, violations
from formulations.amp_strategy.definition.quantities import VOCABULARY
from formulations.amp_strategy.definition.settings import JSON, OVERRIDES, describe, read
from formulations.amp_strategy.methods import METHODS, choose
from formulations.amp_strategy.questions.inner_problems import INSIDE
from formulations.contract.family import Certificates, Family, lazy
from instances.problems.amp_strategy import AmpInstance, check, to_json

FAMILY: Family[AmpInstance, StrategyPlan] = Family(
    name="amp_strategy",
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
    breakdown=lazy("formulations.amp_strategy.definition.plan_figures:breakdown"),
    certificates=Certificates(
        write=lazy("formulations.amp_strategy.certificate.writer:write"),
        verify=lazy("formulations.amp_strategy.certificate.checker:verify"),
    ),
    subproblems=INSIDE,
    mining=lazy("formulations.amp_strategy.questions.instance_space:mining"),
)
