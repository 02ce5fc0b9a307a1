"""What a plan decides, as decisions: from these follow brute force, what requirements speak of, and distinct plans."""

from formulations.contract.decisions import Decisions
from formulations.operator_strategies.definition.plan import StrategyPlan
from instances.problems.operator_strategies import OperatorStrategies


def _strategies(instance: OperatorStrategies) -> dict[str, list[range]]:
    return {"strategy_of": [range(len(node.costs)) for node in instance.nodes]}


DECISIONS = Decisions(StrategyPlan, _strategies, ("strategy_of",))
VOCABULARY = DECISIONS.vocabulary()
