"""HiGHS proves every model with integers twice: what two runs prove, and that neither alone proves anything."""

import random
from typing import Any

import highspy
import numpy as np
import pyomo.environ as pyo
import pytest

from solvers.external.own_highs import pack, unpack
from solvers.milp import backend as milp
from solvers.milp.cutting_planes import Rows
from solvers.milp.reusable_lp import Repeated
from solvers.milp.translation import translate
from solvers.outcome import OPTIMAL_GAP, Limits, Run, Stop, Watch, relative_gap
from solvers.trust import prove_twice
from solvers.trust.prove_twice import agreement, alone, reorder


def items() -> pyo.ConcreteModel:
    """Of these the two largest that fit are worth 17."""
    model = pyo.ConcreteModel()
    model.taken = pyo.Var(range(4), domain=pyo.Binary)
    model.room = pyo.Constraint(expr=pyo.sum_product(dict(enumerate([5, 4, 3, 2])), model.taken) <= 9)
    model.one = pyo.Constraint(expr=model.taken[2] + model.taken[3] <= 1)
    model.worth = pyo.Objective(expr=pyo.sum_product(dict(enumerate([10, 7, 4, 3])), model.taken), sense=pyo.maximize)
    return model


def test_another_order_is_the_same_model() -> None:
    highs, _, _, _ = translate(items())
    for seed in range(20):
        lp, moved = reorder(highs.getLp(), seed)
        again = highspy.Highs()
        again.setOptionValue("output_flag", False)
        again.passModel(unpack(pack(lp)))
        assert sorted(moved) == list(range(4))
        costs, moved_costs = list(highs.getLp().col_cost_), list(again.getLp().col_cost_)
        assert [moved_costs[place] for place in moved] == costs
        again.run()
        assert again.getInfo().objective_function_value == pytest.approx(17)
        values = again.getSolution().col_value
        assert [round(values[place]) for place in moved] == [1, 1, 0, 0]


def test_a_translation_ends_once_the_watch_is_stopped() -> None:
    watch = Watch()
    assert len(translate(items(), watch)[3]) == 2
    watch.stop(Stop.INTERRUPTED)
    highs, columns, has_objective, rows = translate(items(), watch)
    assert not rows and highs.getNumRow() == 0
    assert len(columns) == 4 and has_objective


@pytest.mark.parametrize("rows", [0, 1])
def test_a_model_whose_rows_have_no_variables(rows: int) -> None:
    model = items()
    del model.room, model.one
    model.fixed = pyo.Var(domain=pyo.Binary)
    model.fixed.fix(1)
    if rows:
        model.one = pyo.Constraint(expr=model.fixed <= 1)
    found = milp.run(model, Limits())
    assert (found.objective, found.stop) == (24.0, Stop.PROVED)


def test_what_two_runs_prove() -> None:
    found = Run(Stop.PROVED, values="first", objective=5.0, bound=5.0)
    lower = Run(Stop.PROVED, values="second", objective=4.0, bound=4.0)
    none = Run(Stop.PROVED, infeasible=True)
    late = Run(Stop.TIME_LIMIT, values="second", objective=5.0, bound=3.0)
    assert agreement(found, found, is_minimum=True) == found
    assert agreement(found, lower, is_minimum=True) == lower
    other = agreement(lower, found, is_minimum=True)
    assert (other.values, other.bound, other.stop) == ("second", 4.0, Stop.PROVED)
    # Each has closed its own gap; the bound that both stand for leaves one.
    weak = agreement(found, Run(Stop.PROVED, values="second", objective=5.0, bound=4.5), is_minimum=True)
    assert (weak.values, weak.bound, weak.stop) == ("first", 4.5, Stop.COMPLETED)
    assert agreement(found, lower, is_minimum=False).bound == 5.0
    assert agreement(none, none, is_minimum=True).infeasible
    for first, second in ((none, found), (found, none)):
        both = agreement(first, second, is_minimum=True)
        assert (both.infeasible, both.bound, both.stop, both.values) == (False, None, Stop.COMPLETED, "first")
        assert "contradicts itself" in both.reason
    cut = agreement(found, late, is_minimum=True)
    assert (cut.values, cut.bound, cut.stop) == ("first", 3.0, Stop.TIME_LIMIT)
    assert agreement(none, Run(Stop.TIME_LIMIT), is_minimum=True) == Run(Stop.TIME_LIMIT)


@pytest.mark.parametrize("sense", [pyo.minimize, pyo.maximize])
def test_a_false_first_proof_is_none(monkeypatch: pytest.MonkeyPatch, sense: Any) -> None:
    """The second run's model has room for more: no bound of the first one is reported, before or after."""

    def larger(lp: Any, seed: int) -> Any:
        found, moved = reorder(lp, seed)
        found.row_upper_ = [2 * each for each in found.row_upper_]
        return found, moved

    sign = 1 if sense == pyo.maximize else -1
    model = items()
    model.worth.set_value(sign * model.worth.expr)
    model.worth.sense = sense
    monkeypatch.setattr(prove_twice, "reorder", larger)
    reported: list[float] = []
    run = milp.run(model, Limits(), Watch(), on_bound=reported.append)
    assert (run.objective, run.bound) == (pytest.approx(sign * 24), pytest.approx(sign * 24))
    assert all(sign * bound >= 24 - 1e-6 for bound in reported)


