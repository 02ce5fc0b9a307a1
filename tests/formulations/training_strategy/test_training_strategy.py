"""Training strategies: definition by hand, rules one by one, bounds, and the exact search against brute force."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from load import allowed_s
from oracles.training_strategy import optimum, random_instance, sharing
from small_instances import random_case

import planner
from formulations.simulation.iteration import simulate
from formulations.simulation.orders import SCHEDULES
from formulations.simulation.simulate_graph import peak_in_flight
from formulations.training_strategy import FAMILY, costs, exact, heuristics, layouts, mixed_paths
from formulations.training_strategy.costs import Chain, Degrees, all_degrees, plan_of
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
from formulations.training_strategy.fixed_orders import FixedOrders, fullest, in_flight
from formulations.training_strategy.layouts import Best, Layouts, Search, places, quick_bound
from formulations.training_strategy.mixed_paths import mixed_costs
from instances.errors import InstanceError
from instances.generators import transformer
from instances.generators.transformer import A100, Architecture
from instances.problems.stage_partitioning import CostModel, Edge, Layer, StageInstance, Tmpc
from instances.problems.training_strategy import Schedule, StrategyInstance, check, of_chain
from planner import Status
from solvers.outcome import Limits, Stop, Watch

F1B, GPIPE, INTERLEAVED, ZB = Schedule


def equal_layers(count: int, **given: Any) -> StrategyInstance:
    """Layers of 3 (F 1, B 2, or B 1 and W 1), 2 bytes of weights, 1 of activations; recomputed: 4, and none."""
    ways = (Tmpc("keep", 3.0, 2.0, 1.0, 4.0), Tmpc("again", 4.0, 2.0, 0.0, 4.0))
    layers = tuple(Layer(v, {1: ways}) for v in range(count))
    flat = {"num_devices": 4, "memory_bytes": 1e9, "bandwidth": 1.0, "num_microbatches": 8, **given}
    schedules, V = flat.pop("schedules", (F1B,)), flat.pop("V", 1)
    edges = tuple(Edge(v, v + 1, 0.0) for v in range(count - 1))
    return of_chain(StageInstance("equal", layers, edges, **flat), schedules, V)


def plan(p: int, count: int, schedule: Schedule = F1B, d: int = 1, V: int = 1, way: str = "keep") -> StrategyPlan:
    """Equal chunks."""
    size = count // (p * V)
    chunks = tuple(tuple(range(size * g, size * (g + 1))) for g in range(p * V))
    return StrategyPlan(p, 1, d, V, schedule, chunks, dict.fromkeys(range(count), way))


@pytest.mark.parametrize(
    ("given", "time"),
    [
        # Bubbles: (p - 1) t, V chunks (p - 1)/V t (Narayanan et al. 2021), ZB-H1 (p - 1) (f + b - w) (Qi et al. 2024).
        (plan(4, 4), 11 * 3),
        (plan(4, 4, GPIPE), 11 * 3),
        (plan(4, 8), 11 * 6),
        (plan(4, 8, INTERLEAVED, V=2), 8 * 6 + 3 * 3),
        (plan(4, 4, ZB), 8 * 3 + 3),
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


def saying(instance: StrategyInstance, *times: float | None) -> StrategyInstance:
    """The layers say how long gradients of their weights take, but for those of ``None``."""
    layers = tuple(
        layer if own is None else replace(layer, weight_times={1: own})
        for layer, own in zip(instance.flat.layers, times, strict=True)
    )
    return replace(instance, flat=replace(instance.flat, layers=layers))


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


CHAIN = equal_layers(3).flat


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


def test_a_search_that_may_leave_a_gap_proves_no_more_than_that(cases: int) -> None:
    """It ends with degrees that are not searched: its bound is theirs, not the plan's time."""
    left = 0
    for seed in range(2 * cases):
        instance = random_instance(random.Random(1000 + seed), most_layers=3)
        best = optimum(instance)
        for gap in (0.02, 0.1, 0.4):
            answer = exact.solve(instance, Limits(gap=gap), Watch(Limits(gap=gap)))
            assert answer.infeasible == (best is None), seed
            if best is not None and answer.plan is not None and answer.bound is not None:
                assert answer.bound <= best * (1 + 1e-9) <= evaluate(instance, answer.plan) * (1 + 2e-9), seed
                left += answer.stop is not Stop.PROVED
    assert left
    uneven_work = [2.0] * 8 + [4.0]
    instance = chain_of([[(each, 0.0, 1.0)] for each in uneven_work], 2, 1e9, 4, (Schedule.INTERLEAVED,), 2)
    answer = exact.solve(instance, Limits(gap=0.3), Watch(Limits(gap=0.3)))
    assert answer.bound is not None and answer.bound <= 44.0
    assert exact.solve(instance, Limits(), Watch()).bound == pytest.approx(44.0)


