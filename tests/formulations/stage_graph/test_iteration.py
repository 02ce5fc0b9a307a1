"""The shortest iteration: against every plan of tiny instances, simulated by what shares no code with the package."""

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from branching_cases import iteration_graph, random_graph
from oracles.stage_graph import shortest_iteration
from stopping import StopsAfter

import planner
from formulations.stage_graph import FAMILY
from formulations.stage_graph.costs.costs import Costs, assemble, with_in_flight
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import bottleneck_s, evaluate, iteration_s, violations
from formulations.stage_graph.iteration import search
from formulations.stage_graph.iteration.descent import _heads, descend
from formulations.stage_graph.iteration.warm_ups import Keys, WarmUps
from instances.generators.branching import candle_uno, dlrm, mmt
from instances.problems.stage_graph import AffineTime, DeviceGraph, Operator, OperatorEdge, StageGraph
from planner.process.errors import UsageError
from solvers.outcome import OPTIMAL_GAP, Limits, Status, Stop, Watch


def optimum(instance: StageGraph, threads: int = 1) -> float:
    """What branch and bound proves; ``inf``: that there is no plan."""
    answer = search.solve(instance, Limits(threads=threads), Watch())
    assert answer.stop is Stop.PROVED
    if answer.plan is None:
        assert answer.infeasible and answer.reason
        return math.inf
    assert violations(instance, answer.plan) == () and answer.bound is not None
    value = evaluate(instance, answer.plan)
    assert value == iteration_s(instance, answer.plan)
    assert value * (1 - OPTIMAL_GAP) <= answer.bound <= value
    return value


def one_device(costs: Costs, _: Limits, watch: Watch, __: search.Each) -> None:
    """A first plan that leaves much to find: everything on one device at the largest size, if it fits."""
    instance = costs.instance
    plan = assemble(instance, [(costs.everything, 1)], max(instance.microbatch_sizes))
    if not violations(instance, plan):
        watch.plan(plan, iteration_s(instance, plan))


