"""Operator strategies: one strategy for each operator, under a limit on memory at every time (nouns only).

Source: the ASPLOS 2025 / EuroSys 2025 contest on intra-operator parallelism for distributed deep learning (IOPDDL),
"Problem Description"; numbers are the contest's, whole and without units.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from instances.errors import InstanceError, expect
from instances.exchange import in_files
from instances.rules import Identifier, Index, Recorded

#: What the contest's files write where a strategy, or a pair of them, is impossible; its definition adds it up.
IMPOSSIBLE = 10**18
#: The largest usages of all nodes together; more could not be added up in 64 bits.
MOST_USED = 2**62


@dataclass(frozen=True)
class StrategyNode:
    """An operator: it is live at times ``interval[0]`` to ``interval[1] - 1``, and has a cost and usage by strategy."""

    interval: tuple[Index, Index]
    costs: tuple[Index, ...]
    usages: tuple[Index, ...]


@dataclass(frozen=True)
class StrategyEdge:
    """Two operators, and what each pair of their strategies costs: all of the second for each of the first."""

    nodes: tuple[Index, Index]
    costs: tuple[Index, ...]


@in_files(
    *("name", "usage_limit?", "nodes", "edges"),
    problem="operator_strategies",
    absent={"name": "strategies"},
    reader="instances.readers.iopddl_json:read",
)
@dataclass(frozen=True)
class OperatorStrategies(Recorded):
    """Nodes, edges (several may join the same two), and the usage of all live nodes at most (``None``: no limit)."""

    name: Identifier
    nodes: tuple[StrategyNode, ...]
    edges: tuple[StrategyEdge, ...] = ()
    usage_limit: Index | None = None


def check(instance: OperatorStrategies, where: str) -> None:
    """Rules between fields; no node at all is allowed.

    Raises
    ------
    InstanceError
        A node without strategies, with more or fewer usages than costs, or that ends before it begins; usages that
        are too large together; an edge of a node that is not there, of a node with itself, or without a cost for
        each pair of strategies.
    """
    for place, node in enumerate(instance.nodes):
        at = f"nodes[{place}]"
        if not node.costs:
            raise InstanceError.at(where, f"{at}.costs", [], "at least one")
        expect(len(node.usages) == len(node.costs), where, f"len({at}.usages)", len(node.usages), f"{len(node.costs)}")
        expect(node.interval[0] <= node.interval[1], where, f"{at}.interval", list(node.interval), "a start and an end")
    largest = sum(max(node.usages) for node in instance.nodes)
    expect(largest <= MOST_USED, where, "usages", largest, f"largest ones that sum to at most {MOST_USED}")
    for place, edge in enumerate(instance.edges):
        (u, v), at = edge.nodes, f"edges[{place}]"
        known = len(instance.nodes)
        expect(max(u, v) < known and u != v, where, f"{at}.nodes", [u, v], f"two nodes of {known}, from 0 on")
        pairs = len(instance.nodes[u].costs) * len(instance.nodes[v].costs)
        expect(len(edge.costs) == pairs, where, f"len({at}.costs)", len(edge.costs), f"{pairs}")


def generate(
    num_nodes: int = 20, num_strategies: int = 4, *, tightness: float = 0.3, seed: int = 0
) -> OperatorStrategies:
    """A random graph like a network's that is feasible; the same arguments give the same instance.

    Each node follows one or two of the last few; strategies that need less memory cost more. An edge costs
    nothing where both ends have the same layout, one of three, and some pairs are impossible.

    Parameters
    ----------
    num_nodes, num_strategies
        Size; each node has 1 to ``num_strategies`` strategies.
    tightness
        The limit: from 0 (what the smallest strategies need at most) to 1 (what the largest do).

    Raises
    ------
    ValueError
        A number out of its range.
    """
    if num_nodes < 0 or num_strategies < 1 or not 0 <= tightness <= 1:
        raise ValueError("expected num_nodes >= 0, num_strategies >= 1 and 0 <= tightness <= 1")
    rng = random.Random(f"{num_nodes} {num_strategies} {seed}")
    nodes, layouts, edges = [], [], []
    for place in range(num_nodes):
        size, count = rng.randint(1, 64), rng.randint(1, num_strategies)
        shares = [rng.randint(0, 3) for _ in range(count)]
        usages = tuple(size << (3 - share) for share in shares)
        costs = tuple(size * share + rng.randint(0, 16) for share in shares)
        nodes.append(StrategyNode((place, place + rng.randint(0, 8)), costs, usages))
        layouts.append([rng.randrange(3) for _ in range(count)])
        for before in sorted(rng.sample(range(max(0, place - 6), place), min(place, rng.randint(1, 2)))):
            moved = [[0 if a == b else rng.randint(1, size) for b in layouts[place]] for a in layouts[before]]
            pairs = [IMPOSSIBLE if each and rng.random() < 0.1 else each for row in moved for each in row]
            pairs[0] = min(pairs[0], size)  # the first strategies of all nodes together are possible
            edges.append(StrategyEdge((before, place), tuple(pairs)))
    least, most = (_peak(nodes, pick) for pick in (min, max))
    limit = max(round(least + tightness * (most - least)), _peak(nodes, lambda usages: usages[0]))
    return OperatorStrategies(f"strategies-{num_nodes}x{num_strategies}-{seed}", tuple(nodes), tuple(edges), limit)


def _peak(nodes: Sequence[StrategyNode], pick: Callable[[tuple[int, ...]], int]) -> int:
    """The largest usage at any time where each node has the one that ``pick`` takes of its usages."""
    changes = [change for node in nodes for change in ((node.interval[0], pick(node.usages)),
                                                       (node.interval[1], -pick(node.usages)))]  # fmt: skip
    return max(accumulate((change for _, change in sorted(changes)), initial=0))
