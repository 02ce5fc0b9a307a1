"""What a plan decides."""

from dataclasses import dataclass

from formulations.contract.plan_exchange import exchange
from instances.rules import Whole


@dataclass(frozen=True)
class StrategyPlan:
    """``strategy_of[v]``: the strategy of node v, from 0 on; the contest's output."""

    strategy_of: tuple[Whole, ...]


plan_from_json, plan_to_json = exchange('``{"strategy_of": [k, ...]}``.', StrategyPlan)
