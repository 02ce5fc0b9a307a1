"""Training strategies: degrees, micro-batch, placement and layer assignment of a model on heterogeneous nodes."""

from __future__ import annotations

from formulations.amp_strategy.inside import INSIDE
from formulations.amp_strategy.methods import METHODS, choose
from formulations.amp_strategy.plans import plan_from_json, plan_to_json
from formulations.amp_strategy.problem import StrategyPlan, evaluate, violations
from formulations.amp_strategy.settings import JSON, OVERRIDES, describe, read
from formulations.amp_strategy.vocabulary import VOCABULARY
from formulations.family import Certificates, Family, lazy
from instances.amp_strategy import AmpInstance, check, to_json

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
    breakdown=lazy("formulations.amp_strategy.breakdown:breakdown"),
    certificates=Certificates(
        write=lazy("formulations.amp_strategy.certificates:write"),
        verify=lazy("formulations.amp_strategy.checker:verify"),
    ),
    subproblems=INSIDE,
    mining=lazy("formulations.amp_strategy.mining:mining"),
)
