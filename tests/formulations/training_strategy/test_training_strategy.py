"""Training strategies: definition by hand, rules one by one, and the formula."""

from dataclasses import replace
from typing import Any

import pytest
from equal_chains import CHAIN, DUALPIPE_V, F1B, GPIPE, INTERLEAVED, ZB, ZB_H2, ZB_V, equal_layers, plan, saying

import planner
from formulations.simulation.orders import SCHEDULES
from formulations.simulation.simulate_graph import peak_in_flight
from formulations.training_strategy import FAMILY, exact, heuristics
from formulations.training_strategy.definition.clock import clock
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import (
    ChunkTimes,
    chunk_times,
    evaluate,
    exposed_sum,
    iteration,
    peak_memory,
    violations,
)
from formulations.training_strategy.degrees import Degrees
from formulations.training_strategy.fixed_orders import fullest, in_flight
from formulations.training_strategy.questions.alternatives import pins
from formulations.training_strategy.questions.what_if import rows
from instances.errors import InstanceError
from instances.problems.stage_partitioning import CostModel, Edge, Layer, StageInstance, Tmpc
from instances.problems.training_strategy import Schedule, StrategyInstance, check, of_chain
from planner import Status
from solvers.outcome import Limits, Watch


@pytest.mark.parametrize(
    ("given", "time"),
    [
        # Bubbles: (p - 1) t, V chunks (p - 1)/V t (Narayanan et al. 2021), ZB-H1 (p - 1) (f + b - w) (Qi et al. 2024).
        (plan(4, 4), 11 * 3),
        (plan(4, 4, GPIPE), 11 * 3),
        (plan(4, 8), 11 * 6),
        (plan(4, 8, INTERLEAVED, V=2), 8 * 6 + 3 * 3),
        (plan(4, 4, ZB), 8 * 3 + 3),
        # Those of equal times: ZB-H2's is ZB-H1's, in a V it is half of that, chunks taking half as long.
        (plan(4, 4, ZB_H2), 8 * 3 + 3),
        (plan(4, 8, ZB_V, V=2), 8 * 6 + 3),
        (plan(4, 8, DUALPIPE_V, V=2), 8 * 6 + 3),
        # Two replicas run 4 micro-batches each, and sum 4 bytes of weights of a stage: 4 * 1/2 * 4 bytes at 1 byte/s.
        (plan(2, 4, d=2), 5 * 6 + 8),
        # Recomputation is part of B: t = 4.
        (plan(4, 4, way="again"), 11 * 4),
        (plan(4, 4, ZB, way="again"), 8 * 4 + 3 * 2),
    ],
)
def test_iterations_by_hand(given: StrategyPlan, time: float) -> None:
    count = sum(map(len, given.chunks))
    instance = equal_layers(count, schedules=tuple(Schedule), V=2)
    assert not violations(instance, given)
    assert evaluate(instance, given) == pytest.approx(time, rel=1e-12)
    formula = clock(instance, given).formula_s
    assert (formula is None) == (given.virtual_stages > 1)
    if formula is not None:  # of equal stages it is the iteration, unless W is split off
        assert (formula == pytest.approx(time, rel=1e-12)) if given.schedule in (F1B, GPIPE) else formula > time


@pytest.mark.parametrize(
    ("schedule", "times", "way", "time"),
    [
        # F 1, B 1.5, W 0.5: the bubble is (p - 1) (f + b - w), three times that of thirds less W.
        (ZB, (0.5,) * 4, "keep", 8 * 3 + 3 * 2),
        (ZB, (0.5,) * 4, "again", 8 * 4 + 3 * 3),  # what is recomputed is part of B
        (ZB, (1.0,) * 4, "keep", 8 * 3 + 3),
        (F1B, (0.5,) * 4, "keep", 11 * 3),
    ],
)
def test_weight_gradients_take_what_layers_say(
    schedule: Schedule, times: tuple[float | None, ...], way: str, time: float
) -> None:
    instance, given = saying(equal_layers(4, schedules=(schedule,)), *times), plan(4, 4, schedule, way=way)
    check(instance, "instance")
    assert not violations(instance, given) and evaluate(instance, given) == pytest.approx(time, rel=1e-12)


