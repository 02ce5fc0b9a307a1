"""The steady state that pictures show: it has settled, and what leaves more slowly than it enters says why."""

import random
from collections.abc import Sequence

import pytest

from formulations.contract.figures.gantt import _waits, forward_and_backward, steady
from formulations.contract.figures.plan_figures import Passes, stages_of
from formulations.simulation.simulate_chain import PipelineStage, in_flight, simulate


def pipeline(degrees: Sequence[int], times: Sequence[float]) -> list[PipelineStage]:
    """Stages with so many replicas and such times per sample, with the room of Piper's Appendix A."""
    return [
        PipelineStage(d, *forward_and_backward(time * d), room)
        for d, time, room in zip(degrees, times, in_flight(degrees), strict=True)
    ]


def shown(degrees: Sequence[int], times: Sequence[float]) -> Passes:
    return steady(pipeline(degrees, times), stages_of(times), max(times), "s")


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
        own = pipeline(degrees, times)
        trace = simulate(own, 360, pace=max(times))
        slow = max(range(len(own)), key=times.__getitem__)
        empty, full = _waits(own, slow, max(times), trace)
        assert empty + full == pytest.approx(1 - max(times) / trace.time_per_sample(), abs=0.03), (seed, degrees, times)
        late += empty + full > 0.01
        found = steady(own, stages_of(times), max(times), "s")
        assert ("it waits" in found.note) == (found.amounts[1] > 1.000001 * found.amounts[0]), (seed, found.note)
    assert late >= 1
