"""Numbers of many magnitudes in one instance: no method may lose the small ones beside the large ones."""

import random
from fractions import Fraction
from typing import Any

import pytest
from oracles.layer_assignment import optimum, spread_instance

from formulations.layer_assignment import exact, paper
from formulations.layer_assignment.costs import balance, parameter_sums, running_sums
from formulations.layer_assignment.definition.problem import evaluate, parameters_of, violations
from formulations.layer_assignment.models import cpsat, milp
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.outcome import Limits, Watch, relative_gap

SECONDS = Limits(time_s=30)


def check(method: Any, instance: LayerAssignmentInstance, precision: float) -> None:
    best = optimum(instance)
    assert best is not None
    answer = method(instance, SECONDS, Watch(SECONDS))
    assert answer.bound <= best * (1 + 1e-13), (instance, answer, best)
    objective = evaluate(instance, answer.plan)
    assert objective == pytest.approx(best, rel=precision), (instance, answer, best)
    assert relative_gap(objective, answer.bound) <= 1e-6, (instance, answer, best)


def test_the_sweep_sees_small_numbers_beside_large_ones(cases: int, many: int) -> None:
    for case in range(10 * cases):
        check(exact.solve, spread_instance(random.Random(f"sweep {case}"), 9 if many else 8), 1e-11)


def test_the_published_program_sees_them(cases: int) -> None:
    for case in range(2 * cases):
        check(paper.solve_amp, spread_instance(random.Random(f"amp {case}"), 7, all_reduce=False), 1e-11)


@pytest.mark.parametrize("room", [cpsat, milp], ids=["cpsat", "milp"])
def test_models_see_them(room: Any, cases: int) -> None:
    # The last has cuts of 1e20 s, beside which HiGHS overlooks the stages that the best assignment is made of.
    for case in [*range(cases), 151]:
        check(room.solve, spread_instance(random.Random(f"model {case}"), max_layers=6), 1e-6)


def test_a_stage_of_small_layers_after_a_large_one_by_hand() -> None:
    """The prefix of 1e19 parameters would swallow the thousands of the second stage, whose ring is slow."""
    instance = LayerAssignmentInstance(
        "swallowed",
        (1.0, 1.0, 1.0),
        ((0.0,), (0.0,)),
        2,
        2,
        parameters=(1e19, 1000.0, 10.0),
        ring_s_per_parameter=(1e-22, 1.0),
    )
    assert optimum(instance) == 2 + 3 + 10
    for method in (exact.solve, cpsat.solve, milp.solve):
        check(method, instance, 1e-9)


def test_tables_are_sums_of_their_own_terms(cases: int) -> None:
    for case in range(cases):
        instance = spread_instance(random.Random(f"tables {case}"))
        held = parameter_sums(instance)
        for start in range(instance.num_layers):
            for end in range(start + 1, instance.num_layers + 1):
                assert held[start, end] == pytest.approx(parameters_of(instance, start, end), rel=1e-14)
                assert end == start + 1 or held[start, end] >= max(held[start, end - 1], held[start + 1, end])
        whole = [float(sum(map(Fraction, instance.parameters[:end]))) for end in range(instance.num_layers + 1)]
        assert list(running_sums(instance.parameters)) == whole


def test_the_balanced_assignment_is_not_far_off(cases: int) -> None:
    for case in range(2 * cases):
        instance = spread_instance(random.Random(f"balanced {case}"), all_reduce=case % 2 == 0)
        best, plan = optimum(instance), balance(instance)
        assert best is not None and violations(instance, plan) == ()
        assert evaluate(instance, plan) <= (instance.num_stages + 2) * best * (1 + 1e-12)
