"""The model of passes (`cpsat-orders`): every plan by brute force, the search as second witness, rows alone."""

import random
from dataclasses import replace

import pytest
from branching_cases import random_graph
from oracles.stage_graph import shortest_iteration

import planner
from formulations.modelling.warm_start import First
from formulations.stage_graph import FAMILY
from formulations.stage_graph.definition.problem import evaluate
from formulations.stage_graph.iteration import search
from formulations.stage_graph.models import cpsat_orders
from instances.generators.branching import mmt
from instances.problems.stage_graph import AffineTime, Operator, OperatorEdge, StageGraph
from planner.process.errors import UsageError
from solvers.outcome import Limits, Status, Watch


@pytest.fixture
def without_first_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpsat_orders, "First", lambda by, _: First(by, lambda _: None))


@pytest.mark.usefixtures("without_first_plan")
def test_without_a_first_plan_it_proves_what_the_search_does(cases: int) -> None:
    """Of larger instances than every plan can be listed of: neither has anything of the other."""
    several = 0
    for number in range(cases // 4):
        rng = random.Random(f"orders and search {number}")
        graph = random_graph(rng.randrange(2**32), (3, 6), rng.randint(2, 5), series_parallel=bool(number % 2))
        instance = replace(graph, objective="iteration", minibatch=rng.choice((4, 6)))
        found, other = (each(instance, Limits(), Watch()) for each in (cpsat_orders.solve, search.solve))
        assert found.infeasible == other.infeasible, number
        if found.plan is not None and other.plan is not None:
            assert evaluate(instance, found.plan) == pytest.approx(evaluate(instance, other.plan), rel=2e-6), number
            several += len(found.plan.stages) > 1
    assert several


def _row(batch: int, kept: float = 0.0, memory: float = 1.0) -> StageGraph:
    """Three operators, each on a device of its own, which take (1, 2), (1, 1) and (1, 1) seconds."""
    made = tuple(Operator("", AffineTime(0.0, 1.0), AffineTime(0.0, b), 0.0, kept) for b in (2.0, 1.0, 1.0))
    edges = (OperatorEdge(0, 1, 0.0), OperatorEdge(1, 2, 0.0))
    return StageGraph("row", made, edges, 3, memory, 1.0, 0.0, batch, microbatches=(1,), objective="iteration")


@pytest.mark.parametrize(
    ("counts", "seconds"), [((3, 2, 1), 17.0), ((5, 2, 1), 15.0), ((5, 5, 5), 19.0), ((None,) * 3, 15.0)]
)
def test_passes_end_when_they_do_by_hand(counts: tuple[int | None, ...], seconds: float) -> None:
    """The iterations that the tests of the search have by hand, with what is in flight as rows."""
    required = ("num_stages == 3", *(f"in_flight_of({v}) == {n}" for v, n in enumerate(counts) if n is not None))
    result = planner.solve(replace(_row(5), requirements=required), method="cpsat-orders")
    assert result.status is Status.OPTIMAL and result.objective == seconds


def test_memory_limits_what_is_in_flight() -> None:
    """Three stages need memory for three micro-batches at the first of them."""
    for memory, stages in ((3.0, 3), (2.0, 2)):
        instance = _row(4, kept=1.0, memory=memory)
        result = planner.solve(instance, method="cpsat-orders")
        assert result.status is Status.OPTIMAL and len(result.plan["stages"]) == stages
        assert result.objective == shortest_iteration(instance)


def _least(instance: StageGraph, left_out: str = "") -> float:
    """The optimum without the rows of this name, in seconds."""
    model = cpsat_orders.model_of(instance)
    for row in model.model.proto.constraints:
        if row.name.partition("[")[0] == left_out:
            row.clear_linear()
    run = model.run(Limits(), Watch())
    assert run.bound is not None
    return model.lower_bound(run.bound)


@pytest.mark.parametrize(
    ("name", "counts", "seconds"),
    [(name, (5, 5, 5), 19.0) for name in ("f_after_f", "b_after_b")]
    + [(name, (3, 2, 1), 17.0) for name in ("f_after_ahead", "b_after_behind", "b_after_warm_up", "f_after_warm_up")],
)
def test_every_row_on_passes_is_needed(name: str, counts: tuple[int, ...], seconds: float) -> None:
    """What three stages take by hand, and less where the rows of one name are left out."""
    required = ("num_stages == 3", *(f"in_flight_of({v}) == {n}" for v, n in enumerate(counts)))
    instance = replace(_row(5), requirements=required)
    assert _least(instance) == pytest.approx(seconds)
    assert _least(instance, name) < seconds - 0.5


def test_a_slow_network_inside_nodes_does_not_exclude_plans() -> None:
    """Replicas that reduce inside a node at a byte in ten seconds: both do, as one device holds one sample only."""
    made = (Operator("", AffineTime(0.0, 1.0), AffineTime(0.0, 1.0), 1.0, 1.0),)
    instance = StageGraph(
        "tiers", made, (), 2, 5.0, 1e3, 0.0, 2, devices_per_node=2, inner_bandwidth_bytes_per_s=0.01,
        microbatches=(2,), objective="iteration",
    )  # fmt: skip
    for objective, seconds in (("iteration", 102.0), ("tps", 51.0)):
        result = planner.solve(replace(instance, objective=objective), exact=True, method="cpsat" if
                               objective == "tps" else "cpsat-orders")  # fmt: skip
        assert result.status is Status.OPTIMAL and result.objective == pytest.approx(seconds)


def test_what_it_does_not_take() -> None:
    (method,) = [each for each in FAMILY.methods if each.name == "cpsat-orders"]
    small = replace(mmt(2, 4), objective="iteration")
    assert method.misfit(replace(small, microbatches=(64, 128))) is None
    assert "objective tps" in str(method.misfit(replace(small, objective="tps")))
    assert "schedule kfkb" in str(method.misfit(replace(small, schedule="kfkb")))
    with pytest.raises(UsageError, match="rows on warm-ups"):
        planner.model(replace(small, microbatches=(1,)), "cpsat-orders")
