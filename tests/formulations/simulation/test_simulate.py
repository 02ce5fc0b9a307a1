"""The event simulation: Fig. 5 to the micro-batch, ceil(s/d) in flight, and the bottleneck's time per sample."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from oracles.microbatch_schedule import finish, random_instance

import planner
from formulations.contract.figures.gantt import _waits, forward_and_backward, steady
from formulations.contract.figures.plan_figures import Passes, stages_of
from formulations.simulation.simulate_chain import PipelineStage, Trace, in_flight, simulate
from formulations.simulation.simulate_graph import PassGraph, kfkb, run
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import evaluate, violations
from instances.problems.microbatch_schedule import chain
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc


def pipeline(degrees: list[int], times: list[float], room: list[int] | None = None) -> list[PipelineStage]:
    """Stages whose forward and backward pass take ``times`` each."""
    rooms = room or in_flight(degrees)
    return [PipelineStage(d, time, time, held) for d, time, held in zip(degrees, times, rooms, strict=True)]


FIGURE_5 = pipeline([3, 1, 1, 1], [3.0, 1.0, 1.0, 1.0])


def stashes(trace: Trace, stage: int, replica: int) -> list[set[int]]:
    """The sets of micro-batches that a replica holds, in the order in which they change (counted from 1)."""
    changes = [
        (task.start if task.is_forward else task.end, task.is_forward, task.microbatch + 1)
        for task in trace.tasks
        if (task.stage, task.replica) == (stage, replica)
    ]
    held: set[int] = set()
    found = []
    for _, arrives, m in sorted(changes):
        held = held | {m} if arrives else held - {m}
        found.append(held)
    return found


def test_figure_5() -> None:
    assert in_flight([3, 1, 1, 1]) == [2, 3, 2, 1]
    trace = simulate(FIGURE_5, 300)
    assert trace.peak_in_flight == (2, 3, 2, 1)
    assert trace.time_per_sample() == pytest.approx(2.0)
    # what the caption says of device 2
    assert stashes(trace, 0, 1)[:7] == [{2}, {2, 5}, {5}, {5, 8}, {8}, {8, 11}, {11}]


def paced(degrees: list[int], times: list[float], extra_room: int = 0) -> tuple[Trace, float]:
    """The pipeline at the pace of its bottleneck, and that pace."""
    bottleneck = max(2 * time / d for time, d in zip(times, degrees, strict=True))
    rooms = [room + extra_room for room in in_flight(degrees)]
    # thirds of 216 are multiples of all degrees up to 4
    return simulate(pipeline(degrees, times, rooms), 216, pace=bottleneck), bottleneck


def test_falling_degrees_reach_the_bottleneck_with_ceil_s_over_d(cases: int) -> None:
    """All stages as slow per sample, every degree a multiple of the next, as in Fig. 5."""
    for seed in range(cases):
        rng = random.Random(seed)
        degrees = [rng.choice([1, 1, 2])]
        for _ in range(rng.randint(0, 4)):
            degrees.insert(0, degrees[0] * rng.choice([1, 1, 2, 3]))
        trace, bottleneck = paced(degrees, [float(d) for d in degrees])
        if max(degrees) <= 4:
            assert trace.time_per_sample() == pytest.approx(bottleneck), (seed, degrees)
            assert trace.peak_in_flight == tuple(in_flight(degrees))


def test_rising_degrees_need_more_room_than_ceil_s_over_d() -> None:
    """Degrees 2, 3, 1, all as slow per sample: slower with Appendix A's room, and not with one more."""
    degrees, times = [2, 3, 1], [2.0, 3.0, 1.0]
    trace, bottleneck = paced(degrees, times)
    assert trace.peak_in_flight == (3, 2, 1) and trace.time_per_sample() > 1.3 * bottleneck
    trace, bottleneck = paced(degrees, times, extra_room=1)
    assert trace.time_per_sample() == pytest.approx(bottleneck)


