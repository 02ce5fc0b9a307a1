"""A choice of TMPCs in figures: time and memory node by node."""

from itertools import pairwise

from formulations.contract.figures.plan_figures import Breakdown, Option, Options, Total, Tradeoff
from formulations.contract.hull import convex_hull
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.problem import evaluate, total_memory
from instances.problems.tmpc_knapsack import Choice, KnapsackInstance
from solvers.outcome import Limits, Watch


def breakdown(instance: KnapsackInstance, plan: KnapsackPlan) -> Breakdown:
    """Every node's time and memory, and the room that is left."""
    chosen = [next(o for o in node.options if o.id == plan.choice[node.id]) for node in instance.nodes]
    used = total_memory(instance, plan)
    return Breakdown(
        tuple(
            {"nodes": [node.id], "choice": option.id, "time": option.time, "memory_bytes": option.memory_bytes}
            for node, option in zip(instance.nodes, chosen, strict=True)
        ),
        {"memory_bytes": used, "slack_bytes": instance.capacity_bytes - used},
        lambda: (_tradeoff(instance, plan),),
        row="node",
    )


def _tradeoff(instance: KnapsackInstance, plan: KnapsackPlan) -> Tradeoff:
    """The options of all nodes, and this choice beside that of the best-ratio heuristic."""
    frontier = lower_hull(instance)
    heuristic = _solve_published(instance)
    nodes = [
        Options(
            str(node.id),
            [Option(o.id, o.time, o.memory_bytes) for o in node.options],
            _position(node.options, plan.choice[node.id]),
            None if heuristic is None else _position(node.options, heuristic.choice[node.id]),
        )
        for node in instance.nodes
    ]
    totals = [_total(instance, "this plan", plan)]
    if heuristic is not None:
        totals.append(_total(instance, "heuristic", heuristic))
    title = "Time against memory"
    return Tradeoff(title, nodes, totals, frontier, instance.capacity_bytes)


def _position(options: tuple[Choice, ...], wanted: str) -> int:
    return next(place for place, option in enumerate(options) if option.id == wanted)


def _total(instance: KnapsackInstance, name: str, plan: KnapsackPlan) -> Total:
    return Total(name, evaluate(instance, plan), total_memory(instance, plan))


def lower_hull(instance: KnapsackInstance) -> list[Total]:
    """Choices on the lower hull of time over memory, from the least memory on: every swap pays as much as the next.

    Each node's options have a hull of their own; the swaps along all of them, the steepest first, give the hull of all
    choices together.
    """
    time = memory = 0.0
    swaps: list[tuple[float, float, float]] = []
    for node in instance.nodes:
        hull = convex_hull((option.memory_bytes, option.time) for option in node.options)
        memory, time = memory + hull[0][0], time + hull[0][1]
        for (held, slow), (more_held, fast) in pairwise(hull):
            saved, more = slow - fast, more_held - held
            swaps.append((saved / more, saved, more))
    found = [Total("least memory", time, memory)]
    for _, saved, more in sorted(swaps, key=lambda swap: -swap[0]):
        time, memory = time - saved, memory + more
        found.append(Total("", time, memory))
    return found


def _solve_published(instance: KnapsackInstance) -> KnapsackPlan | None:
    """What Piper's heuristic chooses; ``None``: nothing fits. Its kernel is loaded when a picture is made."""
    from formulations.tmpc_knapsack.paper import solve

    return solve(instance, Limits(), Watch(Limits())).plan
