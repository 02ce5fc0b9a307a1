"""The figures of docs/findings.md on what planners choose inside."""

from pathlib import Path
from typing import Any

import pytest

import planner
from planner.experiments.census import census
from planner.experiments.census.totals import Census
from solvers.outcome import Limits

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
