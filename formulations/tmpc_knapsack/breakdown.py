"""A choice of TMPCs in figures: time and memory node by node."""

from __future__ import annotations

from formulations.breakdown import Bars, Breakdown
from formulations.tmpc_knapsack.problem import KnapsackPlan, total_memory
from instances.tmpc_knapsack import KnapsackInstance


def breakdown(instance: KnapsackInstance, plan: KnapsackPlan) -> Breakdown:
    """Every node's time and memory, and the room that is left."""
    chosen = [next(o for o in node.options if o.id == plan.choice[node.id]) for node in instance.nodes]
    labels = [f"{node.id}\n{plan.choice[node.id]}" for node in instance.nodes]
    used = total_memory(instance, plan)
    title = f"Memory of each node; the capacity of {instance.capacity_bytes:.6g} bytes is for all together"
    xlabel = "node, option"
    return Breakdown(
        tuple({"time": option.time, "memory_bytes": option.memory_bytes} for option in chosen),
        {"memory_bytes": used, "slack_bytes": instance.capacity_bytes - used},
        (
            Bars("Time of each node", labels, [option.time for option in chosen], "time", xlabel),
            Bars(title, labels, [option.memory_bytes for option in chosen], "memory, bytes", xlabel),
        ),
    )
