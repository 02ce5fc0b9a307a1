"""Training strategies: bounds, and the exact search against brute force."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product
from operator import le
from typing import Any

import numpy as np
import pytest
from equal_chains import CHAIN, DUALPIPE_V, F1B, GPIPE, INTERLEAVED, ZB, ZB_H2, ZB_V, equal_layers, plan, saying
from load import allowed_s
from oracles.training_strategy import optimum, random_instance, sharing
from small_instances import random_case
from thinned import thinned

import planner
from formulations.simulation.iteration import simulate
from formulations.simulation.orders import SCHEDULES
from formulations.training_strategy import FAMILY, costs, device_search, device_ways, exact, heuristics, layouts
from formulations.training_strategy.costs import Chain, plan_of
from formulations.training_strategy.definition.problem import chunk_counts, chunk_times, evaluate, violations
from formulations.training_strategy.degrees import Degrees, all_degrees
from formulations.training_strategy.device_program import DeviceProgram, Left
from formulations.training_strategy.device_search import DeviceSearch
from formulations.training_strategy.fixed_orders import FixedOrders, fullest
from formulations.training_strategy.layouts import Best, Layouts, Search, places, quick_bound
from instances.generators import transformer
from instances.generators.transformer import A100, Architecture
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.problems.training_strategy import Schedule, StrategyInstance, of_chain
from planner import Status
from solvers.milp.cutting_planes import Solved
from solvers.outcome import Limits, Stop, Watch


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
            rows = fullest(degrees.schedule, degrees.p, degrees.m, degrees.V)
            held = SCHEDULES[degrees.schedule].held(degrees.p, degrees.V)
            ways = [chain.choices([cuts[g] for g in own], row) for own, row in zip(held, rows, strict=True)]
            if all(ways):
                # With one chunk on a device the first way recomputes least; with several any of them bounds the bound.
                found = plan_of(chain, degrees, ends, [own[0] for own in ways])
                assert violations(instance, found) == ()
                times = [chunk_times(instance, found, chunk) for chunk in found.chunks]
                assert chain.passes(degrees, cuts)[0] == pytest.approx([own.forward for own in times], rel=1e-12)
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


def test_the_busiest_device_holds_whole_layers() -> None:
    """Of five layers of 3 s one of two devices has three, and of 4, 3, 3 and 1 s two of at least 3 s."""
    for times, p, least in (([3.0] * 5, 2, 9.0), ([1.0, 3.0, 10.0, 3.0], 3, 10.0), ([3.0, 1.0, 4.0, 3.0], 2, 6.0)):
        assert Chain(chain_of([[(time, 0.0, 0.0)] for time in times], 1, 1.0, 1, (F1B,), 1), 1).busiest(p) == least


def test_bounds_of_equal_stages_are_met() -> None:
    """Those of 1F1B and GPipe, and of the last device under ZB-H1 and ZB-H2: no search is needed there."""
    for schedule in (F1B, GPIPE, ZB, ZB_H2):
        for p, m in ((1, 3), (4, 8), *([(3, 2)] if schedule in (F1B, GPIPE) else [])):
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
    for schedule, p, m, V in (
        (F1B, 4, 6, 1), (GPIPE, 3, 5, 1), (ZB, 4, 7, 1), (ZB_H2, 4, 7, 1), (INTERLEAVED, 2, 4, 3), (ZB_V, 3, 5, 2),
    ):  # fmt: skip
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


@pytest.mark.parametrize("seed", [254, 262, 297])
def test_time_that_ends_between_the_ways_of_a_layout_proves_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = random_instance(random.Random(seed))
    best = optimum(instance)
    for looks in range(20):
        watch, left = Watch(), iter(range(looks))
        monkeypatch.setattr(watch, "stopped", lambda left=left: next(left, None) is None)
        found = exact.solve(instance, Limits(), watch)
        assert best is not None and (found.bound or 0.0) <= best * (1 + 1e-9), looks


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


@thinned("schedule", Schedule)
def test_searches_of_longer_chains_against_all_their_layouts(schedule: Schedule, cases: int) -> None:
    simulated: list[int] = []
    for number in range(max(3, cases // 3)):
        rng = random.Random(f"uneven {number}")
        is_one = 1 in chunk_counts(schedule, 3)
        memory = rng.choice([1e9, 5.0, 7.0, 9.0]) if is_one else 1e9
        instance = uneven(rng, rng.randint(8, 10), memory)
        p, V = (rng.randint(3, 4), 1) if is_one else (2, rng.choice(chunk_counts(schedule, 3)))
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
        search._rest = np.array([layouts.suffix_sums(search._open_costs(path)) for path in search._paths])
        for most in range(p * V):
            search._open = []
            search._branch(min(every)[1][:most], 0.0, 0.0, 0.0)
            for low, _, _, found, *_ in search._open:
                assert low <= min(time for time, ends in every if ends[: most + 1] == found) * (1 + 1e-12), number
    assert schedule is GPIPE or max(simulated) > 1, "bounds alone found all of them"


def with_ends(rng: random.Random) -> StrategyInstance:
    """Equal layers between an embedding and a head, on two devices of several chunks that cannot keep everything."""
    between = rng.randint(3, 5)
    keep, again = (Tmpc(name, time, 2.0, kept, 1.0) for name, time, kept in (("keep", 3.0, 1.0), ("again", 4.0, 0.1)))
    first, last = (Tmpc("keep", rng.uniform(0, 2), 3.0, 0.5, 2.0),), (Tmpc("keep", 5.0, 1.0, 0.7, 1.0),)
    layers = tuple(Layer(v, {1: ways}) for v, ways in enumerate((first, *[(keep, again)] * between, last)))
    edges = tuple(Edge(v, v + 1, 0.01 if v == 0 else 0.3) for v in range(between + 1))
    flat = StageInstance("ends", layers, edges, 2, rng.choice([9.0, 11.0, 14.0, 1e9]), 1.0, 4, max_dp_degree=1)
    schedule, V = rng.choice([(INTERLEAVED, rng.choice([2, 3])), (ZB_V, 1), (DUALPIPE_V, 1)])
    return of_chain(flat, (schedule,), V)


def test_ways_to_fill_devices_are_searched_for_the_best_layout(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first turn on, below the best plan and without one; no bound is above a plan."""
    monkeypatch.setattr(exact, "_EASY_TURNS", 0)
    turn, seen = DeviceSearch.turn, list[int]()

    def check_bound(self: DeviceSearch) -> None:
        turn(self)
        seen.append(number)
        times = [time for _, degrees, _, time in layouts_of if degrees == self.layouts.degrees]
        assert min(self.bound, self.best.time) <= min(times, default=math.inf) * (1 + 1e-9), number

    run, looked_at = DeviceProgram.run, list[int]()

    def check_rows(self: DeviceProgram, left: Left) -> Solved | None:
        """All ways below the unit bound every layout below it."""
        solved = run(self, left)
        times = [time for _, degrees, _, time in layouts_of if degrees == self.layouts.degrees]
        if solved is not None and left.all() and min(times, default=math.inf) < self.unit * (1 - 1e-6):
            assert solved.bound * self.unit <= min(times) * (1 + 1e-9), number
            looked_at.append(number)
        return solved

    least = device_ways._least

    def check_least(chain: Chain, chunks: Sequence[Any], rows: Any, room: float) -> Any:
        """Whatever fits is no better in some chunk than a way that is kept."""
        options, again = least(chain, chunks, rows, room)
        for chosen in product(*(range(len(each.kept)) for each in chunks)):
            own = [float(each.again[k]) for each, k in zip(chunks, chosen, strict=True)]
            held = [each.kept[k] for each, k in zip(chunks, chosen, strict=True)]
            if math.fsum(own) < room * (1 - 1e-9) and chain.fits(held, rows):
                assert any(all(map(le, way, own)) for way in again.tolist()), number
        return options, again

    monkeypatch.setattr(device_ways, "_least", check_least)
    monkeypatch.setattr(DeviceProgram, "run", check_rows)
    monkeypatch.setattr(DeviceSearch, "turn", check_bound)
    for number in range(max(16, cases // 2)):
        rng = random.Random(f"devices {number}")
        instance = with_ends(rng) if number % 2 else random_instance(rng, most_layers=5)
        if number % 2 == 0:
            instance = replace(instance, schedules=(INTERLEAVED, rng.choice([ZB_V, DUALPIPE_V])), virtual_stages=2)
        instance = replace(instance, overlaps_gradients=number % 4 > 1)
        monkeypatch.setattr(device_ways, "_MOST_WAYS", 12_000 if number % 3 else 40)  # or it is given up between
        monkeypatch.setattr(device_search, "_NEAR", 0.991 * (number % 5 > 0))  # or all ways below the best plan at once
        layouts_of = [*all_layouts(instance)]
        best, found = optimum(instance), exact.solve(instance, Limits(), Watch())
        assert found.infeasible == (best is None), number
        if best is not None:
            assert found.plan is not None and violations(instance, found.plan) == () and found.stop is Stop.PROVED
            assert evaluate(instance, found.plan) == pytest.approx(best, rel=1e-6), number
    monkeypatch.setattr(device_search, "_NEAR", 0.0)
    for schedule in (INTERLEAVED, ZB_V):  # of equal layers the program's bound is near the best layout
        instance = chain_of([[(2.0, 0.0, 1.0)]] * 8, 2, 1e9, 4, (schedule,), 2 if schedule is INTERLEAVED else 1)
        layouts_of, number = [*all_layouts(instance)], -1
        assert exact.solve(instance, Limits(), Watch()).stop is Stop.PROVED
    assert len(set(seen)) > 4 and looked_at.count(-1) > 1


def test_ways_of_four_chunks_are_few_where_time_and_memory_are_scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 layers on two devices 8 x 8 x 9 x 8 mixtures of the first one; few are within 42 s."""
    chain = chain_of([[(1.0, 1.0, 0.0), (1.3, 0.2, 0.0)]] * 20, 2, 20.0, 4, (INTERLEAVED,), 4)
    degrees = next(each for each in all_degrees(chain) if (each.p, each.V) == (2, 4))
    tables = Layouts(Chain(chain, 1), degrees)
    monkeypatch.setattr(device_ways, "_MOST_SEEN", 1_000)
    ways = device_ways.device_ways(tables, device_ways.Runs(tables.chain), 42.0)
    assert ways is not None and set(ways.device.tolist()) == {0, 1}


def test_searches_below_a_time_that_no_plan_has_find_the_best_one(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both searches, without a plan to begin with: no bound is above the optimum, which is found.

    Whichever of its chunks a device recomputes, the others wait for another pass: the cheapest way may be slower.
    """
    monkeypatch.setattr(layouts, "_MOST_SIMULATED", 1)  # a layout's other ways are simulated in later turns
    refuted = 0
    for number in range(2 * cases):
        rng = random.Random(f"below {number}")
        instance = with_ends(rng) if number % 2 else uneven(rng, 5, memory=rng.choice([2.0, 3.0]))
        flat = replace(instance.flat, num_devices=2, num_microbatches=4, max_dp_degree=1)
        instance = replace(instance, flat=flat, schedules=(INTERLEAVED,), virtual_stages=2)
        instance = replace(instance, requirements=("pp_degree == 2", "virtual_stages == 2"))
        least, (degrees,) = optimum(instance), all_degrees(instance)
        for own in (lambda search: search, lambda search: DeviceSearch(search, Limits())) if least is not None else ():
            best = Best(Watch())
            best.time = 1.5 * least
            search = own(Search(Layouts(Chain(instance, 1), degrees), best))
            while not search.is_done:
                refuted += isinstance(search, DeviceSearch) and search._refutes
                search.turn()
                assert min(search.bound, best.time) <= least * (1 + 1e-9), number
            assert best.time == pytest.approx(least, rel=1e-6), number
    assert refuted > cases


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