def test_weight_gradients_send_nothing_and_hide_sums_of_gradients() -> None:
    """Of 3 s that cross, 1 s is in F and 2 s in B; a layer's W of 0.5 s hides as much of what the one behind sums."""
    instance, given = saying(equal_layers(2, schedules=(ZB,), num_microbatches=2), 0.5, None), plan(2, 2, ZB)
    instance = replace(instance, flat=replace(instance.flat, edges=(Edge(0, 1, 1.5),)))
    # A layer that says nothing beside one that does has a third.
    assert chunk_times(instance, given, (0,)) == ChunkTimes(2.0, 3.5, 0.5)
    assert chunk_times(instance, given, (1,)) == ChunkTimes(2.0, 3.0, 1.0)
    one = replace(saying(equal_layers(2, schedules=(ZB,)), 0.5, 0.5), overlaps_gradients=True)
    assert exposed_sum(one, plan(1, 2, ZB, d=2)) == pytest.approx(2 * 4 - 0.5)
    assert exposed_sum(one, plan(1, 2, d=2)) == pytest.approx(2 * 4 - 2)


def test_transfers_are_in_the_passes_and_gradients_of_a_device_follow_each_other() -> None:
    instance = equal_layers(4, schedules=(F1B, INTERLEAVED), V=2, num_microbatches=2, num_devices=4)
    sent = replace(instance.flat, edges=tuple(Edge(v, v + 1, 3.0) for v in range(3)), num_microbatches=2)
    # Two stages of two layers: 6 + 2 * 3 bytes at 1 byte/s each.
    assert evaluate(replace(instance, flat=sent), plan(2, 4)) == pytest.approx(3 * 12)
    both = evaluate(instance, plan(2, 4, INTERLEAVED, V=2))
    assert both == pytest.approx(2 * 6 + 3)
    four = replace(instance, flat=replace(instance.flat, num_microbatches=4))
    assert evaluate(four, plan(2, 4, INTERLEAVED, d=2, V=2)) == pytest.approx(both + 4 * 1 / 2 * 4)


@pytest.mark.parametrize(
    ("given", "peak"),
    [
        # 4 static bytes a layer, and a byte for each micro-batch in flight: p - i, all, or p.
        (plan(4, 4), [8, 7, 6, 5]),
        (plan(4, 4, GPIPE), [12] * 4),
        (plan(4, 4, ZB), [8] * 4),
        (plan(4, 4, ZB_H2), [11] * 4),
        (plan(2, 4, ZB_V, V=2), [8 + 4] * 2),
        (plan(2, 4, DUALPIPE_V, V=2), [8 + 5] * 2),
        (plan(4, 4, way="again"), [4] * 4),
        # 2 (p - 1 - i) + (V - 1) p + 1 chunks.
        (plan(2, 4, INTERLEAVED, V=2), [8 + 5, 8 + 3]),
    ],
)
def test_peaks_by_hand(given: StrategyPlan, peak: list[float]) -> None:
    instance = equal_layers(4, schedules=tuple(Schedule), V=2)
    assert peak_memory(instance, given) == peak
    for limit, fits in ((max(peak), True), (max(peak) - 0.5, False)):
        tight = replace(instance, flat=replace(instance.flat, memory_bytes=float(limit)))
        assert [broken.rule for broken in violations(tight, given)][:1] == ([] if fits else ["memory"])


def test_a_plan_file_says_what_a_reader_needs_to_run_it() -> None:
    instance, given = equal_layers(4), plan(2, 4, d=2)
    content = FAMILY.plan_to_json(instance, given)
    assert (content["num_microbatches"], content["sharded"]) == (8, False)
    without = {key: value for key, value in content.items() if key not in ("num_microbatches", "sharded")}
    assert FAMILY.plan_from_json(instance, content) == FAMILY.plan_from_json(instance, without) == given
    with pytest.raises(InstanceError, match="num_microbatches is 4; expected 8, the instance's"):
        FAMILY.plan_from_json(instance, content | {"num_microbatches": 4})
    with pytest.raises(InstanceError, match="sharded is True; expected false"):
        FAMILY.plan_from_json(instance, content | {"sharded": True})


