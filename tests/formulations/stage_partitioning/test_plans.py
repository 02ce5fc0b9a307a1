"""Plans as JSON: there and back, and what is refused."""

import json

import pytest
from oracles.stage_partitioning import brute_force
from strategies import random_stage_instance

from formulations.stage_partitioning import FAMILY
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from instances.errors import InstanceError

INSTANCE = random_stage_instance(1, shape="chain", memory="planted")


def test_round_trip_is_identity(cases: int):
    for seed in range(cases):
        instance = random_stage_instance(seed, memory="planted")
        best = brute_force(instance)
        assert best is not None
        plan = StagePlan(
            tuple(Stage(nodes, d, t, dict(zip(nodes, tmpcs, strict=True))) for nodes, d, t, tmpcs in best.stages)
        )
        content = json.loads(json.dumps(FAMILY.plan_to_json(instance, plan)))
        assert FAMILY.plan_from_json(instance, content) == plan


def test_unknown_nodes_are_violations_not_errors():
    content = {"stages": [{"nodes": ["nowhere"], "dp_degree": 1, "tp_degree": 1, "tmpcs": {"nowhere": "x"}}]}
    plan = FAMILY.plan_from_json(INSTANCE, content)
    assert "cover" in {violation.rule for violation in FAMILY.judge(INSTANCE, plan)}


STAGE = {"nodes": [0], "dp_degree": 1, "tp_degree": 1, "tmpcs": {"0": "x"}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "plan: content is []; expected an object"),
        ({}, "plan: stages is missing; expected a list"),
        ({"stages": {}}, "plan: stages is {}; expected a list"),
        ({"stages": [3]}, "plan: stages[0] is 3; expected an object"),
        ({"stages": [STAGE, {**STAGE, "nodes": 0}]}, "plan: stages[1].nodes is 0; expected a list"),
        (
            {"stages": [{**STAGE, "nodes": [True]}]},
            "plan: stages[0].nodes[0] is True; expected an integer of at most 63 bits or text",
        ),
        ({"stages": [{**STAGE, "dp_degree": 0}]}, "stages[0].dp_degree is 0; expected an integer from 1"),
        ({"stages": [{**STAGE, "dp_degree": True}]}, "stages[0].dp_degree is True; expected an integer from 1"),
        ({"stages": [{**STAGE, "tp_degree": "1"}]}, "stages[0].tp_degree is '1'; expected an integer from 1 to"),
        ({"stages": [{**STAGE, "tmpcs": ["x"]}]}, "stages[0].tmpcs is ['x']; expected an object"),
        ({"stages": [{**STAGE, "tmpcs": {"0": 1}}]}, "stages[0].tmpcs.0 is 1; expected printable text"),
    ],
)
def test_malformed_plans_are_refused_in_one_line(content: object, message: str):
    with pytest.raises(InstanceError) as refused:
        FAMILY.plan_from_json(INSTANCE, content)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
