"""Operator strategies: the definition, naively and without any solver.

Source: IOPDDL, "Problem Description", and ``iopddl.cc`` of google/iopddl (commit 8a61c43), `Evaluate`.
"""

from formulations.contract.violation import Violation
from formulations.operator_strategies.definition.plan import StrategyPlan
from instances.problems.operator_strategies import OperatorStrategies, StrategyEdge


def edge_cost(instance: OperatorStrategies, plan: StrategyPlan, edge: StrategyEdge) -> int:
    """What an edge costs: the entry of its ends' strategies."""
    u, v = edge.nodes
    return edge.costs[plan.strategy_of[u] * len(instance.nodes[v].costs) + plan.strategy_of[v]]


def peak_usage(instance: OperatorStrategies, plan: StrategyPlan) -> tuple[int, int]:
    """The largest usage of live nodes together, and the first time of it; 0 at time 0 if nothing is used."""
    changes: dict[int, int] = {}
    for node, k in zip(instance.nodes, plan.strategy_of, strict=True):
        start, end = node.interval
        changes[start] = changes.get(start, 0) + node.usages[k]
        changes[end] = changes.get(end, 0) - node.usages[k]
    used, most, at = 0, 0, 0
    for time, change in sorted(changes.items()):
        used += change
        if used > most:
            most, at = used, time
    return most, at


def evaluate(instance: OperatorStrategies, plan: StrategyPlan) -> float:
    """Cost of all nodes and edges, summed as whole numbers and rounded once; 0 for no node."""
    nodes = sum(node.costs[k] for node, k in zip(instance.nodes, plan.strategy_of, strict=True))
    return float(nodes + sum(edge_cost(instance, plan, edge) for edge in instance.edges))


def violations(instance: OperatorStrategies, plan: StrategyPlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks.

    Rules: ``choice`` (one existing strategy for each node), ``memory`` (the usage of all live nodes is at most the
    limit, at every time).
    """
    if len(plan.strategy_of) != len(instance.nodes):
        return (
            Violation("choice", f"{len(plan.strategy_of)} strategies; expected one for each of {len(instance.nodes)}"),
        )
    outside = [
        Violation("choice", f"node {v} has no strategy {k}")
        for v, (node, k) in enumerate(zip(instance.nodes, plan.strategy_of, strict=True))
        if not 0 <= k < len(node.costs)
    ]
    if outside or instance.usage_limit is None:
        return tuple(outside)
    used, time = peak_usage(instance, plan)
    if used > instance.usage_limit:
        words = f"live nodes use {used} at time {time}; expected at most {instance.usage_limit}"
        return (Violation("memory", words),)
    return ()