WHOLE = plan(2, 4)


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        (replace(WHOLE, chunks=((0, 1), (2,))), "cover"),
        (replace(WHOLE, chunks=((0, 1), (2, 3, 3))), "cover"),
        (replace(WHOLE, chunks=((0, 1, 2, 3), ())), "cover"),
        (replace(WHOLE, chunks=((0, 1), (2, 3, "x"))), "cover"),
        (replace(WHOLE, pp_degree=3), "cover"),
        (replace(WHOLE, virtual_stages=2), "cover"),
        (replace(WHOLE, tmpcs={**WHOLE.tmpcs, 2: "none"}), "tmpc"),
        (replace(WHOLE, tp_degree=2), "tmpc"),
        (replace(WHOLE, chunks=((2, 3), (0, 1))), "order"),
        (replace(WHOLE, chunks=((0, 2), (1, 3))), "order"),
        (replace(WHOLE, dp_degree=4), "devices"),
        (replace(WHOLE, pp_degree=1, chunks=((0, 1, 2, 3),), dp_degree=3), "dp_degree"),
        (replace(WHOLE, schedule=GPIPE), "schedule"),
        (replace(plan(1, 4), schedule=INTERLEAVED, virtual_stages=4, chunks=((0,), (1,), (2,), (3,))), "schedule"),
    ],
)
def test_each_rule_alone(wrong: StrategyPlan, rule: str) -> None:
    instance = equal_layers(4, schedules=(F1B, INTERLEAVED), V=4)
    assert violations(instance, WHOLE) == ()
    assert {broken.rule for broken in violations(instance, wrong)} == {rule}


def test_replicas_are_at_most_what_the_instance_allows_and_interleaving_needs_whole_groups() -> None:
    instance = equal_layers(4, max_dp_degree=1)
    assert [broken.rule for broken in violations(instance, plan(1, 4, d=2))] == ["dp_degree"]
    odd = equal_layers(4, schedules=(INTERLEAVED,), V=2, num_microbatches=7)
    assert [broken.rule for broken in violations(odd, plan(2, 4, INTERLEAVED, V=2))] == ["schedule"]


@pytest.mark.parametrize(
    ("m", "given", "words"),
    [
        (8, plan(4, 4, ZB_V), "zb-v: 1 chunks on each of 4 devices; expected 2 on at least 2 devices"),
        (8, plan(1, 4, ZB_V, V=2), "zb-v: 2 chunks on each of 1 devices; expected 2 on at least 2 devices"),
        (3, plan(2, 4, DUALPIPE_V, V=2), "expected at least 4 micro-batches, not 3"),
    ],
)
def test_a_v_has_two_chunks_on_each_of_several_devices(m: int, given: StrategyPlan, words: str) -> None:
    instance = equal_layers(4, schedules=(ZB_V, DUALPIPE_V), num_microbatches=m)
    assert [(broken.rule, words in broken.message) for broken in violations(instance, given)] == [("schedule", True)]
    if given.pp_degree > 1:
        with pytest.raises(ValueError, match=r"two chunks|micro-batches"):
            evaluate(instance, given)


def test_what_stays_on_a_device_of_a_v_takes_nothing() -> None:
    """Chunks 0 and 3 are on the first of two devices, 1 and 2 on the other one; at 1 byte/s, sent and received."""
    edges = ((0, 1, 1.5), (1, 2, 1.5), (2, 3, 1.5), (0, 2, 1.5), (0, 3, 6.0))
    flat = replace(equal_layers(4).flat, edges=tuple(Edge(*each) for each in edges))
    instance = StrategyInstance(flat, (ZB_V, INTERLEAVED), 2)
    for schedule, forward in ((ZB_V, (3.0, 2.0, 3.0, 2.0)), (INTERLEAVED, (7.0, 3.0, 4.0, 6.0))):
        given = plan(2, 4, schedule, V=2)
        assert tuple(chunk_times(instance, given, chunk).forward for chunk in given.chunks) == forward
    given = plan(2, 4, ZB_V, V=2)
    assert [row["devices"] for row in FAMILY.breakdown(instance, given).rows] == [[0], [1], [1], [0]]
    assert [row["nodes"] for row in rows(instance, given)] == [[0, 3], [1, 2]]
    assert max(pin.most for pin in pins(of_chain(flat, (ZB_V,)), given) if pin.quantity == "virtual_stages") == 2


