"""The model of passes (`cpsat-orders`): every plan by brute force, the search as second witness, rows alone."""

from dataclasses import replace

import pytest
from oracles.flushed_partitioning import random_flushed

import planner
from formulations.flushed_partitioning.definition.problem import evaluate
from formulations.flushed_partitioning.exact import iteration
from formulations.flushed_partitioning.exact.effort import passes_supports, passes_too_many
from formulations.flushed_partitioning.models import cpsat_orders
from instances.problems.flushed_partitioning import FlushedInstance, Objective
from planner.process.errors import UsageError
from solvers.outcome import Limits, Watch


def chain(seed: int, **given) -> FlushedInstance:
    """A random chain whose objective is the iteration; with TMPCs of any weights, which the search does not take."""
    drawn = {"shape": "chain", "max_nodes": 4, "max_devices": 4, "max_tmpcs": 2, **given}
    return replace(random_flushed(seed, **drawn), objective=Objective.ITERATION)


def test_without_a_first_plan_it_finds_and_proves_what_the_search_does(
    cases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither has anything of the other; of five layers on six devices."""
    monkeypatch.setattr(cpsat_orders, "first_plan", lambda _: None)
    for seed in range(cases // 2):
        instance = chain(1000 + seed, max_nodes=5, max_devices=6, same_weights=True, memory="planted")
        found, other = (each(instance, Limits(), Watch()) for each in (cpsat_orders.solve, iteration.solve))
        assert found.infeasible == other.infeasible, seed
        if other.plan is not None:
            assert evaluate(instance, found.plan) == pytest.approx(evaluate(instance, other.plan), rel=2e-6), seed


@pytest.mark.parametrize(("first", "time"), [(0, 27.0), (1, 29.0), (2, 31.0), (3, 33.0)])
def test_passes_of_four_stages_end_when_they_do_by_hand(first: int, time: float) -> None:
    """Stages of 6, 3, 3 and 3 s, in four orders, and four micro-batches: the test of the definition, as rows."""
    layers = [{"id": v, "tmpcs": {"1": [{"id": "x", "time": 6 if v == first else 3, "weight_bytes": 0,
                                         "activation_bytes": 0, "static_bytes": 1}]}} for v in range(4)]  # fmt: skip
    flat = {"problem": "stage_partitioning", "schema_version": 1, "num_devices": 4, "num_microbatches": 4,
            "memory_bytes": 1, "bandwidth": 1, "layers": layers,
            "edges": [{"source": v, "target": v + 1, "bytes": 0} for v in range(3)]}  # fmt: skip
    instance = planner.load({"problem": "flushed_partitioning", "schema_version": 1, "objective": "iteration",
                             "flat": flat}, max_dp=1)  # fmt: skip
    result = planner.solve(instance, method="cpsat-orders")
    assert result.status == "optimal" and result.objective == pytest.approx(time / 4)


def test_what_it_does_not_take() -> None:
    instance = planner.load("chain8", problem="flushed_partitioning")
    assert passes_supports(instance) is None and passes_too_many(instance) is None
    assert "formula" in str(passes_supports(replace(instance, objective=Objective.FORMULA)))
    branches = planner.load("diamond", problem="flushed_partitioning")
    assert "no chain" in str(passes_supports(branches))
    wide = planner.load("chain8", problem="flushed_partitioning", devices=64, microbatches=512)
    with pytest.raises(UsageError, match="over 20,000 passes"):
        planner.model(wide, "cpsat-orders")


def test_requirements_are_rows() -> None:
    for count in (1, 3):
        instance = planner.load("chain8", problem="flushed_partitioning", first=4)
        instance = replace(instance, requirements=(f"num_stages == {count}",))
        found = [planner.solve(instance, method=name) for name in ("cpsat-orders", "best-first")]
        assert [each.status.value for each in found] == ["optimal", "optimal"]
        assert found[0].objective == pytest.approx(found[1].objective, rel=1e-6)
