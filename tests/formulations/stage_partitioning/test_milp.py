"""Stage partitioning by mixed-integer programming: against brute force, and its constraints one plan at a time."""

import json
import random
from typing import Any

import pytest
from model_checks import check_answer
from small_instances import random_case
from strategies import random_stage_instance, with_magnitudes

import solvers.milp.backend
from formulations import stage_partitioning
from formulations.stage_partitioning.definition.problem import evaluate
from formulations.stage_partitioning.models import milp
from formulations.stage_partitioning.models.solving import begin
from solvers.outcome import Limits, Watch


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


@pytest.mark.parametrize("seed", [0, 3])
def test_no_false_optimum_of_an_order_of_rows(seed: int) -> None:
    """In the order of the model HiGHS 1.12 proves 5.125 with the seeds 0 and 3; in most other orders it is right."""
    instance = random_case("stage_partitioning", 4, 214)
    answer = milp.solve(instance, Limits(seed=seed), Watch())
    assert answer.bound is not None and answer.bound <= 5.0833334


@pytest.mark.parametrize("seed", range(2))
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