@pytest.mark.parametrize(
    ("flat", "given", "words"),
    [
        (replace(CHAIN, edges=CHAIN.edges[:1]), {}, "edges is 'without 1 -> 2'; expected a chain"),
        (replace(CHAIN, exactly=True), {}, "exactly is True"),
        (replace(CHAIN, cost_model=CostModel.RUNTIME), {}, "cost_model is 'runtime'"),
        (replace(CHAIN, requirements=("num_stages <= 2",)), {}, "requirements"),
        (CHAIN, {"virtual_stages": 2}, "virtual_stages is 2; expected at least 2 with the schedule interleaved"),
        (CHAIN, {"schedules": (INTERLEAVED,)}, "virtual_stages is 1"),
        (CHAIN, {"schedules": ()}, "at least one schedule"),
        (CHAIN, {"schedules": (F1B, F1B)}, "schedules"),
        (
            replace(CHAIN, layers=(Layer(0, {1: (Tmpc("a", 1, 1, 1, 1), Tmpc("b", 1, 2, 1, 1))}), *CHAIN.layers[1:])),
            {},
            "weight_bytes of node 0, degree 1, TMPC b is 2.0; expected 1.0, as in TMPC a",
        ),
        (
            replace(CHAIN, layers=(replace(CHAIN.layers[0], weight_times={1: 2.5}), *CHAIN.layers[1:])),
            {},
            "weight_times of node 0, degree 1 is 2.5; expected at most 2, its least backward pass",
        ),
    ],
)
def test_instances_that_are_refused(flat: StageInstance, given: dict[str, Any], words: str) -> None:
    with pytest.raises(InstanceError) as caught:
        planner.solve(StrategyInstance(flat, **given))
    assert words in str(caught.value)


def test_a_flat_file_is_read_with_overrides() -> None:
    made = planner.load(
        "chain8", problem="training_strategy", devices=3, schedule="interleaved,zb-h1", virtual_stages=3
    )
    assert (made.flat.num_devices, made.schedules, made.virtual_stages) == (3, (INTERLEAVED, ZB), 3)
    assert made.options["schedule"] == "interleaved,zb-h1"
    with pytest.raises(InstanceError, match=r"a chain.*--linearize"):
        planner.load("diamond", problem="training_strategy")
    assert planner.solve(planner.load("diamond", problem="training_strategy", linearize="id")).status is Status.OPTIMAL


def test_micro_batches_in_flight_are_those_of_the_orders() -> None:
    for schedule in (F1B, GPIPE, ZB, ZB_H2):
        for p in range(1, 6):
            for m in range(1, 9):
                orders = SCHEDULES[schedule].orders(p, m, 1)
                degrees = Degrees(schedule, 1, p, 1, 1, m)
                assert [in_flight(degrees, i) for i in range(p)] == [peak_in_flight(order) for order in orders]
    assert [max(map(sum, rows)) for rows in fullest(INTERLEAVED, 4, 8, 2)] == [11, 9, 7, 5]


def test_the_formula_is_exact_where_stages_are_equal_and_even_splits_divide() -> None:
    instance = equal_layers(8)
    found = {method.name: planner.solve(instance, method=method.name) for method in FAMILY.methods}
    assert found["exact"].status is Status.OPTIMAL
    for name in ("even", "formula"):
        assert found[name].objective == pytest.approx(found["exact"].objective)


def test_even_splits_recompute_the_first_blocks_of_all_chunks() -> None:
    """Memory for 8 + 5 bytes on the first of two devices of 1F1B: 3 layers hold 2 micro-batches each."""
    instance = equal_layers(6, num_devices=2, memory_bytes=16.0, max_dp_degree=1)
    found = heuristics.even(instance, Limits(), Watch())
    assert found.plan is not None
    assert found.plan.tmpcs == {0: "again", 1: "keep", 2: "keep", 3: "again", 4: "keep", 5: "keep"}
    proved = exact.solve(instance, Limits(), Watch())
    assert proved.plan is not None and evaluate(instance, proved.plan) <= evaluate(instance, found.plan)
    assert iteration(instance, found.plan).makespan_s == evaluate(instance, found.plan)
