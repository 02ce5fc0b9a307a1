"""What all declarative models of stage partitioning keep: pinned plans, hints, budgets, and memory to the byte."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import ModuleType

import pytest
from model_checks import check_answer, check_pinned, hair_too_large, knowing
from oracles.stage_partitioning import brute_force
from strategies import random_stage_instance

from formulations.modelling.warm_start import First
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import evaluate
from formulations.stage_partitioning.models import cpsat, milp, milp_columns
from instances.problems.stage_partitioning import StageInstance
from solvers.outcome import Limits, Watch

BLOCKS = pytest.mark.parametrize("models", [cpsat, milp], ids=["cpsat", "milp"])
ALL = pytest.mark.parametrize("models", [cpsat, milp, milp_columns], ids=["cpsat", "milp", "milp-columns"])


@BLOCKS
def test_a_pinned_plan_is_feasible_exactly_if_it_breaks_no_rule(models: ModuleType, cases: int) -> None:
    def pinned(instance: StageInstance, plan: StagePlan) -> tuple[bool, float | None]:
        model = models.model_of(instance, complete=True)
        for variable, value in model.values_of(plan):
            if models is cpsat:
                model.model.add(variable == value)
            else:
                variable.fix(value)
        run = model.run(Limits(), Watch(), lambda _: None, lambda _: None)
        return run.infeasible, None if run.bound is None else model.lower_bound(run.bound)

    seen = [check_pinned(random_stage_instance(seed), seed, pinned) for seed in range(4 * cases)]
    assert seen.count(True) >= cases // 8 and seen.count(False) >= cases // 4


@BLOCKS
def test_an_optimal_plan_is_feasible_in_the_model_with_itself_as_hint(models: ModuleType) -> None:
    for seed in range(8 if models is cpsat else 4):
        instance = random_stage_instance(seed)
        plan = check_answer(models.solve, instance).plan
        if plan is not None:
            model = models.model_of(instance, knowing(instance, plan))
            run = model.run(Limits(), Watch(), lambda _: None, lambda _: None)
            assert evaluate(instance, model.decode(run.values)) == pytest.approx(evaluate(instance, plan), rel=1e-6)


@cache
def decided_by(name: str) -> StageInstance:
    """The first random instance whose optimum is another one with one less of a budget."""
    for seed in range(400):
        instance = random_stage_instance(seed, memory="tight", cost_model="paper", exactly=False, max_dp=False)
        value = getattr(instance, name)
        if value > 1 and len(instance.layers) > 1:
            best, less = brute_force(instance), brute_force(replace(instance, **{name: value - 1}))
            if best is not None and (less is None or less.time > best.time):
                return instance
    raise AssertionError(f"{name} decides nothing")


@ALL
@pytest.mark.parametrize("change", [-1, 0, 1])
@pytest.mark.parametrize("name", ["memory_bytes", "num_devices", "num_microbatches"])
def test_a_budget_holds_below_at_and_above(
    models: ModuleType, name: str, change: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the model itself: a plan to begin with would be the answer of a model that is too strict."""
    monkeypatch.setattr(First, "report", lambda *_: None)
    instance = decided_by(name)
    check_answer(models.solve, replace(instance, **{name: getattr(instance, name) + change}))


@ALL
def test_what_only_rounding_lets_through_is_cut_off(models: ModuleType) -> None:
    answer = check_answer(models.solve, hair_too_large())
    assert answer.plan is not None
    assert answer.plan.stages[0].tmpcs == {"a": "lean", "b": "fast"}
