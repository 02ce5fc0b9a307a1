"""The definition of stage partitioning, computed by hand: every rule alone, both cost models, walks along bounds."""

from dataclasses import replace
from typing import Any

import pytest
from oracles.stage_partitioning import Best, brute_force
from strategies import random_stage_instance

import planner
from formulations.contract.figures.throughput import throughput
from formulations.flushed_partitioning.definition.plan_figures import breakdown as flushed_breakdown
from formulations.stage_partitioning import FAMILY
from formulations.stage_partitioning.definition.plan import Stage, StagePlan, plan_from_json
from formulations.stage_partitioning.definition.plan_figures import breakdown
from formulations.stage_partitioning.definition.problem import (
    allowed_dp_degrees,
    evaluate,
    stage_memory,
    stage_time,
    suffix_sums,
    violations,
)
from instances.exchange import to_json
from instances.problems.stage_partitioning import CostModel, Edge, Layer, StageInstance, Tmpc

#: Nodes 1 -> 2 -> 3 (10 and 6 bytes), B = 2, N = 4, K = 4, M = 9.
CHAIN = StageInstance(
    name="chain",
    layers=(
        Layer(1, {1: (Tmpc("x", 8, 4, 2, 3),)}),
        Layer(2, {1: (Tmpc("x", 12, 8, 1, 4), Tmpc("y", 16, 8, 0, 2)), 2: (Tmpc("x", 7, 4, 1, 2, {1: 5}, {3: 3}),)}),
        Layer(3, {1: (Tmpc("x", 6, 2, 1, 1),), 2: (Tmpc("x", 4, 1, 1, 1, {2: 1}),)}),
    ),
    edges=(Edge(1, 2, 10), Edge(2, 3, 6)),
    num_devices=4,
    memory_bytes=9,
    bandwidth=2,
    num_microbatches=4,
)


def stage(*nodes: int, d: int = 1, t: int = 1, **tmpcs: str) -> Stage:
    """A stage that runs every node with TMPC x, unless ``n2="y"`` says otherwise."""
    return Stage(nodes, d, t, {node: tmpcs.get(f"n{node}", "x") for node in nodes})


def plan(*stages: Stage) -> StagePlan:
    return StagePlan(stages)


TWO = plan(stage(1), stage(2, 3, d=2))


def rules(instance: StageInstance, tried: StagePlan) -> list[str]:
    return [violation.rule for violation in violations(instance, tried)]


def plan_of(best: Best) -> StagePlan:
    return StagePlan(
        tuple(Stage(nodes, d, t, dict(zip(nodes, tmpcs, strict=True))) for nodes, d, t, tmpcs in best.stages)
    )


def test_stage_time_in_the_papers_cost_model():
    # 8, and 2 * 10 bytes out at 2 bytes per unit.
    assert stage_time(CHAIN, TWO.stages[0]) == 18
    # (12 + 6) / 2, then 2 * 10 / 2 bytes in, and 4 * 1/2 * (8 + 2) / 2 bytes of weights: 9 + 5 + 5.
    assert stage_time(CHAIN, TWO.stages[1]) == 19
    assert evaluate(CHAIN, TWO) == 19


def test_stage_time_in_the_released_cost_model():
    released = replace(CHAIN, cost_model=CostModel.RELEASED)
    # The weights cost 4 * 1/2 * (8 + 2) / N bytes: 9 + 5 + 2.5.
    assert stage_time(released, TWO.stages[1]) == 16.5
    assert evaluate(released, TWO) == 18


def test_synchronisation_counts_only_on_edges_that_leave_the_stage():
    assert stage_time(CHAIN, stage(2, t=2)) == 7 + 2 * (10 + 5) / 2 + 2 * (6 + 3) / 2
    assert stage_time(CHAIN, stage(2, 3, t=2)) == 7 + 4 + 2 * (10 + 5) / 2
    assert stage_time(CHAIN, stage(3, t=2)) == 4 + 2 * (6 + 1) / 2
    assert stage_time(CHAIN, stage(1, 2, 3)) == 26


