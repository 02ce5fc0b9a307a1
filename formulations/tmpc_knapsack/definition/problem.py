"""TMPC knapsack: the definition, naively and without any solver.

Source: Piper, section 4, "The knapsack subproblem".
"""

import math

from formulations.contract.violation import Violation
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from instances.problems.tmpc_knapsack import Choice, KnapsackInstance
from instances.units import of_room

#: A choice fits if its memory is at most the capacity times this: float noise, far below one byte.
MEMORY_SLACK = 1 + 1e-12


def total_memory(instance: KnapsackInstance, plan: KnapsackPlan) -> float:
    """Bytes of the chosen TMPCs together."""
    return math.fsum(choice.memory_bytes for choice in _options_of(instance, plan))


def evaluate(instance: KnapsackInstance, plan: KnapsackPlan) -> float:
    """Total time of the chosen TMPCs; 0 for no node.

    `ValueError` if a node has no choice, or one that it does not have.
    Source: Piper, section 4: minimise the stage's total TPS, which is a sum over its nodes.
    """
    return math.fsum(choice.time for choice in _options_of(instance, plan))


def violations(instance: KnapsackInstance, plan: KnapsackPlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks.

    Rules: ``choice`` (one existing TMPC for every node), ``memory`` (<= capacity), ``required`` (what the instance
    requires beyond).
    """
    nodes = {node.id for node in instance.nodes}
    found = [Violation("choice", f"there is no node {node!r}") for node in plan.choice if node not in nodes]
    for node in instance.nodes:
        if plan.choice.get(node.id) not in {option.id for option in node.options}:
            found.append(Violation("choice", f"node {node.id!r} has no TMPC {plan.choice.get(node.id)!r}"))
    if found:
        return tuple(found)
    memory = total_memory(instance, plan)
    if memory > instance.capacity_bytes * MEMORY_SLACK:
        found.append(Violation("memory", f"the choice needs {of_room(memory, instance.capacity_bytes)}"))
    return tuple(found)


def _options_of(instance: KnapsackInstance, plan: KnapsackPlan) -> list[Choice]:
    chosen = []
    for node in instance.nodes:
        wanted = plan.choice.get(node.id)
        found = next((option for option in node.options if option.id == wanted), None)
        if found is None:
            raise ValueError(f"node {node.id!r} has no TMPC {wanted!r}")
        chosen.append(found)
    return chosen
