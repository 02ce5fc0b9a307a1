"""Three small models of known outcome, for `solvers.cpsat.backend`."""

from ortools.sat.python import cp_model

from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Run
from solvers.trust.known_models import Canary


def _item_choice() -> cp_model.CpModel:
    model = cp_model.CpModel()
    taken = [model.new_bool_var(f"taken_{item}") for item in range(4)]
    model.add(cp_model.LinearExpr.weighted_sum(taken, [5, 4, 3, 2]) <= 9)
    model.maximize(cp_model.LinearExpr.weighted_sum(taken, [10, 7, 4, 3]))
    return model


def _assignment() -> cp_model.CpModel:
    costs = [[4, 2, 8], [4, 3, 7], [3, 1, 6]]
    model = cp_model.CpModel()
    given = [[model.new_bool_var(f"given[{i},{j}]") for j in range(3)] for i in range(3)]
    for index in range(3):
        model.add_exactly_one(given[index])
        model.add_exactly_one([row[index] for row in given])
    pairs = [(given[row][column], costs[row][column]) for row in range(3) for column in range(3)]
    model.minimize(sum(cost * variable for variable, cost in pairs))
    return model


def _pigeons() -> cp_model.CpModel:
    model = cp_model.CpModel()
    holes = [model.new_int_var(0, 2, f"hole[{pigeon}]") for pigeon in range(4)]
    model.add_all_different(holes)
    return model


def _run(model: cp_model.CpModel, limits: Limits) -> Run:
    return cpsat.run(model, limits, examined=True)


#: ``None`` is infeasible.
CANARIES = (
    Canary("item choice", 17.0, lambda limits: _run(_item_choice(), limits)),
    Canary("assignment", 12.0, lambda limits: _run(_assignment(), limits)),
    Canary("four pigeons in three holes", None, lambda limits: _run(_pigeons(), limits)),
)