def test_any_degrees_stay_within_their_room_and_above_the_bottleneck(cases: int) -> None:
    for seed in range(cases // 2):
        rng = random.Random(seed)
        degrees = [rng.choice([1, 1, 2, 3, 4]) for _ in range(rng.randint(1, 5))]
        trace, bottleneck = paced(degrees, [d * rng.choice([1.0, 1.0, 0.5]) for d in degrees])
        assert all(peak <= room for peak, room in zip(trace.peak_in_flight, in_flight(degrees), strict=True))
        assert bottleneck - 1e-9 <= trace.time_per_sample() < 1.5 * bottleneck, (seed, degrees)


def test_equal_degrees_reach_the_bottleneck_exactly(cases: int) -> None:
    for seed in range(cases):
        rng = random.Random(seed)
        n, d = rng.randint(1, 5), rng.randint(1, 4)
        trace = simulate(pipeline([d] * n, [1.0] * n), 60 * d)
        assert trace.time_per_sample() == pytest.approx(2.0 / d)
        assert trace.peak_in_flight == tuple(range(n, 0, -1))


def test_less_room_is_slower() -> None:
    """ceil(s/d) is needed: with one micro-batch less at the input the pipeline of Fig. 5 does not keep pace."""
    starved = pipeline([3, 1, 1, 1], [3.0, 1.0, 1.0, 1.0], room=[1, 3, 2, 1])
    assert simulate(starved, 300).time_per_sample() > 2.0 + 0.5


def test_rules_of_the_schedule(cases: int) -> None:
    for seed in range(cases):
        rng = random.Random(seed)
        degrees = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
        rooms = [rng.randint(1, 4) for _ in degrees]
        stages = [
            PipelineStage(d, rng.randint(0, 3), rng.randint(0, 3), room) for d, room in zip(degrees, rooms, strict=True)
        ]
        count = rng.randint(1, 12)
        trace = simulate(stages, count)
        done = {(task.stage, task.microbatch, task.is_forward): task for task in trace.tasks}
        assert len(done) == len(trace.tasks) == 2 * count * len(stages)
        for (stage, m, is_forward), task in done.items():
            assert task.replica == m % degrees[stage]
            before = (stage - 1, m, True) if is_forward else (stage + 1, m, False)
            if not is_forward and stage == len(stages) - 1:
                before = (stage, m, True)
            assert before not in done or done[before].end <= task.start
        for own in {(task.stage, task.replica) for task in trace.tasks}:
            line = [task for task in trace.tasks if (task.stage, task.replica) == own]
            assert all(one.end <= other.start for one, other in itertools.pairwise(line))
        assert all(peak <= room for peak, room in zip(trace.peak_in_flight, rooms, strict=True))
        work = Counter[int]()
        for task in trace.tasks:
            work[task.stage] += task.end - task.start
        assert trace.makespan >= max(work[i] / d for i, d in enumerate(degrees)) - 1e-9


def test_bad_pipelines_are_refused() -> None:
    for stages, count in (([], 1), (FIGURE_5, 0), ([PipelineStage(1, 1, 1, 0)], 1)):
        with pytest.raises(ValueError, match="at least one"):
            simulate(stages, count)


def test_few_microbatches_share_the_whole_time() -> None:
    assert math.isclose(simulate(pipeline([1, 1], [1.0, 1.0]), 1).time_per_sample(), 4.0)


def test_idle_time_by_phase_of_a_chain_of_equal_stages() -> None:
    """Stage s waits s forward and as many backward passes, and the passes back and forth below it while it fills."""
    graph = PassGraph(chain(3, 6), (3, 2, 1))
    trace = run(graph)
    assert trace.iteration_s == (6 + 2) * 3 and not trace.stuck
    first, last = trace.idle(0), trace.idle(2)
    assert (first.fill, first.steady, first.drain) == (4, 0, 2)
    assert (last.fill, last.steady, last.drain) == (2, 0, 4)


def test_idle_and_busy_time_are_the_iteration(cases: int) -> None:
    rng = random.Random("idle")
    for _ in range(cases):
        instance = random_instance(rng)
        trace = run(PassGraph(instance))
        for stage in range(len(instance.stages)):
            idle, busy = trace.idle(stage), sum(task.end_s - task.start_s for task in trace.of(stage))
            assert math.isclose(idle.fill + idle.steady + idle.drain + busy, trace.iteration_s, abs_tol=1e-9)


def test_orders_are_run_as_early_as_they_can(cases: int) -> None:
    """Against brute force's own simulation, stuck orders included; mending ends every one of them."""
    rng = random.Random("orders")
    stuck = 0
    for _ in range(cases):
        instance = random_instance(rng)
        counts = [instance.num_microbatches(stage) for stage in range(len(instance.stages))]
        graph = PassGraph(instance, counts)
        orders = tuple(kfkb(count, rng.randint(1, count), rng.randint(1, 2)) for count in counts)
        trace, expected = run(graph, orders), finish(instance, orders)
        assert bool(trace.stuck) == (expected is None)
        if expected is None:
            stuck += 1
            repaired = run(graph, orders, repair=True)
            assert not repaired.stuck and len(repaired.passes) == instance.num_passes
        else:
            assert math.isclose(trace.iteration_s, expected)
            assert run(graph, orders, repair=True) == trace
    assert stuck


@pytest.mark.parametrize("rooms", [(1, 1), (2, 1), (3, 3)])
def test_backwards_in_time_an_iteration_is_as_long(rooms: tuple[int, int]) -> None:
    graph = PassGraph(chain(2, 5), rooms)
    backwards = run(graph.mirrored(), priority=lambda number: graph.kind[number] == "B")
    again = run(graph, [order[::-1] for order in graph.orders_of(backwards.passes)])
    assert not again.stuck and again.iteration_s == backwards.iteration_s


def test_rooms_that_are_too_small_end_instead_of_looping() -> None:
    trace = run(PassGraph(chain(2, 3), (0, 1)))
    assert trace.stuck == (0, 1) and not trace.passes


def graph(edges: str, **times: float) -> StageInstance:
    """Nodes with their times; edges such as ``"ab bc"`` carry one byte."""
    layers = tuple(Layer(node, {1: (Tmpc("x", time, 0, 0, 0),)}) for node, time in times.items())
    return StageInstance("graph", layers, tuple(Edge(u, v, 1.0) for u, v in edges.split()), len(layers), 1, 1e6, 8)


def plan(*stages: str) -> StagePlan:
    return StagePlan(tuple(Stage(tuple(nodes), 1, 1, dict.fromkeys(nodes, "x")) for nodes in stages))


def test_contiguous_but_disconnected_is_allowed_and_found() -> None:
    """Two branches without an edge between them are one stage, and in the best plan they must be."""
    diamond = graph("ab ac bd cd", a=2, b=1, c=1, d=2)
    diamond = replace(diamond, num_devices=3, max_dp_degree=1)
    assert violations(diamond, plan("a", "bc", "d")) == ()
    result = planner.solve(diamond, method="exact")
    assert result.objective == evaluate(diamond, plan("a", "bc", "d"))
    assert {frozenset(stage["nodes"]) for stage in result.plan["stages"]} >= {frozenset("bc")}


def test_connected_but_not_contiguous_is_refused_and_not_found() -> None:
    """a and c are joined by an edge, but a path leads from a over b to c: no order of the stages helps."""
    triangle = replace(graph("ab bc ac", a=1, b=4, c=1), num_devices=2, max_dp_degree=1)
    for order in (("ac", "b"), ("b", "ac")):
        assert {found.rule for found in violations(triangle, plan(*order))} == {"order"}
    # {a, c} and {b} would take 4; the best plan that is allowed takes 5
    for method in ("exact", "piper", "cpsat", "milp"):
        result = planner.solve(triangle, method=method)
        assert result.objective is not None and 5 <= result.objective < 5.001


def steady_pipeline(degrees: Sequence[int], times: Sequence[float]) -> list[PipelineStage]:
    """Stages with so many replicas and such times per sample, with the room of Piper's Appendix A."""
    return [
        PipelineStage(d, *forward_and_backward(time * d), room)
        for d, time, room in zip(degrees, times, in_flight(degrees), strict=True)
    ]


def shown(degrees: Sequence[int], times: Sequence[float]) -> Passes:
    return steady(steady_pipeline(degrees, times), stages_of(times), max(times), "s")


def test_a_long_pipeline_is_shown_when_it_has_settled() -> None:
    """After 200 micro-batches, each a little later than the one before, they leave at the pace of the objective."""
    times = [0.968] + [0.997] * 9 + [0.83] * 12 + [1.0] * 7 + [0.935]
    found = shown([7, *[1] * 29], times)
    assert found.amounts == pytest.approx((1.0, 1.0))
    assert found.note == "Micro-batches enter at the pace of the objective, one every {}, and leave one every {}."
    assert len(found.tasks) < 2000


def test_the_bottleneck_waits_for_room_where_degrees_rise() -> None:
    """Degrees 2, 3, 1 need one more micro-batch in flight than Appendix A counts."""
    found = shown([2, 3, 1], [1.0, 1.0, 1.0])
    assert found.amounts[1] > 1.25
    assert "the bottleneck, stage 0, as always busy" in found.note and "% of the time for room, as stages" in found.note
    assert "passes of other stages" not in found.note


def test_the_bottleneck_waits_for_equally_slow_stages() -> None:
    found = shown([1] * 34, [0.939, *[1.0] * 32, 0.051])
    assert 1.02 < found.amounts[1] < 1.1
    assert found.note.endswith("% of the time for passes of other stages.") and "room" not in found.note


def test_waits_are_what_is_lost(cases: int) -> None:
    """Over a long time the bottleneck is busy for all but the time that it waits, and runs a micro-batch every pace."""
    late = 0
    for seed in range(max(12, cases // 8)):
        rng = random.Random(seed)
        degrees = [rng.choice([1, 1, 2, 3]) for _ in range(rng.randint(2, 6))]
        times = [rng.choice([1.0, 1.0, 0.9, 0.5]) for _ in degrees]
        own = steady_pipeline(degrees, times)
        trace = simulate(own, 360, pace=max(times))
        slow = max(range(len(own)), key=times.__getitem__)
        empty, full = _waits(own, slow, max(times), trace)
        assert empty + full == pytest.approx(1 - max(times) / trace.time_per_sample(), abs=0.03), (seed, degrees, times)
        late += empty + full > 0.01
        found = steady(own, stages_of(times), max(times), "s")
        assert ("it waits" in found.note) == (found.amounts[1] > 1.000001 * found.amounts[0]), (seed, found.note)
    assert late >= 1
