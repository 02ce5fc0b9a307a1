"""A choice of strategies in figures: what every node costs and uses, and the time at which most is used."""

from typing import Any

from formulations.contract.figures.plan_figures import Breakdown, Stack, stages_of
from formulations.operator_strategies.definition.plan import StrategyPlan
from formulations.operator_strategies.definition.problem import edge_cost, peak_usage
from instances.problems.operator_strategies import OperatorStrategies


def breakdown(instance: OperatorStrategies, plan: StrategyPlan) -> Breakdown:
    """Every node's strategy; half of an edge's cost is at either end."""
    edges = [0.0] * len(instance.nodes)
    for edge in instance.edges:
        for end in edge.nodes:
            edges[end] += edge_cost(instance, plan, edge) / 2
    rows: list[dict[str, Any]] = [
        {"nodes": [v], "strategy": k, "cost": node.costs[k], "edge_cost": edges[v], "usage": node.usages[k]}
        for v, (node, k) in enumerate(zip(instance.nodes, plan.strategy_of, strict=True))
    ]
    used, at = peak_usage(instance, plan)
    figures = {"cost_of_nodes": sum(row["cost"] for row in rows), "cost_of_edges": sum(edges)}
    peak = {"peak_usage": used, "at_time": at}
    left = {} if instance.usage_limit is None else {"usage_left": instance.usage_limit - used}
    own = [float(row["cost"]) for row in rows]
    parts = {"node": own, "half of its edges": edges}
    stages = stages_of([a + b for a, b in zip(own, edges, strict=True)])
    picture = Stack("Cost by node", stages, parts, "cost", "", adds_up=True)
    return Breakdown(tuple(rows), {**figures, **peak, **left}, lambda: (picture,), row="node")
