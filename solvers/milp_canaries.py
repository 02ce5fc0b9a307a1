"""Three small models of known outcome, for `solvers.milp` and whatever solver it runs."""

from __future__ import annotations

import pyomo.environ as pyo

from solvers import milp
from solvers.canary import Canary
from solvers.outcome import Limits, Run


def _item_choice() -> pyo.ConcreteModel:
    model = pyo.ConcreteModel()
    model.taken = pyo.Var(range(4), domain=pyo.Binary)
    model.room = pyo.Constraint(expr=pyo.sum_product(dict(enumerate([5, 4, 3, 2])), model.taken) <= 9)
    model.worth = pyo.Objective(expr=pyo.sum_product(dict(enumerate([10, 7, 4, 3])), model.taken), sense=pyo.maximize)
    return model


def _assignment() -> pyo.ConcreteModel:
    costs = {(0, 0): 4, (0, 1): 2, (0, 2): 8, (1, 0): 4, (1, 1): 3, (1, 2): 7, (2, 0): 3, (2, 1): 1, (2, 2): 6}
    model = pyo.ConcreteModel()
    model.given = pyo.Var(list(costs), domain=pyo.Binary)
    model.row = pyo.Constraint(range(3), rule=lambda m, row: sum(m.given[row, other] for other in range(3)) == 1)
    model.column = pyo.Constraint(
        range(3), rule=lambda m, column: sum(m.given[other, column] for other in range(3)) == 1
    )
    model.cost = pyo.Objective(expr=pyo.sum_product(costs, model.given))
    return model


def _pigeons() -> pyo.ConcreteModel:
    model = pyo.ConcreteModel()
    model.sits = pyo.Var(range(4), range(3), domain=pyo.Binary)
    model.housed = pyo.Constraint(range(4), rule=lambda m, pigeon: sum(m.sits[pigeon, hole] for hole in range(3)) == 1)
    model.alone = pyo.Constraint(range(3), rule=lambda m, hole: sum(m.sits[pigeon, hole] for pigeon in range(4)) <= 1)
    model.nothing = pyo.Objective(expr=0.0)
    return model


def _run(model: pyo.ConcreteModel, limits: Limits) -> Run:
    return milp.run(model, limits, examined=True)


#: ``None`` is infeasible.
CANARIES = (
    Canary("item choice", 17.0, lambda limits: _run(_item_choice(), limits)),
    Canary("assignment", 12.0, lambda limits: _run(_assignment(), limits)),
    Canary("four pigeons in three holes", None, lambda limits: _run(_pigeons(), limits)),
)
