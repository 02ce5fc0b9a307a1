"""Brute force and random instances for operator strategies; shares no code with the room."""

import itertools
import random
from collections.abc import Iterator

from instances.problems.operator_strategies import IMPOSSIBLE, OperatorStrategies, StrategyEdge, StrategyNode


def optimum(instance: OperatorStrategies) -> float | None:
    """Least cost over all choices within the limit at every single time; ``None`` if none is."""
    best = None
    first = min((node.interval[0] for node in instance.nodes), default=0)
    last = max((node.interval[1] for node in instance.nodes), default=0)
    for picked in itertools.product(*(range(len(node.costs)) for node in instance.nodes)):
        cost = sum(node.costs[k] for node, k in zip(instance.nodes, picked, strict=True))
        for edge in instance.edges:
            u, v = edge.nodes
            rows = list(zip(*[iter(edge.costs)] * len(instance.nodes[v].costs), strict=True))
            cost += rows[picked[u]][picked[v]]
        used = [0] * (last - first)
        for node, k in zip(instance.nodes, picked, strict=True):
            for time in range(*node.interval):
                used[time - first] += node.usages[k]
        if instance.usage_limit is None or max(used, default=0) <= instance.usage_limit:
            best = cost if best is None else min(best, cost)
    return None if best is None else float(best)


def plans(instance: OperatorStrategies) -> Iterator[dict[str, list[int]]]:
    """Every choice, in JSON form; what breaks the limit as well."""
    for picked in itertools.product(*(range(len(node.costs)) for node in instance.nodes)):
        yield {"strategy_of": list(picked)}


def random_instance(rng: random.Random, most_nodes: int = 6) -> OperatorStrategies:
    """Up to ``most_nodes`` nodes of up to four strategies: ties, empty intervals, edges twice, impossible pairs.

    The limit is what the smallest usages need, one less, what some others need at one time, or there is none.
    """
    most, size = rng.choice([2, 9, 10**6, 10**11]), rng.choice([2, 9, 2**37])
    nodes = []
    for _ in range(rng.randint(1, most_nodes)):
        count, start = rng.randint(1, 4 if most_nodes <= 6 else 2), rng.randint(0, 5)
        costs, usages = (tuple(rng.randint(0, each) for _ in range(count)) for each in (most, size))
        nodes.append(StrategyNode((start, start + rng.randint(0, 4)), costs, usages))
    edges = []
    for _ in range(rng.randint(0, 2 * len(nodes)) if len(nodes) > 1 else 0):
        u, v = rng.sample(range(len(nodes)), 2)
        impossible = rng.choice([0.0, 0.0, 0.2])
        pairs = (
            IMPOSSIBLE if rng.random() < impossible else rng.randint(0, most)
            for _ in range(len(nodes[u].costs) * len(nodes[v].costs))
        )
        edges.append(StrategyEdge((u, v), tuple(pairs)))
    times = {node.interval[0] for node in nodes if node.interval[0] < node.interval[1]}
    live = [[node for node in nodes if node.interval[0] <= time < node.interval[1]] for time in times]
    least = max((sum(min(node.usages) for node in own) for own in live), default=0)
    limit = rng.choice(
        [None, max(0, least - 1), least, max((sum(rng.choice(n.usages) for n in own) for own in live), default=0)]
    )
    return OperatorStrategies("random", tuple(nodes), tuple(edges), limit)
