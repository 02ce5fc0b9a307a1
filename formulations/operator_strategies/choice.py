"""A choice of strategies that moves: what each strategy of a node would cost beside its neighbours, and what fits.

Costs are cut at the cap of `reduction`; whoever ends with a choice evaluates it by the definition.
"""

import numpy as np
from numpy.typing import NDArray

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.operator_strategies.definition.plan import StrategyPlan
from formulations.operator_strategies.reduction import Table, cap_of, cliques, tables
from instances.problems.operator_strategies import OperatorStrategies


class Choice:
    """``of[v]``: the strategy of node v; at first that of least usage, so that some choice fits if this one does."""

    def __init__(self, instance: OperatorStrategies) -> None:
        live = cliques(instance)
        self.node_cost, self.pair_cost = tables(instance, cap_of(instance))
        self.usages: list[Table] = [np.array(node.usages, np.int64) for node in instance.nodes]
        self.of = [int(usages.argmin()) for usages in self.usages]
        self.limit = np.iinfo(np.int64).max if instance.usage_limit is None else instance.usage_limit
        self._used: Table = np.array([sum(int(self.usages[v][self.of[v]]) for v in nodes) for nodes in live], np.int64)
        #: Each node is in some maximal sets of live nodes that follow each other.
        self._sets = [slice(0, 0)] * len(instance.nodes)
        for place, nodes in enumerate(live):
            for v in nodes:
                self._sets[v] = slice(self._sets[v].start if self._sets[v].stop else place, place + 1)
        self.neighbours: list[list[tuple[int, Table]]] = [[] for _ in instance.nodes]
        for (u, v), table in self.pair_cost.items():
            self.neighbours[u].append((v, table))
            self.neighbours[v].append((u, np.ascontiguousarray(table.T)))

    @property
    def peak(self) -> int:
        """The largest usage at any time."""
        return int(self._used.max(initial=0))

    @property
    def plan(self) -> StrategyPlan:
        """The choice as a plan."""
        return StrategyPlan(tuple(self.of))

    def costs(self, v: int, beside: int | None = None) -> Table:
        """What each strategy of a node costs with its neighbours, but for one that is left out."""
        found = self.node_cost[v]
        for u, table in self.neighbours[v]:
            if u != beside:
                found = found + table[:, self.of[u]]
        return found

    def fits(self, v: int) -> NDArray[np.bool_]:
        """Whether each strategy of a node keeps the limit beside all others."""
        used = self._used[self._sets[v]]
        others = int(used.max()) - int(self.usages[v][self.of[v]]) if len(used) else None
        if others is None:
            return np.ones(len(self.usages[v]), np.bool_)
        return np.asarray(self.usages[v] <= self.limit - others)

    def move(self, v: int, k: int) -> None:
        """Let a node take a strategy."""
        self._used[self._sets[v]] += self.usages[v][k] - self.usages[v][self.of[v]]
        self.of[v] = k


def infeasible_answer(instance: OperatorStrategies, choice: Choice) -> Answer[StrategyPlan] | None:
    """The answer to an instance whose least usages are too much, with what would help; ``None`` if they are not."""
    if instance.usage_limit is None or choice.peak <= instance.usage_limit:
        return None
    words = f"the least usages of live nodes sum to {choice.peak}; expected --usage-limit of at least that"
    return infeasible_by_counting(words)