@pytest.fixture(params=["first plans", "no first plan", "a poor first plan"])
def first(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "first plans":
        poor = request.param == "a poor first plan"
        monkeypatch.setattr(search, "_first_plans", one_device if poor else lambda *_: None)
    return str(request.param)


def _agrees(number: int) -> tuple[bool, bool]:
    """Whether there is a plan, and whether some stage of the best one keeps more in flight than it must."""
    instance = iteration_graph(random.Random(f"iteration {number}"))
    least, found = shortest_iteration(instance), optimum(instance, 1 + number % 2)
    assert found == pytest.approx(least, rel=OPTIMAL_GAP, abs=0), number
    if found == math.inf:
        return False, False
    plan = search.solve(instance, Limits(), Watch()).plan
    assert plan is not None
    return True, plan != with_in_flight(instance, plan)


def test_against_every_plan(cases: int, first: str) -> None:
    possible = [_agrees(number)[0] for number in range(2 * cases)]
    assert 0 < sum(possible) < len(possible), first


def test_bounds_of_searches_that_end_early_hold(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after any number of polls, or content with a gap, with a poor first plan and without one."""
    seen = dict.fromkeys(["stopped", "gap", "unknown"], 0)
    for number in range(4 * cases):
        rng = random.Random(f"early {number}")
        instance = iteration_graph(rng)
        monkeypatch.setattr(search, "_first_plans", rng.choice([one_device, lambda *_: None]))
        least = shortest_iteration(instance)
        watch = StopsAfter(rng.randint(1, 30)) if number % 2 else Watch()
        gap = 0.0 if number % 2 else rng.choice([0.3, 0.9])
        answer = search.solve(instance, Limits(gap=gap or 1e-6, threads=rng.randint(1, 2)), watch)
        seen["stopped"] += answer.stop is Stop.TIME_LIMIT
        seen["unknown"] += answer.plan is None and not answer.infeasible
        assert not answer.infeasible or least == math.inf, number
        if answer.plan is None:
            assert watch.best_bound is None or watch.best_bound <= least * (1 + 1e-9), number
            continue
        value = evaluate(instance, answer.plan)
        assert answer.bound is not None and answer.bound <= least * (1 + 1e-9) <= value * (1 + 2e-9), number
        assert not gap or value - answer.bound <= (gap + 1e-8) * value, number
        seen["gap"] += bool(gap) and value > least * (1 + 1e-6)
    assert all(seen.values()), seen
    tried = search._Search(Costs(instance), Watch())
    tried._branches = search._branches(Costs(candle_uno(2, 3)), tried.watch)
    monkeypatch.setattr(tried, "_of_upsets", lambda *_: None)  # stopped between two polls
    assert tried._may([1, 2], 1.0) and not tried.refuted


def test_more_devices_may_reduce_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices of the last operator reduce inside a node, where that takes 100 s, three between nodes.

    By hand: 2 s on three devices, 3 operators of 0.02 s for 3 samples on the other, 4/3 bytes at 1,000 bytes/s.
    """
    monkeypatch.setattr(search, "_first_plans", one_device)
    times, edges = ((0.01, 1e6), (0.01, 1e6), (0.01, 1e6), (1.0, 1.0)), ((0, 2), (1, 2), (2, 3))
    made = tuple(Operator("", AffineTime(0.0, each), AffineTime(0.0, each), weight, 0.0) for each, weight in times)
    instance = StageGraph(
        "tiers", made, tuple(OperatorEdge(u, v, 0.0) for u, v in edges), 4, 1e9, 1e3, 0.0, 3, objective="iteration",
        devices_per_node=2, inner_bandwidth_bytes_per_s=0.01,
    )  # fmt: skip
    assert optimum(instance) == pytest.approx(2 + 3 * 3 * 0.02 + 2 / 3 * 2 / 1e3, rel=1e-12)


def _row(times: list[tuple[float, float]], batch: int, kept: float = 0.0, memory: float = 1.0) -> StageGraph:
    """A chain of operators with these forward and backward times of a sample, one for each device."""
    made = tuple(Operator("", AffineTime(0.0, f), AffineTime(0.0, b), 0.0, kept) for f, b in times)
    edges = tuple(OperatorEdge(v, v + 1, 0.0) for v in range(len(made) - 1))
    return StageGraph(
        "row", made, edges, len(made), memory, 1.0, 0.0, batch, microbatches=(1,), objective="iteration"
    )  # fmt: skip


def test_more_in_flight_than_needed_may_be_quicker() -> None:
    """With one more than behind it the first stage, which takes longest, waits for backward passes; all five are best.

    If the others keep as many, their backward passes come late.
    """
    instance = _row([(1.0, 2.0), (1.0, 1.0), (1.0, 1.0)], 5)
    plan = assemble(instance, [(1, 1), (2, 1), (4, 1)], 1)
    found = WarmUps(Costs(instance), plan).best_below(math.inf, Watch())
    by_hand = {}
    for counts in itertools.product(range(3, 6), range(2, 6), range(1, 6)):
        stages = tuple(replace(each, in_flight=n) for each, n in zip(plan.stages, counts, strict=True))
        if not violations(instance, replace(plan, stages=stages)):
            by_hand[counts] = iteration_s(instance, replace(plan, stages=stages))
    assert (by_hand[3, 2, 1], by_hand[5, 2, 1], by_hand[5, 5, 5]) == (17.0, 15.0, 19.0)
    assert found is not None and found[1] == min(by_hand.values()) == 15.0


def test_many_devices_are_looked_at_by_their_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 samples each of 20,000 devices has 1, 2, 3, 4 or all; on more than 8 of them one has none."""
    costs, seen = Costs(mmt(2, 2, devices=20_000)), list[int]()
    monkeypatch.setattr(costs, "compute_s", lambda _, samples: float(seen.append(samples) or samples))
    model = search._model(costs, 8)
    model.limits[4] = math.inf
    seen = [samples for samples in seen if samples <= 8]  # others order the branches
    assert sorted(seen) == sorted([1, 2, 3, 4, 8] * costs.instance.num_operators)
    assert model.passes[0, 1:10].tolist() == [8, 4, 3, 2, 2, 2, 2, 1, 1]
    assert np.isfinite(search._alone(costs, model, math.inf)).sum(axis=0).tolist()[:10] == [0, *[len(seen) // 5] * 8, 0]


def test_memory_limits_what_is_in_flight() -> None:
    instance = _row([(1.0, 2.0), (1.0, 1.0), (1.0, 1.0)], 5, kept=1.0, memory=4.0)
    plan = assemble(instance, [(1, 1), (2, 1), (4, 1)], 1)
    found = WarmUps(Costs(instance), plan).best_below(math.inf, Watch())
    assert found is not None and max(stage.in_flight for stage in found[0].stages) <= 4
    assert violations(instance, found[0]) == () and 15.0 < found[1] <= 17.0
    watch = Watch()
    tried = search._Search(Costs(instance), watch)
    tried._of_partitions, tried._branches = instance, None
    # What is too slow for one target is tried for another.
    for target_s, best in ((found[1], None), (found[1] * (1 + 1e-6), found[1])):
        tried._lay_out(1, search._model(Costs(instance), 1), target_s, (0.0, target_s))
        assert watch.best_objective == best and tried.searched


def test_bounds_of_warm_ups_hold(cases: int) -> None:
    """The bound of a range is no more than any iteration in it, and the iteration itself where the range is one."""
    for number in range(2 * cases):
        rng = random.Random(f"warm-ups {number}")
        times = [(rng.choice((0.0, rng.uniform(0, 4))), rng.uniform(0, 4)) for _ in range(rng.randint(1, 4))]
        instance = _row(times, rng.randint(1, 7))
        plan = assemble(instance, [(1 << v, 1) for v in range(len(times))], 1)
        warm_ups = WarmUps(Costs(instance), plan)
        most = np.full(len(times), instance.minibatch)
        chosen = np.array([rng.randint(int(low), instance.minibatch) for low in warm_ups.fewest])
        for stage in range(len(times) - 2, -1, -1):
            chosen[stage] = max(chosen[stage], min(instance.minibatch, chosen[stage + 1] + 1))
        stages = tuple(replace(each, in_flight=int(n)) for each, n in zip(plan.stages, chosen, strict=True))
        seconds = iteration_s(instance, replace(plan, stages=stages))
        assert warm_ups.bound(warm_ups.fewest, most) <= seconds, number
        assert warm_ups.bound(chosen, chosen) == pytest.approx(seconds, rel=1e-10), number


@pytest.mark.parametrize("devices", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_the_case_study_is_one_stage(devices: int) -> None:
    """Data parallelism alone: no partition fills and drains as little."""
    instance = replace(mmt(2, 4, devices=devices), objective="iteration")
    result = planner.solve(instance, exact=True)
    assert result.status is Status.OPTIMAL and result.method == "branch-and-bound"
    assert result.stats["stages"] == 1 and result.stats["microbatch"] == instance.minibatch
    assert result.stats["tps_s"] == bottleneck_s(instance, FAMILY.plan_from_json(instance, result.plan))


def test_equation_1_prefers_another_plan() -> None:
    """Two branches of nine operators on 4 devices: samples/s of the optimum of each objective."""
    instance = mmt(2, 3, devices=4)
    one = planner.solve(instance, exact=True)
    other = planner.solve(replace(instance, objective="iteration"), exact=True)
    assert one.status is other.status is Status.OPTIMAL
    plan = FAMILY.plan_from_json(instance, one.plan)
    assert other.stats["samples_per_s"] == pytest.approx(337.20, abs=0.005)
    assert instance.minibatch / iteration_s(instance, plan) < 200
    assert other.stats["tps_s"] > one.objective


def test_both_clocks_of_a_plan() -> None:
    """Whichever is minimised, with the settings of the other; a device graph has no method for the iteration."""
    instance = mmt(2, 8, devices=4)
    for objective, other, kind in (("tps", "iteration", "steady"), ("iteration", "tps", "iteration")):
        result = planner.solve(replace(instance, objective=objective))
        plan, clock = FAMILY.plan_from_json(instance, result.plan), result.clock()
        assert clock is not None and (clock.kind, clock.other) == (kind, f"--objective {other}")
        assert clock.formula_s == instance.minibatch * bottleneck_s(instance, plan)
        assert clock.iteration_s == iteration_s(instance, plan) >= clock.formula_s
        sizes = {stage.microbatch for stage in plan.stages}
        batch = f"an iteration of {instance.minibatch // min(sizes)} micro-batch"
        assert len(sizes) == 1 and clock.says.startswith(batch if kind == "iteration" else "a pipeline that is never")
    assert replace(clock, microbatches=1).says == "an iteration of 1 micro-batch"
    small = replace(mmt(2, 2, devices=2), objective="iteration")
    assert planner.solve(small).method == "branch-and-bound" and small.num_operators <= 14
    links = DeviceGraph((1e12, 1e12), ((0.0, 1e9), (1e9, 0.0)))
    on_links = planner.solve(replace(mmt(1, 1), device_graph=links, num_devices=2))
    clock = on_links.clock()
    assert clock is not None and clock.other == "" and clock.iteration_s is not None


def test_a_required_size() -> None:
    instance = replace(random_graph(3, (4, 4), 3, series_parallel=True), objective="iteration", memory_bytes=1e3)
    found = planner.solve(replace(instance, requirements=("microbatch == 2",)), method="branch-and-bound")
    assert found.status is Status.OPTIMAL and found.stats["microbatch"] == 2
    assert found.objective == pytest.approx(optimum(replace(instance, microbatches=(2,))), rel=1e-9)


def test_requirements_on_one_of_two_equal_branches() -> None:
    """Whichever has two of three devices: by hand 4 samples of 3 s on the other, and 1,000 bytes to reduce."""
    made = (Operator("", AffineTime(0.0, 1.0), AffineTime(0.0, 2.0), 1e3, 0.0),) * 2
    instance = StageGraph("two", made, (), 3, 1e9, 1e6, 0.0, 4, objective="iteration")
    for devices, (one, other) in itertools.product((1, 2), ((0, 1), (1, 0))):
        required = (f"devices_of({one}) == {devices}", f"devices_of({other}) == {3 - devices}", "num_stages == 2")
        found = planner.solve(replace(instance, requirements=required), exact=True)
        assert found.method == "branch-and-bound" and found.objective == pytest.approx(12.001)
    made = tuple(replace(each, activation_bytes=1.0) for each in made)
    instance = replace(instance, operators=made, minibatch=8, microbatches=(2,), memory_bytes=4005.0)
    for one in (0, 1):  # on one device there is no room for all samples: it has two, and the other stage takes 8 x 3 s
        required = (f"in_flight_of({one}) == 8", "num_stages == 2")
        found = planner.solve(replace(instance, requirements=required), exact=True)
        assert found.method == "branch-and-bound" and found.objective == pytest.approx(24.001)


@pytest.mark.parametrize("edges", [[(0, 3), (1, 2), (2, 4), (3, 4)], [(0, 2), (1, 3), (2, 4), (3, 4)]])
def test_equal_branches_begin_and_end_anywhere_among_each_other(edges: list[tuple[int, int]]) -> None:
    """The best two stages are the branches and the rest, which was not looked at where one end precedes the other."""
    operators = tuple(
        Operator("o", AffineTime(0.0, t), AffineTime(0.0, 2 * t), 0.0, 1.0) for t in (1.0, 1.0, 2.0, 2.0, 8.0)
    )
    joined = tuple(OperatorEdge(u, v, 0.0) for u, v in edges)
    found = StageGraph("ends", operators, joined, 2, 1000.0, 50.0, 0.5, 4, objective="iteration")
    assert optimum(replace(found, requirements=("num_stages == 2",))) == 124


def test_requirements_on_what_is_in_flight() -> None:
    """As many in flight at the last stage as at the first takes 19 s, where the best three stages take 15 (above)."""
    instance = _row([(1.0, 2.0), (1.0, 1.0), (1.0, 1.0)], 5)
    required = (*(f"in_flight_of({v}) == 5" for v in range(3)), "num_stages == 3")
    found = planner.solve(replace(instance, requirements=required), exact=True)
    assert found.objective == 19.0 and found.status is Status.OPTIMAL
    none = planner.solve(replace(instance, requirements=("in_flight_of(0) <= 2", "num_stages == 3")), exact=True)
    assert none.status is Status.INFEASIBLE and "requirements" in none.reason


def test_other_objectives_and_schedules_are_refused() -> None:
    for changed, reason in (({"objective": "tps"}, "objective tps"), ({"schedule": "kfkb"}, "schedule kfkb")):
        instance = replace(mmt(2, 2), objective="iteration")
        with pytest.raises(UsageError, match=reason):
            planner.solve(replace(instance, **changed), method="branch-and-bound")


def test_memory_for_what_must_be_in_flight() -> None:
    """Three stages would keep three micro-batches at the first; with memory for two the best plan has two stages."""
    times = [(1.0, 2.0), (1.0, 2.0), (1.0, 2.0)]
    for memory, stages in ((3.0, 3), (2.0, 2)):
        instance = _row(times, 4, kept=1.0, memory=memory)
        answer = search.solve(instance, Limits(), Watch())
        assert answer.plan is not None and len(answer.plan.stages) == stages
        assert optimum(instance) == shortest_iteration(instance)


def test_partitions_with_the_same_key_take_the_same(cases: int) -> None:
    """Of five operators of two kinds, with edges that take no time and memory that limits what is in flight."""
    shared = different = 0
    for number in range(count := max(10, cases // 5)):
        rng = random.Random(f"keys {number}")
        kinds = [(1.0, 0.1, 0.0), (rng.choice((1.0, 1.0, 3.0)), rng.choice((0.1, 0.2)), rng.choice((0.0, 1.0)))]
        times = [rng.choice(kinds) for _ in range(5)]
        made = tuple(Operator("", AffineTime(0.0, 1.0), AffineTime(0.0, b), held, kept) for b, held, kept in times)
        pairs = itertools.combinations(range(5), 2)
        edges = tuple(OperatorEdge(*each, 0.0) for each in pairs if rng.random() < 0.5)
        instance = StageGraph("five", made, edges, 4, 5.0, 10.0, 0.0, 8, microbatches=(2,), weight_copies=1.0)
        costs, taken = Costs(instance), dict[object, float]()
        keys = Keys(costs, 2)
        for stage_of, more in itertools.product(itertools.product(range(3), repeat=5), (1, 2)):
            if any(stage_of[edge.source] > stage_of[edge.target] for edge in edges):
                continue
            nodes = [sum(1 << v for v in range(5) if stage_of[v] == stage) for stage in range(3)]
            parts = [(each, more if not place else 1) for place, each in enumerate(nodes) if each]
            found = WarmUps(costs, assemble(instance, parts, 2)).best_below(math.inf, Watch())
            takes = math.inf if found is None else found[1]
            shared += (key := keys.of(parts)) in taken
            assert taken.setdefault(key, takes) == pytest.approx(takes, rel=1e-12), (number, parts)
        different += len(set(taken.values())) > 6
    assert shared > 25 * count and different > 0
    held = ((1.0, 0.0), (1.0, 1.0), (2.0, 0.0))
    made = tuple(Operator("", AffineTime(1.0, 0.0), AffineTime(1.0, 0.0), weight, kept) for weight, kept in held)
    keys = Keys(Costs(StageGraph("held", made, (), 4, 9.0, 10.0, 0.0, 8)), 2)
    assert len({keys.of([part]) for part in ((1, 1), (2, 1), (4, 1), (1, 2))}) == 4


def test_devices_that_merging_spares_go_to_another_stage() -> None:
    """Four operators of 0.5 s a pass lead to one of 12 s for 6 samples; two of them fit on a device, not with that one.

    By hand: on two devices that takes 4 x 12 s, behind a head of 1 s. With two pairs ahead, of 1 s a pass, it has
    four: 4 x 6 s and a head of 2 s; reducing takes no time that counts. No stage that is merged is quicker alone.
    """
    made = (Operator("", AffineTime(0.5, 0.0), AffineTime(0.5, 0.0), 1.0, 0.0),) * 4
    made += (Operator("", AffineTime(0.0, 1.0), AffineTime(0.0, 1.0), 1.25, 0.0),)
    edges = tuple(OperatorEdge(v, 4, 0.0) for v in range(4))
    instance = StageGraph(
        "spare", made, edges, 6, 8.0, 1e12, 0.0, 48, microbatches=(12,), objective="iteration", weight_copies=4.0
    )  # fmt: skip
    start, watch = assemble(instance, [*((1 << v, 1) for v in range(4)), (16, 2)], 12), Watch()
    assert iteration_s(instance, start) == pytest.approx(49)
    descend(Costs(instance), instance, [start], watch)
    assert watch.best_objective == pytest.approx(26)


@pytest.mark.slow
def test_descent_finds_what_equation_1_leaves_idle() -> None:
    """DLRM on 8 devices: two branches share one, so that the layers behind the join have one; Equation 1 uses four."""
    instance, plans = replace(dlrm(devices=8), objective="iteration"), list[StagePlan]()
    costs, first, near = Costs(instance), Watch(), Watch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "descend", lambda _, __, found, ___: plans.extend(found))
        search._first_plans(costs, Limits(), first)
    descend(costs, instance, plans, near)
    assert near.best_plan is not None and first.best_objective is not None and near.best_objective is not None
    assert violations(instance, near.best_plan) == ()
    assert near.best_objective == iteration_s(instance, near.best_plan) < 0.1253 < 0.87 * first.best_objective


def test_descent_begins_at_equal_heads() -> None:
    """The first ten operators of three branches on two devices each, the others on two; one by one: 0.392 s."""
    instance, watch = replace(mmt(3, 4, devices=8), objective="iteration"), Watch()
    descend(costs := Costs(instance), instance, [], watch)
    assert watch.best_plan is not None and watch.best_objective == iteration_s(instance, watch.best_plan) < 0.3651
    assert [(len(each.nodes), each.devices) for each in watch.best_plan.stages] == [(10, 2), (10, 2), (10, 2), (7, 2)]
    all_heads = list(_heads(costs))
    assert len(all_heads) == 12 * 2 and all(sum(own for _, own in parts) == 8 for parts in all_heads)
    assert all(sum(nodes for nodes, _ in parts) == costs.everything for parts in all_heads)


def test_descent_keeps_all_rules(cases: int) -> None:
    """From the plan of one stage, with memory that excludes some plans: never less than the shortest iteration."""
    met = 0
    for number in range(cases):
        instance, watch = iteration_graph(random.Random(f"descent {number}")), Watch()
        descend(Costs(instance), instance, [], watch)
        if watch.best_plan is None or watch.best_objective is None:
            continue
        assert violations(instance, watch.best_plan) == (), number
        assert watch.best_objective == iteration_s(instance, watch.best_plan), number
        least = shortest_iteration(instance)
        assert watch.best_objective >= least * (1 - 1e-9), number
        met += watch.best_objective <= least * (1 + 1e-6)
    assert met > cases / 4
