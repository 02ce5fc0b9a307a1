"""Operator strategies as a MILP (Pyomo, HiGHS): Alpa's linearised edges, on all strategies, dominated ones as well.

Source: reconstructed after Alpa (Zheng et al., 2022), whose text was not at hand: a variable for each pair of
strategies of an edge, whose sums are those of its ends.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements
from formulations.operator_strategies.definition.plan import StrategyPlan
from formulations.operator_strategies.definition.quantities import VOCABULARY
from formulations.operator_strategies.models import decisions
from formulations.operator_strategies.models.decisions import StrategyModel, known_cost
from formulations.operator_strategies.reduction import Reduced, reduce
from instances.problems.operator_strategies import OperatorStrategies
from solvers.build_stop import stops_with
from solvers.milp import backend as milp
from solvers.outcome import Limits, Watch


def build(data: Reduced, unit: float) -> Any:
    """The model of all choices of kept strategies, costs in parts of ``unit``."""
    counts = [len(own) for own in data.kept]
    joined = {pair: table for pair, table in data.pair_cost.items() if table.any()}  # others cost nothing
    allowed = [(*pair, int(i), int(j)) for pair in joined for i, j in np.argwhere(~data.banned[pair])]
    by_row: dict[tuple[int, int, int], list[tuple[int, ...]]] = {}
    by_column: dict[tuple[int, int, int], list[tuple[int, ...]]] = {}
    for u, v in joined:
        by_row.update({(u, v, i): [] for i in range(counts[u])})
        by_column.update({(u, v, j): [] for j in range(counts[v])})
    for u, v, i, j in allowed:
        by_row[u, v, i].append((u, v, i, j))
        by_column[u, v, j].append((u, v, i, j))
    model = pyo.ConcreteModel()
    # fmt: off
    model.takes = pyo.Var([(v, i) for v, count in enumerate(counts) for i in range(count)], domain=pyo.Binary,
        doc="takes[v,i]: node v takes the i-th of the strategies that are left of it")
    model.both = pyo.Var(allowed, bounds=(0, 1), doc="both[u,v,i,j]: nodes u and v take these strategies")
    model.one_strategy = pyo.Constraint(range(len(counts)),
        rule=lambda m, v: milp.weighted_sum((1.0, m.takes[v, i]) for i in range(counts[v])) == 1,
        doc="a node takes exactly one strategy: sum over i of takes[v,i] = 1")
    model.of_first = pyo.Constraint(list(by_row),
        rule=lambda m, u, v, i: (
            milp.weighted_sum([*((1.0, m.both[each]) for each in by_row[u, v, i]), (-1.0, m.takes[u, i])]) == 0
        ),
        doc="a pair has the strategy that its first node takes: sum over j of both[u,v,i,j] = takes[u,i]")
    model.of_second = pyo.Constraint(list(by_column),
        rule=lambda m, u, v, j: (
            milp.weighted_sum([*((1.0, m.both[each]) for each in by_column[u, v, j]), (-1.0, m.takes[v, j])]) == 0
        ),
        doc="and that of its second: sum over i of both[u,v,i,j] = takes[v,j]")
    limit = data.instance.usage_limit or 0
    share = milp.NATURAL / max(limit, 1)
    model.memory = pyo.Constraint(range(len(data.cliques)),
        rule=lambda m, place: (
            milp.weighted_sum(
                # What alone exceeds the limit is kept out by twice the limit as well.
                (min(int(usage), 2 * limit + 1) * share, m.takes[v, i])
                for v in data.cliques[place]
                for i, usage in enumerate(data.usage(v))
            )
            <= limit * share
        ),
        doc="nodes that are live together keep the limit: sum over v, i of usage(v,i) takes[v,i] <= limit")
    model.forbidden = pyo.Constraint(pyo.Any,
        doc="what uses more than the limit, which tolerances admitted, is cut off")
    # fmt: on
    nodes = ((milp.in_units(float(data.node_cost[v][i]), unit), model.takes[v, i]) for v, i in model.takes)
    pairs = ((milp.in_units(float(joined[u, v][i, j]), unit), model.both[u, v, i, j]) for u, v, i, j in allowed)
    model.cost = pyo.Objective(expr=milp.weighted_sum([*nodes, *pairs]))
    return model


@dataclass
class Model(StrategyModel, milp.Runnable):
    """The objective is cost above ``base``, in parts of ``unit``."""

    model: Any
    data: Reduced
    unit: float
    weighted_sum = staticmethod(milp.weighted_sum)

    def __post_init__(self) -> None:
        self.takes = dict(self.model.takes.items())

    def extra_cost(self, bound: float) -> float:
        """A bound less HiGHS's tolerance."""
        return milp.proved_bound(bound) * self.unit * (1 - 1e-12)


def model_of(instance: OperatorStrategies, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance, with its requirements; a known plan sets the unit of costs, unless ``complete``."""
    watch = watch or Watch()
    with stops_with(watch):
        known = known_cost(watch, complete=complete)
        data = reduce(instance, watch, known=known, dominated=False)
        costs = [*data.node_cost, *data.pair_cost.values()]
        largest = max((int(table.max(initial=0)) for table in costs), default=0)
        # The largest cost that counts: no better plan takes more than a known one costs above the base.
        most = largest if known is None else min(largest, int(known) - data.base)
        unit = most / milp.NATURAL or 1.0
        return add_requirements(Model(build(data, unit), data, unit), VOCABULARY, instance)


def solve(instance: OperatorStrategies, limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """The best choice, with a bound less what HiGHS's tolerances may add to it (`milp.proved_bound`)."""
    return decisions.solve(model_of, instance, limits, watch)