def test_an_edge_past_a_stage_costs_its_two_ends_only():
    skip = replace(CHAIN, edges=(*CHAIN.edges, Edge(1, 3, 100)))
    assert stage_time(skip, stage(2)) == stage_time(CHAIN, stage(2))
    assert stage_time(skip, stage(1)) == 8 + 10 + 100
    assert stage_time(skip, stage(3)) == 6 + 6 + 100


def test_suffix_sums_and_memory():
    three = plan(stage(1, d=3), stage(2, d=2), stage(3))
    assert suffix_sums(three) == [6, 3, 1]
    # ceil(6/3) = 2 and ceil(3/2) = 2 micro-batches in flight.
    assert stage_memory(CHAIN, three.stages[0], 6) == 2 * 2 + 3
    assert stage_memory(CHAIN, three.stages[1], 3) == 1 * 2 + 4
    assert suffix_sums(plan()) == []


def test_evaluate_refuses_what_it_cannot_price():
    with pytest.raises(ValueError, match="no stage"):
        evaluate(CHAIN, plan())
    with pytest.raises(ValueError, match="no node 4"):
        evaluate(CHAIN, plan(stage(4)))
    with pytest.raises(ValueError, match="no TMPC 'z'"):
        evaluate(CHAIN, plan(stage(1, 2, 3, n2="z")))


@pytest.mark.parametrize(
    ("tried", "rule"),
    [
        (plan(stage(1), stage(2)), "cover"), (plan(stage(1), stage(2, 1), stage(3)), "cover"),
        (plan(stage(1, 2), stage(3), stage()), "cover"), (plan(stage(1, 2, 3, 7)), "cover"),
        (plan(stage(1), stage(2, 3, d=2, n2="z")), "tmpc"), (plan(stage(1, t=2), stage(2, 3)), "tmpc"),
        (plan(stage(1), stage(2, t=2, n2="y"), stage(3)), "tmpc"), (plan(stage(1, 3, n3="x"), stage(2)), "order"),
        (plan(stage(2, 3), stage(1)), "order"), (plan(stage(1), stage(2, 3, d=4)), "devices"),
        (plan(stage(1), stage(2, 3, d=2, t=2)), "devices"),
    ],
)  # fmt: skip
def test_a_plan_that_breaks_one_rule_is_rejected_by_its_name(tried: StagePlan, rule: str):
    roomy = replace(CHAIN, memory_bytes=1000, num_microbatches=8)
    assert set(rules(roomy, tried)) == {rule}


def test_devices_at_and_above_the_bound():
    tried = plan(stage(1), stage(2, 3, d=1, t=2))
    assert rules(replace(CHAIN, num_devices=3), tried) == []
    assert rules(replace(CHAIN, num_devices=2), tried) == ["devices"]


@pytest.mark.parametrize(("N", "broken"), [(4, []), (3, []), (2, ["microbatches"])])
def test_microbatches_below_at_and_above_the_bound(N: int, broken: list[str]):
    assert rules(replace(CHAIN, num_microbatches=N), TWO) == broken


@pytest.mark.parametrize(("N", "broken"), [(4, ["microbatches"]), (3, []), (2, ["microbatches"])])
def test_exactly_n_microbatches(N: int, broken: list[str]):
    assert rules(replace(CHAIN, num_microbatches=N, exactly=True), TWO) == broken


@pytest.mark.parametrize(("M", "broken"), [(9.001, []), (9, []), (8.999, ["memory"])])
def test_memory_below_at_and_above_the_bound(M: float, broken: list[str]):
    # Stage 1 holds ceil(3/1) * 2 + 3 = 9 bytes, the other 7.
    assert rules(replace(CHAIN, memory_bytes=M), TWO) == broken


def test_memory_forgives_float_noise_only():
    assert rules(replace(CHAIN, memory_bytes=9 * (1 - 1e-13)), TWO) == []
    assert rules(replace(CHAIN, memory_bytes=9 * (1 - 1e-11)), TWO) == ["memory"]


def test_memory_counts_the_stages_that_come_later():
    # Alone, node 1 would hold 2 + 3; with two more micro-batches behind it, 2 * 3 + 3.
    short = replace(CHAIN, memory_bytes=8)
    assert rules(short, TWO) == ["memory"]
    assert rules(short, plan(stage(1), stage(2, 3))) == []