def chain_of(
    ways: list[list[tuple[float, float, float]]],
    devices: int,
    memory: float,
    batch: int,
    schedules: tuple[Schedule, ...] = (F1B,),
    chunks: int = 1,
) -> StrategyInstance:
    """A chain of layers with ways to run each: time, activations and static bytes."""
    layers = tuple(
        Layer(v, {1: tuple(Tmpc(f"x{i}", time, 0.0, kept, held) for i, (time, kept, held) in enumerate(own))})
        for v, own in enumerate(ways)
    )
    edges = tuple(Edge(v, v + 1, 0.0) for v in range(len(ways) - 1))
    return of_chain(
        StageInstance("chain", layers, edges, devices, memory, 1.0, batch, max_dp_degree=1), schedules, chunks
    )


@pytest.mark.parametrize(
    ("ways", "devices", "memory"),
    [
        ([[(1, 0.1, 0), (2, 0, 0)], [(1, 0.2, 0), (3, 0, 0)], [(1, 0.3, 0), (5, 0, 0)]], 1, 0.0),
        ([[(1, 0.1, 0), (1.5, 0.05, 0), (2, 0, 0)], [(1, 0.2, 0), (3, 0, 0)], [(1, 0.7, 0), (5, 0, 0)]], 1, 0.0),
        ([[(1, 1e17, 0), (2, 0, 0)], [(1, 9, 0)], [(1, 9, 0)]], 3, 10.0),
    ],
)
def test_ways_that_are_far_too_large_hide_no_plan(
    ways: list[list[tuple[float, float, float]]], devices: int, memory: float
) -> None:
    """Sums of bytes with and without them differ by more than the memory has."""
    instance = chain_of(ways, devices, memory, 1)
    answer = exact.solve(instance, Limits(), Watch())
    assert answer.plan is not None and violations(instance, answer.plan) == ()
    assert evaluate(instance, answer.plan) == pytest.approx(optimum(instance))


def test_too_many_ways_end_with_what_is_known() -> None:
    """Bytes and times that double from layer to layer: no way to run some layers beats another one."""
    ways = [[(1.0, 2.0**k, 0.0), (1.0 + 2.0**k, 0.0, 0.0)] for k in range(26)]
    instance = chain_of(ways, 1, 2.0**25, 1)
    answer = exact.solve(instance, Limits(), Watch())
    assert answer.stop is Stop.SIZE_LIMIT and "ways" in answer.reason and not answer.infeasible
    assert heuristics.formula(instance, Limits(), Watch()).stop is Stop.SIZE_LIMIT


