"""What all declarative models of stage partitioning keep: pinned plans, hints, budgets, and memory to the byte."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from model_checks import check_answer, check_pinned, hair_too_large, knowing, long_chain, published_bert
from oracles.stage_partitioning import brute_force
from strategies import random_stage_instance

from formulations.modelling.warm_start import First
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import evaluate
from formulations.stage_partitioning.models import cpsat, milp, milp_columns
from instances.problems.stage_partitioning import StageInstance
from solvers.outcome import Limits, Stop, Watch

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
    for seed in range(4 if models is cpsat else 2):
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
@pytest.mark.parametrize("change", [-1, 0, pytest.param(1, marks=pytest.mark.slow)])
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


@pytest.mark.parametrize(("models", "time_s"), [(cpsat, 3.0), (milp, 1.5)], ids=["cpsat", "milp"])
def test_plans_are_reported_while_the_search_goes_on(models: ModuleType, time_s: float) -> None:
    received: list[tuple[float | None, float | None]] = []
    watch = Watch(Limits(time_s=time_s), lambda _, objective, bound: received.append((objective, bound)))
    answer = models.solve(long_chain(8, 6), Limits(time_s=time_s), watch)
    assert len(received) >= 2 and answer.stop in (Stop.PROVED, Stop.TIME_LIMIT)
    assert all(bound <= objective for objective, bound in received if objective is not None and bound is not None)


@pytest.mark.paper
@pytest.mark.parametrize(
    ("models", "first", "devices", "memory", "time"),
    [
        (milp_columns, 12, 8, "4GiB", 0.044080964758555094),
        pytest.param(cpsat, 12, 8, "4GiB", 0.044080964758555094, marks=pytest.mark.slow),
        pytest.param(milp, 8, 4, "4GiB", 0.030806149867296215, marks=pytest.mark.slow),
        pytest.param(milp_columns, 0, 64, "8GiB", 0.020200550294478734, marks=pytest.mark.slow),
    ],
)
def test_the_published_bert(
    published: Path, models: ModuleType, first: int, devices: int, memory: str, time: float
) -> None:
    """Its first nodes, or (0) all of them."""
    instance, limits = published_bert(published, first, devices, memory), Limits(time_s=60)
    answer = models.solve(instance, limits, Watch(limits))
    assert answer.stop is Stop.PROVED and answer.plan is not None
    assert evaluate(instance, answer.plan) == pytest.approx(time, rel=1e-6)
