"""The instance made smaller, with the same optimum: pairs of nodes as tables, costs moved, strategies left out.

All is exact for whole numbers. Costs are cut at a ``cap`` (`Reduced`), so that sums stay within 62 bits and strategies
that the contest marks as impossible (10^18) do not drown the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.modelling.solve_model import check_stop
from formulations.operator_strategies.definition.plan import StrategyPlan
from instances.problems.operator_strategies import OperatorStrategies
from solvers.outcome import Watch

Table = NDArray[np.int64]

#: Costs of a plan sum to less than this, whatever it takes: floats hold all of them.
_MOST = 2**52

#: Sweeps at most, there and back: on the contest's benchmark G the first 20 gain 0.10 million, 60 more 0.01.
_SWEEPS = 20


@dataclass(frozen=True)
class Reduced:
    """What is left of an instance; strategies are counted among those that are ``kept``.

    A plan of kept strategies costs ``base``, and ``node_cost[v][i]`` and ``pair_cost[u, v][i, j]`` (u < v) of what it
    takes, if it takes nothing that costs ``cap`` or more; else the sum is no more than it costs. ``banned[u, v]`` are
    pairs that cost more than a plan that is known. Some optimal plan, or the known one, takes kept strategies alone and
    no banned pair.
    """

    instance: OperatorStrategies
    kept: list[list[int]]
    base: int
    node_cost: list[Table]
    pair_cost: dict[tuple[int, int], Table]
    banned: dict[tuple[int, int], NDArray[np.bool_]]
    cliques: list[list[int]]

    def usage(self, v: int) -> Table:
        """Usages of the kept strategies of a node."""
        return np.array([self.instance.nodes[v].usages[k] for k in self.kept[v]], np.int64)

    def plan(self, chosen: Sequence[int]) -> StrategyPlan:
        """The plan that takes these of the kept strategies."""
        return StrategyPlan(tuple(own[i] for own, i in zip(self.kept, chosen, strict=True)))


def cliques(instance: OperatorStrategies) -> list[list[int]]:
    """The maximal sets of nodes that are live together, by time; each node is in some that follow each other.

    A set is maximal if a node ends before the next one begins; other times have a part of such a set.
    """
    ends = [
        (time, is_start, v)
        for v, node in enumerate(instance.nodes)
        if node.interval[0] < node.interval[1]
        for time, is_start in ((node.interval[0], True), (node.interval[1], False))
    ]
    live: dict[int, None] = {}
    found, grown = [], False
    for _, is_start, v in sorted(ends):  # nodes that end at a time do so before others begin
        if is_start:
            live[v] = None
        else:
            if grown:
                found.append(sorted(live))
            del live[v]
        grown = is_start
    return found


def cap_of(instance: OperatorStrategies) -> int:
    """The largest cost that counts in full."""
    return _MOST // (len(instance.nodes) + len(instance.edges) + 1)


def tables(instance: OperatorStrategies, cap: int) -> tuple[list[Table], dict[tuple[int, int], Table]]:
    """Costs of strategies by node, and of pairs by nodes u < v (edges of the same two are one); cut at cap."""
    nodes = [np.array([min(cost, cap) for cost in node.costs], np.int64) for node in instance.nodes]
    pairs: dict[tuple[int, int], Table] = {}
    for edge in instance.edges:
        u, v = edge.nodes
        table = np.array([min(cost, cap) for cost in edge.costs], np.int64).reshape(len(nodes[u]), len(nodes[v]))
        where, table = ((u, v), table) if u < v else ((v, u), table.T)
        pairs[where] = pairs[where] + table if where in pairs else table
    return nodes, pairs


def reduce(
    instance: OperatorStrategies, watch: Watch, *, known: float | None = None, dominated: bool = True
) -> Reduced:
    """The instance as it is to be modelled; `Stopped` once the watch is.

    ``known``: what a plan costs that is known: what costs more by itself is banned.
    ``dominated``: leave out what another strategy of the node beats whatever its neighbours take. Not where
    requirements name strategies.
    """
    cap = cap_of(instance)
    node_cost, pair_cost = tables(instance, cap)
    kept = [np.arange(len(costs)) for costs in node_cost]
    neighbours: list[list[tuple[int, int]]] = [[] for _ in instance.nodes]
    for pair in pair_cost:
        for v in pair:
            neighbours[v].append(pair)
    if dominated:
        for v, node in enumerate(instance.nodes):
            check_stop(watch)
            usages = np.array(node.usages, np.int64) * (node.interval[0] < node.interval[1])
            around = [(_facing(pair_cost[pair], pair, v), kept[_other(pair, v)]) for pair in neighbours[v]]
            kept[v] = _undominated(kept[v], node_cost[v], usages, around)
    node_cost = [costs[own] for costs, own in zip(node_cost, kept, strict=True)]
    pair_cost = {(u, v): table[np.ix_(kept[u], kept[v])] for (u, v), table in pair_cost.items()}
    base = move_costs(node_cost, pair_cost, watch)
    # Every plan costs the base, so one that takes what costs more than is left costs more than the known one.
    room = np.inf if known is None or known >= cap else known - base
    cheap = [np.flatnonzero(costs <= room) for costs in node_cost]
    pair_cost = {(u, v): table[np.ix_(cheap[u], cheap[v])] for (u, v), table in pair_cost.items()}
    return Reduced(
        instance,
        (own := [each[some].tolist() for each, some in zip(kept, cheap, strict=True)]),
        base,
        [costs[some] for costs, some in zip(node_cost, cheap, strict=True)],
        pair_cost,
        {pair: table > room for pair, table in pair_cost.items()},
        binding(instance, own),
    )


def move_costs(node_cost: list[Table], pair_cost: dict[tuple[int, int], Table], watch: Watch) -> int:
    """Move costs between pairs and nodes, in place, so that every plan costs the same and all pay what is returned.

    A sweep goes from the first node to the last, or back. Each node takes from its pairs what each of its strategies
    pays at least, hands over what all of them pay, and gives equal parts of the rest to the pairs that come.

    Source: reconstructed after Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", 2006,
    whose text was not at hand. Parts are rounded down to whole numbers, so nothing is lost.
    """
    pairs_of: list[list[tuple[int, int]]] = [[] for _ in node_cost]
    for pair in pair_cost:
        for v in pair:
            pairs_of[v].append(pair)
    base = 0
    for sweep in range(_SWEEPS):
        order = range(len(node_cost)) if sweep % 2 == 0 else reversed(range(len(node_cost)))
        for v in order:
            check_stop(watch)
            own = node_cost[v]
            for pair in pairs_of[v]:
                facing = _facing(pair_cost[pair], pair, v)
                least = facing.min(axis=1)
                facing -= least[:, None]
                own += least
            low = int(own.min())
            base, own[:] = base + low, own - low
            ahead = [pair for pair in pairs_of[v] if (_other(pair, v) > v) == (sweep % 2 == 0)]
            part = own // max(len(ahead), len(pairs_of[v]) - len(ahead), 1)
            for pair in ahead:
                facing = _facing(pair_cost[pair], pair, v)
                facing += part[:, None]
                own -= part
    for (u, v), table in pair_cost.items():
        for end, axis in ((u, 1), (v, 0)):
            least = table.min(axis=axis, keepdims=True)
            table -= least
            node_cost[end] += least.ravel()
    for own in node_cost:
        low = int(own.min())
        base, own[:] = base + low, own - low
    return base


def binding(instance: OperatorStrategies, kept: Sequence[Sequence[int]]) -> list[list[int]]:
    """The maximal sets of live nodes that the limit can keep from something."""
    limit = instance.usage_limit
    most = [max(node.usages[k] for k in own) for node, own in zip(instance.nodes, kept, strict=True)]
    return [live for live in cliques(instance) if limit is not None and sum(most[v] for v in live) > limit]


def _other(pair: tuple[int, int], v: int) -> int:
    return pair[0] + pair[1] - v


def _facing(table: Table, pair: tuple[int, int], v: int) -> Table:
    """The table with the strategies of v as its rows."""
    return table if pair[0] == v else table.T


def _undominated(
    kept: NDArray[np.intp], costs: Table, usages: Table, around: list[tuple[Table, NDArray[np.intp]]]
) -> NDArray[np.intp]:
    """Strategies that no other beats: at most the usage, and the cost at most, whatever the neighbours take.

    Source: reconstructed after Goldstein, "Efficient rotamer elimination applied to protein side-chains", 1994, whose
    text was not at hand: the costs with each neighbour are compared at the strategy of the neighbour that is best for
    the one that is to be left out.
    """
    tables = [table[:, others] for table, others in around]
    left = list(kept)
    for a in kept:
        rivals = np.array([b for b in left if b != a and usages[b] <= usages[a]], np.intp)
        if not len(rivals):
            continue
        worst = costs[rivals] - costs[a]
        for table in tables:
            worst = worst + (table[rivals] - table[a]).max(axis=1)
        if (worst <= 0).any():
            left.remove(a)
    return np.array(left, np.intp)
