"""Methods of layer assignment against brute force, against each other, and in time."""

import itertools
import random
import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from load import allowed_s
from oracles.layer_assignment import optimum, random_instance, spread_instance

import planner
from formulations.layer_assignment import FAMILY, exact, paper
from formulations.layer_assignment.costs import balance, parameter_sums, running_sums
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import cuts, evaluate, parameters_of, violations
from formulations.layer_assignment.models import cpsat, milp
from instances.problems.layer_assignment import LayerAssignmentInstance, TiedParameters, generate
from solvers.outcome import Limits, Status, Stop, Watch, relative_gap

SECONDS = Limits(time_s=30)


def solve(method: Any, instance: LayerAssignmentInstance) -> Any:
    return method(instance, SECONDS, Watch(SECONDS))


def check_exact(method: Any, instance: LayerAssignmentInstance, precision: float) -> None:
    expected = optimum(instance)
    answer = solve(method, instance)
    assert answer.infeasible is (expected is None)
    if expected is None:
        assert "need a layer each" in answer.reason and answer.stop is Stop.PROVED
        return
    assert violations(instance, answer.plan) == (), instance
    objective = evaluate(instance, answer.plan)
    assert objective == pytest.approx(expected, rel=precision, abs=1e-12), instance
    assert answer.bound <= expected * (1 + 1e-13) + 1e-300
    assert objective == 0 or relative_gap(objective, answer.bound) <= 1e-6, instance


