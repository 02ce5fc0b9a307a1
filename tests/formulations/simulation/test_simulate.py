"""The event simulation: Fig. 5 to the micro-batch, ceil(s/d) in flight, and the bottleneck's time per sample."""

import itertools
import math
import random
from collections import Counter

import pytest

from formulations.simulation.simulate_chain import PipelineStage, Trace, in_flight, simulate


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
        trace = simulate(stages, count, backward_first=rng.random() < 0.5)
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