def test_a_refuted_proof_is_replaced_by_that_of_a_third_run() -> None:
    """The second run has a solution below what the first one proved; what the third one proves counts with it."""
    lp = translate(items())[0].getLp()
    lp.sense_ = highspy.ObjSense.kMinimize
    false, true = (Run(Stop.PROVED, values=f"{each}", objective=each, bound=each) for each in (5.0, 4.0))
    none = Run(Stop.PROVED, infeasible=True)
    hints: list[Any] = []
    reported: list[float] = []

    def outcome(*ends: Run) -> Run:
        runs = iter(ends)
        hints.clear()

        def once(_lp: Any, _columns: Any, hint: Any, report: Any, _second: bool) -> Run:
            hints.append(dict(hint))
            run = next(runs)
            if report is not None and run.bound is not None:
                report(run.bound)
            return run

        run = prove_twice.prove_twice(once, lp, {}, {0: 1.0}, 0, reported.append)
        assert reported == []  # until two runs stand for a bound
        return run

    for first in (false, none):
        run = outcome(first, true, true)
        assert (run.stop, run.objective, run.bound) == (Stop.PROVED, 4.0, 4.0)
        assert hints == [{0: 1.0}, {}, {}]
    late = outcome(false, true, Run(Stop.TIME_LIMIT, bound=3.0))
    assert (late.stop, late.objective, late.bound) == (Stop.TIME_LIMIT, 4.0, 3.0)
    # It is the second run that lies: the first one's solution refutes it.
    other = outcome(true, false, true)
    assert (other.stop, other.objective, other.bound) == (Stop.PROVED, 4.0, 4.0)
    for lies in ((true, false, false), (true, none, none), (true, none, false)):
        lone = outcome(*lies)
        assert (lone.stop, lone.objective, lone.infeasible) == (Stop.COMPLETED, 4.0, False)
        assert lone.bound is not None and lone.bound < 4.0 * (1 - OPTIMAL_GAP) and "contradicts itself" in lone.reason
    cut = outcome(true, Run(Stop.TIME_LIMIT, bound=4.5))
    assert cut.stop is Stop.TIME_LIMIT and cut.bound is not None and cut.bound < 4.0


def test_a_single_run_closes_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run ends without a word: what the first one proved is a plan and a bound apart from it."""
    once = milp._Call.once
    runs: list[Run] = []

    def first_alone(*given: Any, **options: Any) -> Run:
        runs.append(Run(Stop.TIME_LIMIT) if runs else once(*given, **options))
        return runs[-1]

    monkeypatch.setattr(milp._Call, "once", first_alone)
    reported: list[float] = []
    run = milp.run(items(), Limits(), Watch(), on_bound=reported.append)
    assert runs[0].bound == pytest.approx(17) and not reported
    assert (run.objective, run.bound, run.stop) == (pytest.approx(17), None, Stop.TIME_LIMIT)
    least = alone(Run(Stop.TIME_LIMIT, objective=17.0, bound=17.0), is_minimum=True).bound
    most = alone(Run(Stop.TIME_LIMIT, objective=17.0, bound=17.0), is_minimum=False).bound
    assert least is not None and most is not None
    assert relative_gap(17.0, least) > OPTIMAL_GAP and most - 17.0 > 17.0 * OPTIMAL_GAP


def test_no_proof_of_a_model_beyond_a_solver_is_believed() -> None:
    """A coefficient of 1e11: the plan counts, its bound does not, nor a claim that there is none."""
    model = items()
    model.far = pyo.Constraint(expr=1e11 * model.taken[0] + model.taken[1] <= 2e11)
    run = milp.run(model, Limits())
    assert (run.objective, run.bound, run.stop) == (pytest.approx(17), None, Stop.COMPLETED)
    model.room.set_value(model.taken[0] + model.taken[1] >= 3)
    run = milp.run(model, Limits())
    assert (run.infeasible, run.stop) == (False, Stop.COMPLETED) and "1e+11" in run.reason


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


def test_rows_that_are_added_raise_the_bound_which_is_the_optimum() -> None:
    """The least x + 2y, of at most 4 each: 0; with x + y >= 3, 3; x <= 1 besides, 5; and x >= 5 has no solution."""
    rows = Rows(np.array([1.0, 2.0]), [([0, 1], [1.0, -1.0], -4.0, 4.0)], Limits(), Watch())
    most = np.full(2, 4.0)
    for is_added, upper, bound, reduced in (
        (False, most, 0.0, [1.0, 2.0]),
        (True, most, 3.0, [0.0, 1.0]),
        (False, np.array([1.0, 4.0]), 5.0, [-1.0, 0.0]),
    ):
        if is_added:
            rows.add([0, 1], [1.0, 1.0], 3.0)
        found = rows.run(upper, most)
        assert found is not None and found.bound == pytest.approx(bound) == found.values @ [1.0, 2.0]
        assert found.reduced == pytest.approx(reduced)
    rows.add([0], [1.0], 5.0)
    assert rows.run(most, most) is None
