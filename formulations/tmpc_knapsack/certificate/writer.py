"""Certificates of knapsacks: the price of memory at which the relaxed knapsack ends, for `checker`."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from formulations.contract.certificates import Proof, certificate
from formulations.contract.checker.downsets import savings, undominated
from formulations.tmpc_knapsack.certificate import checker
from instances.exchange import to_json
from instances.problems.tmpc_knapsack import KnapsackInstance
from solvers.outcome import Watch


def write(instance: KnapsackInstance, plan: Mapping[str, Any] | None, bound: float, _watch: Watch) -> dict[str, Any]:
    """`certificate` of a plan and a bound."""

    def prove(exact: checker.Instance, T: Fraction | None) -> tuple[Fraction | None, Proof] | None:
        multiplier = None if T is None else _price(exact)
        if checker.leaves(exact, T, multiplier):
            return None
        return T, {"kind": "multiplier", "multiplier": None if multiplier is None else str(multiplier)}

    return certificate(checker.CHECKER, to_json(instance), plan, bound, prove)


def _price(exact: checker.Instance) -> Fraction:
    """Time for a byte, where the relaxed knapsack's savings of memory are enough."""
    groups = [undominated(row.values()) for row in exact.nodes.values()]
    over = sum(group[0][1] for group in groups if group) - exact.capacity
    steps = (step for group in groups for step in savings(group))
    for price, less in sorted((Fraction(more, less), less) for _, more, less in steps):
        if less >= over:
            return price * Fraction(exact.grain, exact.unit) if over > 0 else Fraction(0)
        over -= less
    return Fraction(0)