def test_heuristics_have_plans_that_keep_the_rules_and_are_no_better(cases: int) -> None:
    plans = 0
    for number in range(2 * cases):
        rng = random.Random(f"heuristic {number}")
        made = random_instance(rng)
        instance = sharing(rng, made) if number % 2 else made
        for method in FAMILY.methods:
            if method.claim == "heuristic" and method.supports(instance) is None:
                watch = Watch()
                watch.evaluate = lambda found, instance=instance: evaluate(instance, found)
                found = method.solve.resolve()(instance, Limits(), watch)
                best = optimum(instance)
                if found.plan is not None and best is not None:
                    assert violations(instance, found.plan) == ()
                    assert watch.best_objective == pytest.approx(evaluate(instance, found.plan), rel=1e-9)
                    assert evaluate(instance, found.plan) >= best * (1 - 1e-9)
                    plans += 1
    assert plans > cases


def all_layouts(instance: StrategyInstance) -> Iterator[tuple[Chain, Degrees, tuple[int, ...], float]]:
    """Degrees, ends of the chunks, and the iteration of the plan with the least recomputation on each device."""
    chains = {t: Chain(instance, t) for t in instance.flat.tp_degrees if t in {d.t for d in all_degrees(instance)}}
    for degrees in all_degrees(instance):
        chain, L = chains[degrees.t], len(instance.chain)
        for inner in combinations(range(1, L), degrees.num_chunks - 1):
            ends = (*inner, L)
            cuts = list(pairwise((0, *ends)))
            rows = (
                fullest(degrees.p, degrees.m, degrees.V)
                if degrees.V > 1
                else [((in_flight(degrees, device),),) for device in range(degrees.p)]
            )
            ways = [chain.choices(cuts[device :: degrees.p], rows[device]) for device in range(degrees.p)]
            if all(ways):
                # With one chunk on a device the first way recomputes least; with several any of them bounds the bound.
                found = plan_of(chain, degrees, ends, [own[0] for own in ways])
                assert violations(instance, found) == ()
                yield chain, degrees, ends, evaluate(instance, found)


