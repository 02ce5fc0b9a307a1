"""Operator strategies for CP-SAT: a Boolean for each strategy, and one for each pair that costs something."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements
from formulations.operator_strategies.definition.plan import StrategyPlan
from formulations.operator_strategies.definition.quantities import VOCABULARY
from formulations.operator_strategies.models import decisions
from formulations.operator_strategies.models.decisions import StrategyModel, known_cost
from formulations.operator_strategies.reduction import Reduced, reduce
from instances.problems.operator_strategies import OperatorStrategies
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch
from solvers.scaling import size_scale


def build(data: Reduced) -> cpsat.SpokenModel:
    """The model of all choices of kept strategies."""
    model = cpsat.SpokenModel()
    counts = [len(own) for own in data.kept]
    costly = {pair: (table > 0) & ~data.banned[pair] for pair, table in data.pair_cost.items()}
    # fmt: off
    takes = model.booleans("takes", [(v, i) for v, count in enumerate(counts) for i in range(count)],
        "takes[v,i]: node v takes the i-th of the strategies that are left of it")
    both = model.booleans("both", _places(costly),
        "both[u,v,i,j]: nodes u and v take these strategies, which cost something together")
    model.rows("one_strategy", range(len(counts)),
        lambda v: model.add_exactly_one(takes[v, i] for i in range(counts[v])),
        "a node takes exactly one strategy: sum over i of takes[v,i] = 1 [IOPDDL, Problem Description]")
    model.rows("pair", [*both, *_places(data.banned)],
        lambda u, v, i, j: model.add_bool_or([~takes[u, i], ~takes[v, j], *([both[u, v, i, j]] if (u, v, i, j) in both
                                                                          else [])]),
        "two strategies that are both taken are paid for: both[u,v,i,j] if takes[u,i] and takes[v,j]; not both taken "
        "where they cost more than a known plan")

    def paid(u: int, v: int, i: int, *, turned: bool) -> Any:
        """What is paid for of a strategy's pairs, and what of its neighbour goes with it for nothing."""
        end, pair, table = (v, (u, v), data.pair_cost[u, v]) if not turned else (u, (u, v), data.pair_cost[u, v].T)
        row, banned = table[i], (data.banned[pair].T if turned else data.banned[pair])[i]
        free = sum(takes[end, int(j)] for j in np.flatnonzero((row == 0) & ~banned))
        named = (both[(u, v, int(j), i) if turned else (u, v, i, int(j))] for j in np.flatnonzero((row > 0) & ~banned))
        return free + sum(named) >= takes[u if not turned else v, i]

    # Implied: CP-SAT's linear relaxation of the rows above alone pays for no pair.
    model.rows("paid", [(u, v, i) for (u, v), own in costly.items() for i in range(counts[u]) if own[i].any()],
        lambda u, v, i: paid(u, v, i, turned=False),
        "a strategy of u goes with one of v, paid for or free: implied")
    model.rows("paid_back", [(u, v, j) for (u, v), own in costly.items() for j in range(counts[v]) if own[:, j].any()],
        lambda u, v, j: paid(u, v, j, turned=True),
        "a strategy of v goes with one of u, paid for or free: implied")
    limit = data.instance.usage_limit or 0
    most = sum(max(node.usages) for node in data.instance.nodes)
    scale = size_scale((), float(limit), float(max(most, limit)))  # whole units, unless 56 bits are too few
    model.rows("memory", range(len(data.cliques)),
        lambda place: cpsat.weighted_sum(
            (scale.floor(int(usage)), takes[v, i])
            for v in data.cliques[place] for i, usage in enumerate(data.usage(v))) <= scale.floor(limit),
        "nodes that are live together keep the limit: sum over v, i of usage(v,i) takes[v,i] <= limit, for each "
        "maximal set of live nodes [IOPDDL, Problem Description]")
    model.says("forbidden", "what uses more than the limit, which only rounding admitted, is cut off")
    # Cost of nodes and edges, above what every plan costs.
    model.minimize(
        cpsat.weighted_sum((int(data.node_cost[v][i]), variable) for (v, i), variable in takes.items())
        + cpsat.weighted_sum((int(data.pair_cost[u, v][i, j]), variable) for (u, v, i, j), variable in both.items()))
    # fmt: on
    return model


def _places(marked: Mapping[tuple[int, int], NDArray[np.bool_]]) -> list[tuple[int, int, int, int]]:
    """Where pairs are marked: u, v and a strategy of each."""
    return [(u, v, int(i), int(j)) for (u, v), table in marked.items() for i, j in np.argwhere(table)]


@dataclass
class Model(StrategyModel, cpsat.Runnable):
    """The objective is cost above ``base``, in whole numbers."""

    model: cpsat.SpokenModel
    data: Reduced
    weighted_sum = staticmethod(cpsat.weighted_sum)

    def __post_init__(self) -> None:
        self.takes = self.model.variables["takes"]

    def extra_cost(self, bound: float) -> float:
        """Costs are whole, so a bound may be rounded up."""
        return float(cpsat.whole(bound))


def model_of(instance: OperatorStrategies, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance, with its requirements; without dominated strategies unless these or ``complete``."""
    watch = watch or Watch()
    with stops_with(watch):
        known, keeps_all = known_cost(watch, complete=complete), complete or bool(instance.requirements)
        data = reduce(instance, watch, known=known, dominated=not keeps_all)
        return add_requirements(Model(build(data), data), VOCABULARY, instance)


def solve(instance: OperatorStrategies, limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """The best choice, in whole numbers throughout."""
    return decisions.solve(model_of, instance, limits, watch)
