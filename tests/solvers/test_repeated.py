"""Models that are run again and again: the bound is what any duals prove."""

import random

import numpy as np
import pyomo.environ as pyo
import pytest

from solvers.milp import backend as milp
from solvers.milp.reusable_lp import Repeated
from solvers.outcome import Limits, Watch


def covering(seed: int) -> pyo.ConcreteModel:
    """A small linear model with rows of all three kinds, fractional in general."""
    rng = random.Random(seed)
    model = pyo.ConcreteModel()
    model.chosen = pyo.Var(range(6), domain=pyo.Binary)

    def total() -> list[tuple[float, object]]:
        return [(rng.randint(1, 9), model.chosen[each]) for each in range(6)]

    model.at_least = pyo.Constraint(expr=milp.weighted_sum(total()) >= 11)
    model.at_most = pyo.Constraint(expr=milp.weighted_sum(total()) <= 20)
    model.exactly = pyo.Constraint(expr=milp.weighted_sum((1.0, model.chosen[each]) for each in range(6)) == 3)
    model.cost = pyo.Objective(expr=milp.weighted_sum(total()) + 5)
    return model


def test_the_bound_is_the_optimum_of_the_relaxation_again_and_again() -> None:
    limits = Limits()
    solved = 0
    for seed in range(20):
        model = covering(seed)
        repeated = Repeated(model, limits, Watch())
        for left_out in ([], [0], [0, 1], [3], []):
            found = repeated.run([model.chosen[each] for each in left_out])
            if found.objective is None:
                continue
            solved += 1
            assert found.bound == pytest.approx(found.objective, abs=1e-9)
            assert all(found.values[model.chosen[each]] == 0 for each in left_out)
    assert solved > 40


def test_wrong_duals_prove_less_and_never_too_much() -> None:
    weaker = 0
    for seed in range(20):
        model = covering(seed)
        repeated = Repeated(model, Limits(), Watch())
        found = repeated.run([])
        if found.objective is None:
            continue
        duals = np.array(repeated.highs.getSolution().row_dual)
        rng = np.random.default_rng(seed)
        for scale in (0.1, 1.0, 10.0):
            proved = repeated._dual_bound(duals + scale * rng.standard_normal(len(duals)), repeated.upper)
            assert proved <= found.objective + 1e-9
            weaker += proved < found.objective - 1e-3
    assert weaker > 20