def test_no_bound_is_above_a_plan(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for number in range(2 * cases):
        instance = replace(random_case("training_strategy", 9, number), overlaps_gradients=number % 2 == 1)
        instance = replace(instance, makes_again_in_turn=number % 4 > 1)
        monkeypatch.setattr(costs, "_MOST_MADE", 8 * (number % 8 < 4))  # or one bound for all that may be made again
        for chain, degrees, ends, time in all_layouts(instance):
            found = Layouts(chain, degrees)
            seen.add(degrees.schedule)
            own = found.lower[places(ends)].max() + max(found.gradients[places(ends)].max(), found.mean_gradients)
            assert quick_bound(chain, degrees) <= time * (1 + 1e-12), (number, degrees)
            assert found.bound <= own * (1 + 1e-12) and own <= time * (1 + 1e-12), (number, degrees)
    assert seen == set(Schedule)


def test_bounds_of_equal_stages_are_met() -> None:
    """Those of 1F1B and GPipe, and of the last device under ZB-H1: no search is needed there."""
    for schedule in (F1B, GPIPE, ZB):
        for p, m in ((1, 3), (4, 8), *([] if schedule is ZB else [(3, 2)])):
            for own in (None, 0.5, 0.0):  # W of a third, and of less
                instance = saying(equal_layers(p, schedules=(schedule,), num_microbatches=m), *[own] * p)
                found = Layouts(Chain(instance, 1), Degrees(schedule, 1, p, 1, 1, m)).bound
                assert found == pytest.approx(evaluate(instance, plan(p, p, schedule)), rel=1e-12)


def test_passes_that_are_split_may_end_after_the_first_sum() -> None:
    """Under ZB-H1 the weight gradients of the last stage, 4 s, hide the first one's sum of 2 s."""
    layers = tuple(Layer(v, {1: (Tmpc("x", 3.0 + 9 * v, 1.0 - v, 0.0, 0.0),)}) for v in range(2))
    flat = StageInstance("two", layers, (Edge(0, 1, 0.0),), 4, 1.0, 1.0, 8)
    instance, degrees = replace(of_chain(flat, (ZB,)), overlaps_gradients=True), Degrees(ZB, 1, 2, 1, 2, 4)
    batch = evaluate(instance, degrees.plan(((0,), (1,)), {0: "x", 1: "x"}))
    assert batch == Layouts(Chain(instance, 1), degrees).bound == 1 + 4 * 12


def test_paths_of_simulated_layouts_bound_all_others() -> None:
    rng = np.random.default_rng(1)
    for schedule, p, m, V in ((F1B, 4, 6, 1), (GPIPE, 3, 5, 1), (ZB, 4, 7, 1), (INTERLEAVED, 2, 4, 3)):
        fixed, kind = FixedOrders(schedule, p, m, V), SCHEDULES[schedule]
        drawn = [rng.integers(1, 9, (3, p * V)).astype(float) for _ in range(12)]
        runs = [fixed.run(times.tolist()) for times in drawn]
        for times, (makespan, path) in zip(drawn, runs, strict=True):
            stages = [tuple(each) for each in times.tolist()]
            from_definition = simulate(_stages(stages, kind.is_split, p * V), kind.orders(p, m, V)).makespan_s
            assert makespan == from_definition == pytest.approx(float((np.array(path)[:3] * times).sum()))
            assert all(float((np.array(other)[:3] * times).sum()) <= makespan for _, other in runs)


def _stages(times: list[tuple[float, ...]], is_split: bool, count: int) -> Any:
    from formulations.simulation.iteration import Stages

    edges = tuple((g, g + 1) for g in range(count - 1))
    return Stages(times[0], times[1], edges, times[2] if is_split else ())


def test_micro_batches_in_flight_are_those_of_the_orders() -> None:
    for schedule in (F1B, GPIPE, ZB):
        for p in range(1, 6):
            for m in range(1, 9):
                orders = SCHEDULES[schedule].orders(p, m, 1)
                degrees = Degrees(schedule, 1, p, 1, 1, m)
                assert [in_flight(degrees, i) for i in range(p)] == [peak_in_flight(order) for order in orders]
    assert [max(map(sum, rows)) for rows in fullest(4, 8, 2)] == [11, 9, 7, 5]


def test_the_least_recomputation_is_that_of_a_knapsack(cases: int) -> None:
    """Of all intervals, against all choices: never above, and equal where layers are of one kind."""
    for number in range(3 * cases):
        instance = random_instance(random.Random(f"again {number}"), most_layers=5)
        rng, L = random.Random(number), len(instance.chain)
        held, least, most = rng.randint(1, 4), 0.0, 0.0
        for layer in instance.chain:
            needs = [x.static_bytes + held * x.activation_bytes for x in layer.tmpcs[min(layer.tmpcs)]]
            least, most = least + min(needs), most + max(needs)
        memory = least + rng.random() * (most - least)
        chain = Chain(
            replace(instance, flat=replace(instance.flat, memory_bytes=memory)), min(instance.flat.tp_degrees)
        )
        for x, y in combinations(range(L + 1), 2):
            found, choice = chain.least_again(held)[x, y], chain.fastest(x, y, held)
            several = chain.choices([(x, y)], [(held,)])
            assert (choice is None) == (not several)
            if choice is not None:
                assert choice.again[0] == min(own.again[0] for own in several)
                assert found <= choice.again[0] * (1 + 1e-9)
                assert found == pytest.approx(choice.again[0], rel=1e-6, abs=1e-9), "two ways: it is the knapsack"
            else:
                assert math.isinf(found)


def test_layers_of_three_ways_are_bounded_by_the_relaxation() -> None:
    """The way in the middle lies above the hull: two of it are the best choice, and no step of the hull is."""
    ways = (Tmpc("a", 3, 0, 10, 0), Tmpc("b", 4.9, 0, 6, 0), Tmpc("c", 5, 0, 0, 0))
    flat = replace(CHAIN, layers=tuple(Layer(v, {1: ways}) for v in range(3)), memory_bytes=22.0)
    chain = Chain(of_chain(flat), 1)
    exactly = chain.fastest(0, 3, 1)
    assert exactly is not None and 0 < chain.least_again(1)[0, 3] <= exactly.again[0]


@pytest.mark.slow
def test_a_search_that_may_not_simulate_again_is_stopped_with_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound that is reported while a search goes on is never above the optimum."""
    monkeypatch.setattr(layouts, "_TURN", 1)
    for number in range(30):
        instance = random_case("training_strategy", 11, number)
        told: list[tuple[float | None, float | None]] = []
        watch = Watch(Limits(), lambda _, objective, bound, told=told: told.append((objective, bound)))
        found = exact.solve(instance, Limits(), watch)
        best = optimum(instance)
        assert (best is None) == (found.plan is None)
        if best is not None:
            assert evaluate(instance, found.plan) == pytest.approx(best, rel=1e-9), number
            assert all(bound is None or bound <= best * (1 + 1e-9) for _, bound in told)
            assert all(objective is None or objective >= best * (1 - 1e-9) for objective, _ in told)


def test_layouts_that_are_given_up_leave_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "_MOST_OPEN", 4)
    given_up = 0
    for number in range(8):
        instance = uneven(random.Random(f"given up {number}"), 7)
        instance = replace(instance, schedules=(INTERLEAVED,), virtual_stages=2)
        found, best = exact.solve(instance, Limits(), Watch()), optimum(instance)
        assert best is not None and found.plan is not None and found.bound is not None
        time = evaluate(instance, found.plan)
        assert found.bound <= best * (1 + 1e-9) and best <= time * (1 + 1e-9)
        given_up += found.stop is Stop.SIZE_LIMIT
        assert found.stop is Stop.SIZE_LIMIT or time == pytest.approx(best, rel=1e-9)
    assert given_up


def test_a_mean_of_paths_bounds_interleaved_layouts() -> None:
    instance = equal_layers(12, schedules=(INTERLEAVED,), V=3, num_devices=2)
    chain, degrees = Chain(instance, 1), Degrees(INTERLEAVED, 3, 2, 1, 1, 8)
    best = Best(Watch())
    search = Search(Layouts(chain, degrees), best)
    before = search.bound
    while not search.is_done:
        search.turn()
    assert best.plan is not None and before < best.time == pytest.approx(evaluate(instance, best.plan))
    assert best.time == min(time for _, own, _, time in all_layouts(instance) if own == degrees)


def test_the_formula_is_exact_where_stages_are_equal_and_even_splits_divide() -> None:
    instance = equal_layers(8)
    found = {method.name: planner.solve(instance, method=method.name) for method in FAMILY.methods}
    assert found["exact"].status is Status.OPTIMAL
    for name in ("even", "formula"):
        assert found[name].objective == pytest.approx(found["exact"].objective)
    assert "dp" in found["exact"].plan or found["exact"].plan["dp_degree"] in (1, 2, 4)


def test_even_splits_recompute_the_first_blocks_of_all_chunks() -> None:
    """Memory for 8 + 5 bytes on the first of two devices of 1F1B: 3 layers hold 2 micro-batches each."""
    instance = equal_layers(6, num_devices=2, memory_bytes=16.0, max_dp_degree=1)
    found = heuristics.even(instance, Limits(), Watch())
    assert found.plan is not None
    assert found.plan.tmpcs == {0: "again", 1: "keep", 2: "keep", 3: "again", 4: "keep", 5: "keep"}
    proved = exact.solve(instance, Limits(), Watch())
    assert proved.plan is not None and evaluate(instance, proved.plan) <= evaluate(instance, found.plan)
    assert iteration(instance, found.plan).makespan_s == evaluate(instance, found.plan)


def uneven(rng: random.Random, count: int, memory: float = 1e9) -> StrategyInstance:
    """Layers of one device whose times differ by a factor of 4, and that recompute in times of their own."""
    layers = []
    for v in range(count):
        time = rng.uniform(1, 4)
        keep, again = Tmpc("keep", time, 1.0, 1.0, 0.0), Tmpc("again", time + rng.uniform(0.1, 9), 1.0, 0.0, 0.0)
        layers.append(Layer(v, {1: (keep, again)}, weight_times={1: rng.uniform(0, 2 / 3 * time)} if count % 2 else {}))
    edges = tuple(Edge(v, v + 1, rng.random() / 10) for v in range(count - 1))
    flat = StageInstance("uneven", tuple(layers), edges, 4, memory, 1.0, 8)
    return of_chain(flat, tuple(Schedule), 3)


@pytest.mark.parametrize("schedule", Schedule)
def test_searches_of_longer_chains_against_all_their_layouts(schedule: Schedule, cases: int) -> None:
    simulated: list[int] = []
    for number in range(max(3, cases // 3)):
        rng = random.Random(f"uneven {number}")
        memory = 1e9 if schedule is INTERLEAVED else rng.choice([1e9, 5.0, 7.0, 9.0])
        instance = uneven(rng, rng.randint(8, 10), memory)
        p, V = (2, rng.choice([2, 3])) if schedule is INTERLEAVED else (rng.randint(3, 4), 1)
        d = 1 + number % 2  # two replicas sum gradients beside passes
        degrees = Degrees(schedule, V, p, 1, d, rng.choice([4, 8]))
        flat = replace(instance.flat, num_microbatches=d * degrees.m, num_devices=p * d, bandwidth=1 / (4 * d - 3))
        own = replace(instance, flat=flat, schedules=(schedule,), virtual_stages=V, overlaps_gradients=True)
        own = replace(own, requirements=(f"pp_degree == {p}", f"dp_degree == {d}"))
        best = Best(Watch())
        search = Search(Layouts(Chain(own, 1), degrees), best)
        while not search.is_done:
            search.turn()
        simulated.append(best.simulated)
        every = [(time, ends) for _, of, ends, time in all_layouts(own) if of == degrees]
        assert best.time == pytest.approx(min(every)[0], rel=1e-12), number
        for time, ends in every:
            taken = search._taken(ends)
            assert taken.max(initial=0.0) <= time * (1 + 1e-12), number
            costs = [search.layouts.costs(path)[places(ends)].sum() for path in search._paths]
            assert costs == pytest.approx(taken.tolist()), number
        search.best = Best(Watch())  # beginnings that are one chunk longer than the best's, by the paths that are known
        for most in range(p * V):
            search._open = []
            search._branch(min(every)[1][:most], 0.0, 0.0, 0.0)
            for low, _, _, found, *_ in search._open:
                assert low <= min(time for time, ends in every if ends[: most + 1] == found) * (1 + 1e-12), number
    assert schedule is GPIPE or max(simulated) > 1, "bounds alone found all of them"


def mixed_search(instance: StrategyInstance, degrees: Degrees, best: Best) -> Search:
    """A search with the bound that `exact` gives it after its first turn."""
    search = Search(Layouts(Chain(instance, degrees.t), degrees), best)
    search.bound_by(mixed_costs(search.layouts, search.orders, search.device_paths, best.watch.stopped))
    return search


def test_no_mixture_is_above_a_batch(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither all of it, nor what the chunks of any layout add to it, whatever the weights: few rounds do."""
    monkeypatch.setattr(mixed_paths, "_ROUNDS", 4)
    monkeypatch.setattr(mixed_paths, "_STEPS", 10)
    seen = 0
    for number in range(4 * cases):
        instance = replace(random_case("training_strategy", 11, number), overlaps_gradients=number % 2 == 1)
        if INTERLEAVED not in instance.schedules:
            continue
        tables: dict[Degrees, Any] = {}
        for _, degrees, ends, time in all_layouts(instance):
            if degrees.V > 1:
                if degrees not in tables:
                    search = mixed_search(instance, degrees, Best(Watch()))
                    tables[degrees] = (mixed_costs(search.layouts, search.orders, search.device_paths, bool), search)
                table, search = tables[degrees]
                assert float(table[places(ends)].sum()) <= time * (1 + 1e-12), (number, degrees)
                assert search.bound <= time * (1 + 1e-12), (number, degrees)
                seen += 1
    assert seen > 2 * cases


@pytest.mark.slow
def test_a_search_with_a_mixture_finds_the_best_layout(cases: int) -> None:
    """In a better order: its first bound is no lower than that of the search without it, on some chains higher."""
    higher = 0
    for number in range(max(4, cases // 3)):
        rng = random.Random(f"mixed {number}")
        instance = uneven(rng, rng.randint(8, 10), memory=1e9)
        degrees = Degrees(INTERLEAVED, rng.choice([2, 3]), 2, 1, 1, rng.choice([4, 8]))
        own = replace(instance, flat=replace(instance.flat, num_microbatches=degrees.m), schedules=(INTERLEAVED,))
        own = replace(own, virtual_stages=degrees.V)
        best = Best(Watch())
        search = mixed_search(own, degrees, best)
        plain = Search(search.layouts, Best(Watch())).bound
        higher += search.bound > plain * (1 + 1e-6)
        assert search.bound >= plain
        while not search.is_done:
            search.turn()
        every = [(time, ends) for _, of, ends, time in all_layouts(own) if of == degrees]
        assert best.time == pytest.approx(min(every)[0], rel=1e-12), number
        assert all(search._taken(ends).max(initial=0.0) <= time * (1 + 1e-12) for time, ends in every), number
    assert higher > 0


def test_devices_of_several_chunks_recompute_where_it_costs_least(cases: int) -> None:
    """Whichever of its chunks a device recomputes, the others wait for another pass: the cheapest way may be slower."""
    for number in range(2 * cases):
        rng = random.Random(f"several {number}")
        instance = uneven(rng, 4, memory=rng.choice([2.0, 3.0]))
        flat = replace(instance.flat, num_devices=2, num_microbatches=2, max_dp_degree=1)
        instance = of_chain(flat, (INTERLEAVED,), 2)
        best, found = optimum(instance), exact.solve(instance, Limits(), Watch())
        assert best is not None and found.plan is not None
        assert evaluate(instance, found.plan) == pytest.approx(best, rel=1e-9), number


def test_a_formula_that_divides_filling_by_replicas_prefers_a_pipeline_where_the_clock_wants_none() -> None:
    """GPT, 32 layers, 64 micro-batches: 0.01461 s each without a pipeline, which the formula calls the slower plan."""
    given = {"devices": 64, "bandwidth": "100GB/s", "microbatches": 64}
    found = planner.solve(planner.load("gpt", problem="training_strategy", **given), exact=True)
    assert found.status is Status.OPTIMAL and found.plan is not None and found.objective is not None
    assert (found.plan["pp_degree"], found.plan["dp_degree"], found.plan["tp_degree"]) == (1, 32, 2)
    assert found.objective / 64 == pytest.approx(0.01461, abs=5e-6)


#: Sizes of Llama: layers, hidden size, heads, sequence length, vocabulary.
LLAMAS = {"70b": (80, 8192, 64, 4096, 32000), "405b": (126, 16384, 128, 8192, 128256)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "devices", "batch"), [("70b", 64, 512), ("70b", 512, 2048), ("405b", 512, 512), ("405b", 16384, 2048)]
)
def test_large_chains_are_proved_in_a_minute(name: str, devices: int, batch: int) -> None:
    model = transformer.gpt(name, Architecture(*LLAMAS[name], 1), replace(A100, peak_flop_per_s=989e12))
    flat = replace(model, num_devices=devices, num_microbatches=batch, bandwidth=50e9)
    found = planner.solve(of_chain(flat), limits=Limits(time_s=allowed_s(60)))
    assert found.status is Status.OPTIMAL and found.verified
