"""Plans as JSON: there and back, and what is refused."""

from strategies import random_stage_instance

from formulations.stage_partitioning import FAMILY

INSTANCE = random_stage_instance(1, shape="chain", memory="planted")


def test_unknown_nodes_are_violations_not_errors():
    content = {"stages": [{"nodes": ["nowhere"], "dp_degree": 1, "tp_degree": 1, "tmpcs": {"nowhere": "x"}}]}
    plan = FAMILY.plan_from_json(INSTANCE, content)
    assert "cover" in {violation.rule for violation in FAMILY.judge(INSTANCE, plan)}
