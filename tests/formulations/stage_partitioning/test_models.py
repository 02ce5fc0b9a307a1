"""What all declarative models of stage partitioning keep: pinned plans, hints, budgets, and memory to the byte."""

import json
import math
import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from model_checks import check_answer, check_pinned, hair_too_large, long_chain, published_bert
from oracles.stage_partitioning import brute_force
from small_instances import random_case
from strategies import random_stage_instance, with_magnitudes
from thinned import thinned

import planner
import solvers.milp.backend
from formulations import stage_partitioning
from formulations.modelling.warm_start import First
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import evaluate
from formulations.stage_partitioning.models import cpsat, milp, milp_columns
from formulations.stage_partitioning.models.solving import begin
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
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
@thinned("name", ["memory_bytes", "num_devices", "num_microbatches"])
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


def test_agrees_with_brute_force_at_many_magnitudes(cases: int, many: int) -> None:
    """HiGHS loses plans beside numbers far above all that a stage may take (14), and proofs below the unit (6, 50)."""
    for seed in range(200_000, 200_000 + many) if many else (14, 50, *range(cases // 10)):
        instance = random_stage_instance(seed, **({"max_nodes": 6, "max_devices": 6} if many else {}))
        gap = 2e-6 if many else 1e-6
        check_answer(milp.solve, with_magnitudes(instance, random.Random(f"magnitudes {seed}")), gap=gap)


def test_no_false_optimum_of_tight_tolerances() -> None:
    """HiGHS 1.12 with tolerances of 1e-9 proves 32.0 here."""
    instance = random_stage_instance(100338, max_nodes=6, max_devices=6)
    model = milp.model_of(instance, complete=True)
    run = model.run(Limits(), Watch(), lambda _: None, lambda _: None)
    assert evaluate(instance, model.decode(run.values)) == pytest.approx(25.0, rel=1e-6)


@thinned("seed", [0, 3], 2)
def test_no_false_optimum_of_an_order_of_rows(seed: int) -> None:
    """In the order of the model HiGHS 1.12 proves 5.125 with the seeds 0 and 3; in most other orders it is right."""
    instance = random_case("stage_partitioning", 4, 214)
    answer = milp.solve(instance, Limits(seed=seed), Watch())
    assert answer.bound is not None and answer.bound <= 5.0833334


@thinned("seed", range(2), 2)
def test_no_false_optimum_of_presolve(seed: int) -> None:
    """HiGHS 1.12 proves 7 with every seed, and in most orders of rows and columns, unless its presolve is off."""
    answer = milp.solve(random_case("stage_partitioning", 4, 7624), Limits(seed=seed), Watch())
    assert answer.bound is not None and answer.bound <= 5.8888889


def test_an_optimal_hint_is_proved() -> None:
    """HiGHS 1.12's presolve refutes anything better than the hint here, and then says "optimal" without a bound."""
    check_answer(milp.solve, random_stage_instance(100816, max_nodes=6, max_devices=6))


def test_a_known_plan_stays_feasible_without_its_hint() -> None:
    """HiGHS calls a model infeasible whose plan lies within its tolerances of an upper bound of T (here the first)."""
    for seed in (100816, *range(6)):
        instance = random_stage_instance(seed, max_nodes=6, max_devices=6)
        watch = Watch()
        begin(instance, Limits(), watch)
        if watch.best_plan is not None:
            run = solvers.milp.backend.run(milp.model_of(instance, watch).model, Limits())
            assert not run.infeasible and run.bound is not None


def test_costs_within_the_tolerance_make_nothing_infeasible() -> None:
    """Tensors and weights that take 1e-8 of a stage's time: as coefficients they are as small as HiGHS's tolerance."""
    content: dict[str, Any] = json.loads(FAR_APART)
    instance = stage_partitioning.FAMILY.read(content, "far apart", {})
    for seed in range(3):
        answer = milp.solve(instance, Limits(seed=seed), Watch())
        assert answer.plan is not None and evaluate(instance, answer.plan) == 1_460_000_012
        assert answer.bound == pytest.approx(1_460_000_012, rel=1e-6)


FAR_APART = """{"problem": "stage_partitioning", "schema_version": 1, "name": "far apart", "num_devices": 3,
"memory_bytes": 24.0, "bandwidth": 2.6666666666666665, "num_microbatches": 5, "layers": [
{"id": 6, "tmpcs": {"1": [{"id": "x0", "time": 2.19e9, "weight_bytes": 1.0, "activation_bytes": 5.0,
  "static_bytes": 1.0}, {"id": "x1", "time": 1.46e9, "weight_bytes": 1.0, "activation_bytes": 5.0,
  "static_bytes": 0.0}]}},
{"id": 10, "tmpcs": {"1": [{"id": "x0", "time": 3.65e9, "weight_bytes": 4.0, "activation_bytes": 5.0,
  "static_bytes": 3.0}], "2": [{"id": "x0", "time": 7.3e8, "weight_bytes": 1.0, "activation_bytes": 1.0,
  "static_bytes": 0.0, "sync_backward_bytes": {"7": 6.0}}]}},
{"id": 7, "tmpcs": {"1": [{"id": "x0", "time": 8.76e9, "weight_bytes": 0.0, "activation_bytes": 2.0,
  "static_bytes": 0.0}], "2": [{"id": "x0", "time": 7.3e8, "weight_bytes": 10.0, "activation_bytes": 1.0,
  "static_bytes": 1.0, "sync_forward_bytes": {"10": 1.0}, "sync_backward_bytes": {"0": 6.0}}]}},
{"id": 0, "tmpcs": {"2": [{"id": "x0", "time": 0.0, "weight_bytes": 1.0, "activation_bytes": 9.0,
  "static_bytes": 1.0}, {"id": "x1", "time": 3.65e9, "weight_bytes": 4.0, "activation_bytes": 2.0,
  "static_bytes": 7.0}]}}],
"edges": [{"source": 10, "target": 7, "bytes": 0.0}, {"source": 7, "target": 0, "bytes": 0.0},
{"source": 7, "target": 6, "bytes": 16.0}]}"""


def test_memory_without_a_limit() -> None:
    """As relaxations have it; more than every stage takes is the same."""
    chain = planner.load("chain8", first=4)
    endless, plenty = (replace(chain, memory_bytes=memory) for memory in (math.inf, 1e12))
    answers = [cpsat.solve(each, Limits(time_s=30), Watch()) for each in (endless, plenty)]
    assert answers[0].stop is Stop.PROVED
    assert evaluate(endless, answers[0].plan) == evaluate(plenty, answers[1].plan)


@pytest.mark.parametrize(("seed", "size", "time"), [(35, 5, 28 / 9), (101587, 6, 4.0)])
def test_no_false_proof_of_presolve(seed: int, size: int, time: float) -> None:
    """CP-SAT 9.15 with its default presolve proves an optimum of 5.0 for the first, infeasibility for the second."""
    instance = random_stage_instance(seed, max_nodes=size, max_devices=size)
    model = cpsat.model_of(instance, complete=seed == 35)
    run = model.run(Limits(), Watch(), lambda _: None, lambda _: None)
    assert not run.infeasible
    assert evaluate(instance, model.decode(run.values)) == pytest.approx(time, rel=1e-6)


def test_no_false_proof_of_large_sums() -> None:
    """A boundary takes 1e9 times as long as the layers: with sums up to 2^60 CP-SAT 9.15 called this infeasible."""
    weighty = (Tmpc("x", 16.799999999999997, 730e6, 1460e6, 0.0), Tmpc("x", 16.799999999999997, 879470419.67, 0.0, 0.0))
    first = Layer("a", {1: (Tmpc("x", 3.5, 0.0, 730e6, 511e9), Tmpc("y", 2.0979, 0.0, 0.0, 16311541242.83))})
    first = replace(first, tmpcs={**first.tmpcs, 4: (Tmpc("x", 5.23389654452369, 730e6, 3650e6, 8760e6),)})
    layers = (first, Layer("b", {1: weighty[:1], 2: weighty[1:]}))
    instance = StageInstance("large", layers, (Edge("a", "b", 11680e6),), 5, 16060e6, 1.4, 4, max_dp_degree=1)
    answer = cpsat.solve(instance, Limits(time_s=30), Watch())
    assert not answer.infeasible
    assert math.isclose(evaluate(instance, answer.plan), 16685714302.51, rel_tol=1e-9)


def test_no_formula_bounds_the_time_from_below() -> None:
    """The bound that the units are chosen by is no constraint: the proof is the solver's."""
    assert cpsat.model_of(long_chain(4, 4)).model.variables["time"][()].proto.domain[0] == 0