@pytest.mark.parametrize("room", [cpsat, milp], ids=["cpsat", "milp"])
def test_caps_on_the_slowest_stage_find_and_prove_the_optimum_by_themselves(room: Any, cases: int) -> None:
    for case in range(max(1, cases // 10)):
        instance = generate(8 + case % 20, 2 + case % 5, seed=case)
        watch = Watch(SECONDS)
        expected = evaluate(instance, solve(exact.solve, instance).plan)
        # Knows the balanced plan, which the search does not.
        model = room.model_of(instance, watch, search=True)
        seen: list[float] = []
        found = model.run(SECONDS, Watch(SECONDS), lambda _: None, seen.append)
        assert found.stop is Stop.PROVED and found.stats["targets"] < 60
        assert evaluate(instance, model.decode(found.values)) == pytest.approx(expected, rel=1e-7)
        assert expected * (1 - 1e-6) <= model.lower_bound(found.bound) <= expected * (1 + 1e-13)
        assert seen == sorted(seen)


@pytest.mark.parametrize("room", [cpsat, milp], ids=["cpsat", "milp"])
def test_caps_agree_with_brute_force_without_a_known_plan(room: Any, cases: int) -> None:
    for case in range(cases):
        instance = random_instance(random.Random(f"caps {case}"), max_layers=7, all_reduce=False)
        expected = optimum(instance)
        if expected is None:
            continue
        model = room.model_of(instance, Watch(SECONDS), search=True)
        found = model.run(SECONDS, Watch(SECONDS), lambda _: None, lambda _: None)
        assert evaluate(instance, model.decode(found.values)) == pytest.approx(expected, rel=1e-6), instance
        assert model.lower_bound(found.bound) <= expected * (1 + 1e-13)


def test_the_published_program_as_it_is_meant_is_exact_without_an_all_reduce(cases: int) -> None:
    for case in range(3 * cases):
        instance = random_instance(random.Random(f"amp {case}"), all_reduce=False)
        check_exact(paper.solve_amp, replace(instance, stage_time_s=()), 1e-12)


def test_the_published_program_bounds_the_joint_optimum(cases: int) -> None:
    worse = 0
    for case in range(cases):
        instance = random_instance(random.Random(f"joint {case}"), all_reduce=True)
        best, answer = optimum(instance), solve(paper.solve_amp, instance)
        if best is not None and (answer.bound is not None or not instance.stage_time_s):
            assert answer.bound <= best * (1 + 1e-13)
            worse += evaluate(instance, answer.plan) > best * (1 + 1e-9)
    assert worse > cases / 20


#: The smallest instance on which the released program misses the optimum.
COUNTER_EXAMPLE = LayerAssignmentInstance("counter-example", (1.0, 1.0, 1.0), ((1.0,), (0.0,)), 2, 2)


def test_the_released_program_forgets_the_cost_of_its_incumbent() -> None:
    released, meant = (solve(method, COUNTER_EXAMPLE) for method in (paper.solve_released, paper.solve_amp))
    assert released.plan == LayerPlan((1, 2)) and evaluate(COUNTER_EXAMPLE, released.plan) == 6
    assert meant.plan == LayerPlan((2, 1)) and evaluate(COUNTER_EXAMPLE, meant.plan) == 5
    assert released.bound is None


def test_how_often_the_released_program_misses(cases: int) -> None:
    missed = 0
    for case in range(cases):
        rng = random.Random(case)
        layers, stages = 9, rng.randint(2, 5)
        instance = LayerAssignmentInstance(
            "integers",
            tuple(float(rng.randint(1, 19)) for _ in range(layers)),
            tuple(tuple(float(rng.randint(0, 29)) for _ in range(stages - 1)) for _ in range(layers - 1)),
            stages,
            rng.randint(2, 8),
        )
        answer, best = solve(paper.solve_released, instance), optimum(instance)
        assert best is not None
        missed += evaluate(instance, answer.plan) > best + 1e-9
    assert cases / 5 < missed < cases


def test_methods_agree_on_thirty_layers() -> None:
    for seed, (stages, joint) in enumerate([(3, False), (4, True), (8, False), (8, True)]):
        instance = generate(30, stages, 16, all_reduce=joint, seed=seed)
        best = evaluate(instance, solve(exact.solve, instance).plan)
        assert evaluate(instance, solve(cpsat.solve, instance).plan) == pytest.approx(best, rel=1e-6)
        if not joint:
            assert evaluate(instance, solve(paper.solve_amp, instance).plan) == pytest.approx(best, rel=1e-12)
        for method in ("uniform", "megatron", "amp-released"):
            plan = solve(FAMILY.method(method).solve, instance).plan
            assert evaluate(instance, plan) >= best * (1 - 1e-12)


@pytest.mark.parametrize("microbatches", [1, 4, 32, 256])
def test_four_hundred_layers_and_sixty_four_stages_in_a_second(microbatches: int) -> None:
    instance = generate(400, 64, microbatches, seed=1)
    began = time.perf_counter()
    answer = solve(exact.solve, instance)
    assert time.perf_counter() - began < allowed_s(1.0)
    assert answer.stop is Stop.PROVED


def test_splits_by_hand() -> None:
    row = LayerAssignmentInstance(
        "splits", (1.0,) * 10, ((0.0,),) * 9, 3, 4, parameters=(9.0, *(1.0,) * 9), head_layers=1, tail_layers=2
    )
    assert solve(paper.solve_uniform, row).plan.lengths == (4, 3, 3)
    assert solve(paper.solve_megatron, row).plan.lengths == (4, 2, 4)
    assert solve(paper.solve_parameters, row).plan.lengths == (1, 8, 1)
    assert solve(paper.solve_megatron, replace(row, num_stages=9)).plan is None
    assert solve(paper.solve_released, replace(row, num_microbatches=1)).plan.lengths == (4, 2, 4)
    tied = replace(row, tied=(TiedParameters((0, 9), 5.0),))
    assert solve(paper.solve_parameters, tied).plan.lengths == (1, 8, 1)


def test_balance_by_parameters_is_the_least_largest(cases: int) -> None:
    for case in range(cases):
        instance = random_instance(random.Random(f"parameters {case}"), all_reduce=True)
        answer = solve(paper.solve_parameters, instance)
        if answer.infeasible:
            continue

        def largest(plan: LayerPlan, instance: LayerAssignmentInstance = instance) -> float:
            ends = cuts(plan)
            return max(parameters_of(instance, *pair) for pair in itertools.pairwise(ends))

        only_parameters = replace(
            instance,
            layer_time_s=(0.0,) * instance.num_layers,
            stage_time_s=(),
            cut_cost_s=((0.0,),) * (instance.num_layers - 1),
            ring_s_per_parameter=(1.0,),
        )
        assert largest(answer.plan) == pytest.approx(optimum(only_parameters), rel=1e-12)


def test_no_stage_is_empty_where_a_layer_is_too_long_for_the_one_before() -> None:
    instance = random_instance(random.Random(1888))
    assert instance.stage_time_s
    answer = cpsat.solve(instance, Limits(), Watch())
    assert answer.plan is not None and evaluate(instance, answer.plan) == pytest.approx(optimum(instance))


@pytest.mark.parametrize("method", ["exact", "cpsat", "milp"])
@pytest.mark.parametrize(
    ("forbidden_s", "rings", "microbatches", "best"), [(1e9, True, 2, 8.6), (1e16, False, 4, 11.2)]
)
def test_a_layer_that_a_stage_must_not_have_hides_no_other_sums(
    method: str, forbidden_s: float, rings: bool, microbatches: int, best: float
) -> None:
    """Beside 1e9 s a running sum has lost 1e-7 s of the layers behind it."""
    by_stage = ((1.0, 1.0, 1.0, 1.0), (forbidden_s, 1.3, 1.1, 1.2))
    held, ring_s = ((1.0,) * 4, (0.5, 1.0)) if rings else ((), ())
    instance = LayerAssignmentInstance("far", (1.0,) * 4, ((0.0,),) * 3, 2, microbatches, parameters=held,
                                       ring_s_per_parameter=ring_s, stage_time_s=by_stage)  # fmt: skip
    result = planner.solve(instance, method="exact-joint" if rings and method == "exact" else method)
    assert result.status is Status.OPTIMAL and result.objective == pytest.approx(best) == optimum(instance)


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