def test_dp_degrees_that_the_cost_models_allow():
    assert allowed_dp_degrees(replace(CHAIN, num_devices=9, num_microbatches=6)) == (1, 2, 3, 4, 5, 6)
    released = replace(CHAIN, num_devices=9, num_microbatches=6, cost_model=CostModel.RELEASED)
    assert allowed_dp_degrees(released) == (1, 2, 3, 6)
    assert allowed_dp_degrees(replace(released, max_dp_degree=5)) == (1, 2, 3)
    assert allowed_dp_degrees(replace(released, num_devices=2)) == (1, 2)


def test_a_dp_degree_that_is_not_allowed():
    three = plan(stage(1), stage(2, 3, d=3))
    assert rules(replace(CHAIN, memory_bytes=1000), three) == []
    assert rules(replace(CHAIN, memory_bytes=1000, cost_model=CostModel.RELEASED), three) == ["dp_degree"]
    assert rules(replace(CHAIN, memory_bytes=1000, max_dp_degree=2), three) == ["dp_degree"]
    assert "dp_degree" in rules(CHAIN, plan(stage(1), stage(2, 3, d=0)))


def test_unknown_nodes_of_a_plan_are_violations_not_errors():
    nowhere = {"nodes": ["nowhere"], "dp_degree": 1, "tp_degree": 1, "tmpcs": {"nowhere": "x"}}
    assert "cover" in rules(CHAIN, FAMILY.plan_from_json(CHAIN, {"stages": [nowhere]}))


def test_the_oracles_plans_are_feasible_and_cost_what_it_says(cases: int):
    solved = 0
    for seed in range(cases):
        instance = random_stage_instance(seed)
        best = brute_force(instance)
        if best is not None:
            solved += 1
            assert violations(instance, plan_of(best)) == ()
            assert evaluate(instance, plan_of(best)) == pytest.approx(best.time, rel=1e-12, abs=1e-12)
    assert solved > cases / 3


#: Two samples of 512 tokens in a micro-batch, 1e12 operations each time.
FACTS: dict[str, Any] = {
    "microbatch": 2, "seq-len": 512, "forward-flops": 1e12, "hardware": "h100", "dtype": "bf16"
}  # fmt: skip


def chain(**facts: Any) -> Any:
    return replace(planner.load("chain8", devices=4, microbatches=8), options=facts)


def test_a_batch_in_samples_tokens_and_operations() -> None:
    found = throughput(chain(**FACTS), 0.01)
    assert (found["batch_samples"], found["batch_tokens"]) == (16, 8192)
    assert found["tokens_per_s"] == pytest.approx(102_400)
    assert found["mfu_share"] == pytest.approx(3e12 / (0.01 * 4 * 989.4e12))
    in_ms = throughput(replace(chain(**FACTS), time_unit="ms"), 10.0)
    assert in_ms == pytest.approx(found)


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"seq-len": None}, {"batch_samples", "samples_per_s", "mfu_share"}),
        ({"hardware": "cpu"}, {"batch_samples", "batch_tokens", "tokens_per_s"}),
        ({"dtype": "float64"}, {"batch_samples", "batch_tokens", "tokens_per_s"}),
        ({"microbatch": None}, set()),
        ({"first": 3}, set()),  # a part of the model
    ],
)
def test_what_the_instance_does_not_say_is_left_out(changed: dict[str, Any], names: set[str]) -> None:
    facts = {name: value for name, value in (FACTS | changed).items() if value is not None}
    assert throughput(chain(**facts), 0.01).keys() == names


def test_figures_of_plans_have_them() -> None:
    instance = chain(**FACTS)
    result = planner.solve(instance, exact=True)
    figures = breakdown(instance, plan_from_json(instance, result.plan)).figures
    assert figures["batch_time"] == pytest.approx(8 * result.objective)
    assert figures["tokens_per_s"] == pytest.approx(1024 / result.objective)
    assert "batch_time" not in breakdown(chain(), plan_from_json(instance, result.plan)).figures
    flushed = planner.load(to_json(instance), problem="flushed_partitioning")
    found = planner.solve(flushed, exact=True)
    shown = flushed_breakdown(flushed, plan_from_json(flushed.flat, found.plan)).figures
    assert shown["tokens_per_s"] == pytest.approx(8192 / shown["batch_time"])
