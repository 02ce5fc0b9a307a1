"""What docs/findings.md states about Piper's Appendix A: is room for ceil(s/d) micro-batches in flight enough?"""

from collections.abc import Sequence
from itertools import pairwise, product

import pytest
from paths import ROOT

from formulations.simulation.simulate_chain import PipelineStage, in_flight, simulate

FINDINGS = (ROOT / "docs" / "findings.md").read_text()


def cycle(degrees: Sequence[int], paced: bool, extra: int = 0, backward: int = 1) -> tuple[int, float]:
    """Micro-batches of a cycle and its seconds, long after the start; a stage takes 1 + ``backward`` per sample."""
    stages = [
        PipelineStage(d, float(d), float(backward * d), room + extra)
        for d, room in zip(degrees, in_flight(degrees), strict=True)
    ]
    trace = simulate(stages, 600, pace=1.0 + backward if paced else 0.0)
    left = sorted(task.end for task in trace.tasks if task.stage == 0 and not task.is_forward)
    gaps = [after - before for before, after in pairwise(left[200:400])]
    length = next(n for n in range(1, 100) if gaps[n:] == gaps[:-n])
    return length, sum(gaps[:length])


def slower(degrees: Sequence[int], paced: bool, extra: int = 0, backward: int = 1) -> float:
    """Percent above the bottleneck's time."""
    length, seconds = cycle(degrees, paced, extra, backward)
    return round(100 * (seconds / length / (1 + backward) - 1), 1)


#: Degrees, whether micro-batches are paced, a cycle, percent lost, and lost with backward passes twice as long.
ROOMS = [
    ([1, 2], False, (3, 7.0), 16.7, 22.2),
    ([1, 2], True, (1, 2.0), 0.0, 0.0),
    ([1, 2, 1], False, (4, 10.0), 25.0, 25.0),
    ([1, 2, 1], True, (4, 10.0), 25.0, 25.0),
    ([2, 3, 1], False, (6, 14.0), 16.7, 33.3),
    ([2, 3, 1], True, (7, 18.0), 28.6, 33.3),
]


@pytest.mark.parametrize(("degrees", "paced", "settled", "lost", "longer"), ROOMS)
def test_the_room_of_appendix_a_and_one_more(
    degrees: list[int], paced: bool, settled: tuple[int, float], lost: float, longer: float
) -> None:
    assert cycle(degrees, paced) == settled and slower(degrees, paced) == lost
    assert slower(degrees, paced, backward=2) == longer and slower(degrees, paced, extra=1) == 0
    assert lost == 0 or f"| {settled[0]} in {settled[1]:.0f} s |" in FINDINGS
    assert f"| {lost:.1f} % |" in FINDINGS or lost == 0


@pytest.mark.slow
def test_the_smallest_room_that_is_too_small() -> None:
    """No fewer devices lose anything, whole factors lose nothing, and one more is not always enough."""
    every = [d for n in range(1, 5) for d in product(range(1, 5), repeat=n) if sum(d) <= 4]
    lose = {
        paced: [d for d in every if max(slower(d, paced), slower(d, paced, backward=2)) > 0] for paced in (False, True)
    }
    assert [d for d in lose[False] if sum(d) <= 3] == [(1, 2)] and lose[True] == [(1, 2, 1)]
    assert not any(all(d % e == 0 for d, e in pairwise(degrees)) for degrees in lose[False])
    assert slower([1, 3, 1], paced=True, extra=1) == slower([1, 3, 1], paced=False, extra=1) == 22.2


def test_another_order_keeps_to_the_room_of_appendix_a() -> None:
    """Degrees 1, 2, 1 at the bottleneck's pace of 2 s: the middle stage's replicas get two micro-batches in turn."""
    degrees, forward, backward = (1, 2, 1), (-1, 0, 2), (6, 4, 3)  # starts of micro-batch 0; each next one 2 s later
    for stage, d in enumerate(degrees):
        for replica in range(d):
            own = [2 * m for m in range(40) if m // 2 % d == replica]
            starts = sorted(shift + first for shift in own for first in (forward[stage], backward[stage]))
            assert all(before + d <= after for before, after in pairwise(starts))
            held = [sum(forward[stage] + n <= now < backward[stage] + n + d for n in own) for now in range(100)]
            assert max(held) == in_flight(degrees)[stage]
    assert all(forward[i] + degrees[i] <= forward[i + 1] for i in (0, 1)) and forward[2] + 1 <= backward[2]
    assert all(backward[i + 1] + degrees[i + 1] <= backward[i] for i in (0, 1))
