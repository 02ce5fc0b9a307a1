"""Certificates of knapsacks: the price of memory at which the relaxed knapsack ends, for `checker`."""

from fractions import Fraction

from formulations.contract.certificates import Proved, certifies
from formulations.contract.checker.downsets import savings, undominated
from formulations.tmpc_knapsack.certificate import checker
from instances.problems.tmpc_knapsack import KnapsackInstance
from solvers.outcome import Watch


@certifies(checker.CHECKER)
def write(_instance: KnapsackInstance, exact: checker.Instance, T: Fraction | None, _watch: Watch) -> Proved:
    """`certificate` of a plan and a bound."""
    multiplier = None if T is None else _price(exact)
    if checker.leaves(exact, T, multiplier):
        return None
    return T, {"kind": "multiplier", "multiplier": None if multiplier is None else str(multiplier)}


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
