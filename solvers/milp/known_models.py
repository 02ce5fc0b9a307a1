"""Small models of known outcome, for `solvers.milp.backend` and whatever solver it runs.

Beside those of whole numbers alone there are the shapes of this program's own models, with continuous variables: a
solver that rounds these to whole numbers, or numbers to a grid, solves the first kind and is wrong about the second.
"""

import math

import pyomo.environ as pyo

from solvers.milp import backend as milp
from solvers.outcome import Limits, Run
from solvers.trust.known_models import Canary


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


def _options() -> pyo.ConcreteModel:
    """One option for each of four layers: their times, and sizes that have to fit. CBC's preprocessing finds 1270."""
    times = {(0, 0): 523, (0, 1): 270, (0, 2): 157, (1, 0): 83, (2, 1): 493, (2, 2): 885, (3, 1): 1000}
    sizes = {(0, 0): 20, (0, 1): 14, (0, 2): 221, (0, 3): 151, (1, 0): 100, (1, 1): 200}
    sizes |= {(2, 0): 50, (2, 1): 219, (2, 2): 178, (3, 0): 176, (3, 1): 97}
    model = pyo.ConcreteModel()
    model.chosen = pyo.Var(list(sizes), domain=pyo.Binary)
    model.one = pyo.Constraint(
        range(4), rule=lambda m, layer: sum(m.chosen[each] for each in sizes if each[0] == layer) == 1
    )
    model.memory = pyo.Constraint(expr=pyo.sum_product(sizes, model.chosen) <= 367)
    model.time = pyo.Objective(expr=sum(times[each] * model.chosen[each] for each in times))
    return model


def _slowest_device(unit: float) -> pyo.ConcreteModel:
    """Four loads on two devices, the slower of which counts: 3.25 and 3 at best."""
    loads = [1.25 * unit, 0.75 * unit, 2.5 * unit, 1.75 * unit]
    model = pyo.ConcreteModel()
    model.on_second = pyo.Var(range(4), domain=pyo.Binary)
    model.slowest = pyo.Var(bounds=(0.0, sum(loads)))
    model.second = pyo.Constraint(expr=sum(load * model.on_second[n] for n, load in enumerate(loads)) <= model.slowest)
    model.first = pyo.Constraint(
        expr=sum(load * (1 - model.on_second[n]) for n, load in enumerate(loads)) <= model.slowest
    )
    model.time = pyo.Objective(expr=model.slowest)
    return model


def _turns(unit: float, end: float) -> pyo.ConcreteModel:
    """Passes of 1.25, 1.5 and 2.75 in turns on one device until an end, as early as they can: the shortest first."""
    seconds, end = [2.75 * unit, 1.25 * unit, 1.5 * unit], end * unit
    pairs = [(first, second) for first in range(3) for second in range(first)]
    model = pyo.ConcreteModel()
    model.start = pyo.Var(range(3), bounds=lambda _, each: (0.0, end - seconds[each]))
    model.is_first = pyo.Var(pairs, domain=pyo.Binary)
    model.waits = pyo.Constraint(
        pairs,
        rule=lambda m, one, other: (
            m.start[other] >= m.start[one] + seconds[one] - 9 * unit * (1 - m.is_first[one, other])
        ),
    )
    model.or_else = pyo.Constraint(
        pairs,
        rule=lambda m, one, other: m.start[one] >= m.start[other] + seconds[other] - 9 * unit * m.is_first[one, other],
    )
    model.ends = pyo.Objective(expr=sum(model.start[each] + seconds[each] for each in range(3)))
    return model


def _run(model: pyo.ConcreteModel, limits: Limits) -> Run:
    return milp.run(model, limits, examined=True)


#: ``None`` is infeasible.
CANARIES = (
    Canary("item choice", 17.0, lambda limits: _run(_item_choice(), limits)),
    Canary("assignment", 12.0, lambda limits: _run(_assignment(), limits)),
    Canary("four pigeons in three holes", None, lambda limits: _run(_pigeons(), limits)),
    Canary("options within a memory", 353.0, lambda limits: _run(_options(), limits)),
    Canary("slowest of two devices", 3.25 / math.e, lambda limits: _run(_slowest_device(1 / math.e), limits)),
    Canary(
        "slowest of two devices in large units",
        325 * math.pi,
        lambda limits: _run(_slowest_device(100 * math.pi), limits),
    ),
    Canary("turns on a device", 9.5, lambda limits: _run(_turns(1.0, 5.5), limits)),
    Canary("turns that end too late", None, lambda limits: _run(_turns(math.e, 5.25), limits)),
)
