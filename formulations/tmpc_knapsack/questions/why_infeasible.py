"""What would make an infeasible instance feasible."""

from __future__ import annotations

from formulations.contract.family import lazy
from instances.parameters import MAX_AMOUNT
from instances.problems.tmpc_knapsack import KnapsackInstance
from solvers.outcome import Limits, Watch


def why_infeasible(instance: KnapsackInstance, _limits: Limits, _watch: Watch) -> tuple[str, dict[str, float]]:
    """The least capacity that would be feasible, rounded up: the smallest options together."""
    sentence: str = lazy("formulations.tmpc_knapsack.costs:shortage")(instance)
    least: float = lazy("formulations.tmpc_knapsack.costs:least_capacity")(instance)
    return sentence, {"least_capacity_bytes": least} if least <= MAX_AMOUNT else {}
