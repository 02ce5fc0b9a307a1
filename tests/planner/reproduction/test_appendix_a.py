"""What docs/findings.md states about Piper's Appendix A: is room for ceil(s/d) micro-batches in flight enough?"""

from collections.abc import Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

import planner
from formulations.simulation.simulate_chain import PipelineStage, in_flight, simulate
from planner.experiments.census import census
from planner.experiments.census.totals import Census
from solvers.outcome import Limits

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
    ([1, 2], False, (3, 7.0), 16.7, 22.2), ([1, 2], True, (1, 2.0), 0.0, 0.0),
    ([1, 2, 1], False, (4, 10.0), 25.0, 25.0), ([1, 2, 1], True, (4, 10.0), 25.0, 25.0),
    ([2, 3, 1], False, (6, 14.0), 16.7, 33.3), ([2, 3, 1], True, (7, 18.0), 28.6, 33.3),
]  # fmt: skip


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


#: Cluster, method inside: optimal, all, mean and worst loss in percent, loss of the best strategy in percent.
SLOW = pytest.mark.slow
AMP = [
    ("amp-het-cluster", "amp", 41, 53, 1.4, 34.5, 2.15),
    pytest.param("amp-homogeneous", "amp-released", 48, 53, 0.03, 0.71, 0.0, marks=SLOW),
    pytest.param("amp-het-model", "megatron", 15, 65, 8.1, 25.4, 15.4, marks=SLOW),
    pytest.param("amp-homogeneous", "amp", 43, 53, 0.43, 9.1, 0.0, marks=SLOW),
    pytest.param("amp-homogeneous", "megatron", 36, 53, 0.61, 5.7, 0.0, marks=SLOW),
    pytest.param("amp-het-cluster", "amp-released", 40, 53, 0.23, 2.7, 2.28, marks=SLOW),
    pytest.param("amp-het-cluster", "megatron", 38, 53, 0.39, 3.5, 2.15, marks=SLOW),
    pytest.param("amp-het-model", "amp", 48, 65, 0.54, 19.4, 0.51, marks=SLOW),
    pytest.param("amp-het-model", "amp-released", 50, 65, 0.46, 16.2, 0.51, marks=SLOW),
]


def _census(instance: Any, tmp_path: Path, **given: Any) -> Census:
    limits = Limits(time_s=30.0)
    found = census(instance, out=str(tmp_path / "census"), limits=limits, **{"end_to_end": False, **given})
    assert found.complete and found.agree
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "inner", "optimal", "instances", "mean", "worst", "best"), AMP)
def test_layers_of_amp_strategies(
    cluster: str, inner: str, optimal: int, instances: int, mean: float, worst: float, best: float,
    published: Path, tmp_path: Path,
) -> None:  # fmt: skip
    instance = planner.load(cluster, inputs=str(published))
    found = _census(instance, tmp_path, problem="layer_assignment", method=inner, end_to_end=True)
    tally = found.variants[inner]
    assert (tally.optimal, tally.instances, tally.unproved) == (optimal, instances, 0)
    assert tally.mean_loss is not None and tally.worst_loss is not None and found.end_to_end is not None
    shown = (tally.mean_loss, tally.worst_loss, found.end_to_end["loss"])
    for value, printed in zip(shown, (mean, worst, best), strict=True):
        assert 100 * value == pytest.approx(printed, abs=0.051 if printed >= 1 else 0.0051)


@pytest.mark.slow
def test_states_of_the_dynamic_program(published: Path, tmp_path: Path) -> None:
    instance = planner.load("resnet50.graph.txt", inputs=str(published), stages=4)
    found = _census(instance, tmp_path, method="dp", against="cpsat")
    assert (found.variants["dp"].instances, found.variants["dp"].optimal) == (290, 290)


@pytest.mark.slow
def test_parts_of_the_case_study(tmp_path: Path) -> None:
    found = _census(planner.load("graphpipe-case-study", devices=8), tmp_path, problem="stage_graph").variants
    assert {name: (each.optimal, each.instances) for name, each in found.items()} == {
        "powers of two": (76, 100),
        "other counts": (19, 100),
    }


@pytest.mark.parametrize(
    ("devices", "percent"), [(2, 11.2), (4, 0.0), *(pytest.param(each, 0.0, marks=SLOW) for each in (8, 16))]
)
def test_the_whole_case_study(devices: int, percent: float) -> None:
    instance = planner.load("graphpipe-case-study", devices=devices)
    report = planner.crosscheck(instance, methods=["graphpipe", "exact"], limits=Limits(time_s=60.0))
    assert report.optimum is not None and report.results[0].loss == pytest.approx(percent / 100, abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "plans"), [("mmt", 8), ("dlrm", 10), ("graphpipe-case-study", 8)])
def test_schedules_of_its_plans(model: str, plans: int, tmp_path: Path) -> None:
    found = _census(planner.load(model, devices=8), tmp_path, problem="microbatch_schedule").variants
    assert (found["1f1b"].optimal, found["1f1b"].instances) == (plans, plans)
