"""Paths of priced stages: brute force, prices, depth on graphs with branches, and what is refused."""

import math
from dataclasses import replace

import pytest
from oracles.flushed_partitioning import brute_force, on_machines, random_flushed

from formulations.flushed_partitioning import FAMILY
from formulations.flushed_partitioning.definition.problem import evaluate, step_time, synchronisation_time
from formulations.flushed_partitioning.exact.effort import columns_supports
from formulations.flushed_partitioning.models import milp_columns
from formulations.flushed_partitioning.models.columns import columns_of
from formulations.stage_partitioning.definition.plan import StagePlan
from instances.problems.flushed_partitioning import FlushedInstance, Schedule, flush_pipeline
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from solvers.outcome import Limits, Watch


def test_the_model_finds_the_optimum_by_itself(cases: int) -> None:
    """Without a plan to begin with the steps' target rises until some plan meets it."""
    for seed in range(max(5, cases // 8)):
        instance = random_flushed(seed, same_weights=True)
        best, watch = brute_force(instance), Watch()
        model = milp_columns.model_of(instance, watch)
        run = model.run(Limits(), Watch())
        assert run.infeasible is (best is None)
        if best is not None:
            assert evaluate(instance, model.decode(run.values)) == pytest.approx(best, rel=1e-6), seed
            assert watch.best_objective >= best * (1 - 1e-9)
            assert model.lower_bound(run.bound) <= best * (1 + 1e-12)


def branches(ends: list[tuple[str, str]], weight: float = 9.0) -> FlushedInstance:
    """A stage for each node, of one device: memory has room for no more, and weights forbid replicas."""
    names = sorted({node for pair in ends for node in pair})
    layers = tuple(Layer(v, {1: (Tmpc("only", 1.0, weight, 0.0, 1.0),)}) for v in names)
    edges = tuple(Edge(u, v, 0.0) for u, v in ends)
    return flush_pipeline(StageInstance("branches", layers, edges, len(names), 1.0, 1.0, 4))


@pytest.mark.parametrize(
    ("ends", "depth"),
    [
        ([("a", "b"), ("b", "c")], 3),
        ([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")], 3),
        ([("a", "c"), ("b", "c"), ("b", "d")], 2),
        ([("a", "d"), ("b", "c"), ("c", "d"), ("a", "b")], 4),
    ],
)
def test_the_depth_of_graphs_with_branches(ends: list[tuple[str, str]], depth: int) -> None:
    """Every node is a stage: only the longest path of the graph counts, and on a chain all of it."""
    instance = branches(ends)
    model = milp_columns.model_of(instance)
    run = model.run(Limits(), Watch())
    assert evaluate(instance, model.decode(run.values)) == pytest.approx(1 + (depth - 1) / 4)
    assert model.lower_bound(run.bound) == pytest.approx(1 + (depth - 1) / 4, rel=1e-5)


def test_a_path_through_nodes_that_no_edge_joins() -> None:
    """The stage of b and c is entered at b and left from c: three stages are a path, though no three nodes are."""
    layers = [Layer(v, {1: (Tmpc("only", time, 9.0, 0.0, size),)})
              for v, time, size in (("a", 2.0, 2.0), ("b", 1.0, 1.0), ("c", 1.0, 1.0), ("d", 2.0, 2.0))]  # fmt: skip
    edges = (Edge("a", "b", 0.0), Edge("c", "d", 0.0))
    instance = flush_pipeline(StageInstance("across", tuple(layers), edges, 3, 2.0, 1.0, 4))
    together = replace(instance, requirements=("same_stage(b, c)",))
    assert brute_force(instance) == pytest.approx(2 * (1 + 2 / 4))  # three devices: b and c share one
    for each in (instance, together):
        model = milp_columns.model_of(each, complete=True)
        run = model.run(Limits(), Watch())
        assert model.lower_bound(run.bound) == pytest.approx(3.0, rel=1e-5)


@pytest.mark.parametrize("schedule", list(Schedule))
def test_a_stage_costs_what_the_definition_says(schedule: Schedule, cases: int) -> None:
    looked_at = 0
    for seed in range(max(6, cases // 10)):
        instance = replace(random_flushed(seed, same_weights=True), schedule=schedule)
        columns = columns_of(instance, Watch(), complete=True)
        for arc in columns.arcs(whole=True)[::2]:
            chosen = columns.prices.decisions_of(arc.block, arc.tp_degree, arc.dp_degree, arc.in_flight, columns.target)
            (stage,) = columns.prices.terms.plan([chosen]).stages
            assert step_time(instance, stage) == pytest.approx(arc.time, rel=1e-9)
            assert synchronisation_time(instance, stage) == pytest.approx(columns.synchronisation(arc), rel=1e-9)
            looked_at += 1
        if columns.possible:
            assert FAMILY.judge(instance, columns.plan()) == ()
    assert looked_at > 20


def test_a_shorter_synchronisation_is_kept() -> None:
    """Between the same states a slower stage on no fewer devices may synchronise for less time: it is not left out."""
    node = Layer("v", {1: (Tmpc("whole", 2.0, 100.0, 0.0, 0.0),), 2: (Tmpc("half", 3.0, 1.0, 0.0, 0.0),)})
    instance = flush_pipeline(StageInstance("one", (node,), (), 4, 1.0, 1.0, 2))
    watch = Watch()
    watch.plan(StagePlan(()), 50.0)
    model = milp_columns.model_of(instance, watch)
    assert evaluate(instance, model.decode(model.run(Limits(), Watch()).values)) == brute_force(instance)
    found = {(arc.tp_degree, arc.dp_degree) for arc in columns_of(instance, Watch(), complete=True).arcs()}
    assert {(1, 2), (2, 2)} <= found and (2, 1) not in found


@pytest.mark.parametrize("known", [5.0, None])
def test_a_better_plan_that_requirements_exclude_narrows_nothing(known: float | None) -> None:
    """Two layers are best in one stage on two devices; in two stages the slower one has a device alone."""
    layers = tuple(Layer(v, {1: (Tmpc("only", time, 0.0, 0.0, 0.0),)}) for v, time in (("a", 1.0), ("b", 3.0)))
    flat = StageInstance("two", layers, (Edge("a", "b", 0.0),), 2, 1.0, 1.0, 2)
    instance = replace(flush_pipeline(flat), requirements=("num_stages >= 2",))
    watch = Watch()
    if known is not None:
        watch.plan(StagePlan(()), known)
    model = milp_columns.model_of(instance, watch)
    assert evaluate(instance, model.decode(model.run(Limits(), Watch()).values)) == pytest.approx(4.5)


def test_what_columns_do_not_take() -> None:
    instance = random_flushed(0, same_weights=True)
    assert columns_supports(instance) is None
    machines = next(found for found in map(on_machines, range(20)) if found.devices_per_machine is not None)
    assert "labels does" in str(columns_supports(machines))
    options = (Tmpc("one", 1.0, 1.0, 0.0, 0.0), Tmpc("other", 2.0, 0.0, 0.0, 0.0))
    uneven = replace(instance.flat, layers=(Layer("v", {1: options}),), edges=())
    assert "differ in their weights" in str(columns_supports(replace(instance, flat=uneven)))
    assert math.isfinite(columns_of(instance, Watch(), complete=True).target)
