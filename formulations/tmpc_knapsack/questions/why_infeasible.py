"""What would make an infeasible instance feasible."""

from formulations.contract.family import lazy
from instances.parameters import MAX_AMOUNT
from instances.problems.tmpc_knapsack import KnapsackInstance
from solvers.outcome import Limits, Watch

_code = lazy("formulations.tmpc_knapsack")


def why_infeasible(instance: KnapsackInstance, _limits: Limits, _watch: Watch) -> tuple[str, dict[str, float]]:
    """The least capacity that would be feasible, rounded up: the smallest options together."""
    sentence: str = _code.costs.shortage(instance)
    least: float = _code.costs.least_capacity(instance)
    return sentence, {"least_capacity_bytes": least} if least <= MAX_AMOUNT else {}
