"""Operator graphs from architectures: sizes as published, costs that scale, methods that agree on them."""

import pytest

import planner
from formulations.operator_partitioning.effort import downset_count
from instances.catalog.catalog import CATALOG
from instances.graph import topological_order
from instances.problems.operator_partitioning import OperatorInstance
from planner import UsageError

NAMES = [entry.name for entry in CATALOG.values() if entry.family == "operator_partitioning"]


def parameters(instance: OperatorInstance) -> float:
    return sum(operator.parameter_bytes for operator in instance.operators) / 4


@pytest.mark.parametrize(
    ("name", "millions"), [("resnet50", 25.557), ("resnet152", 60.193), ("bert-l", 336.2), ("swin-l", 196.5)]
)
def test_parameters_are_those_that_are_published(name: str, millions: float) -> None:
    assert parameters(planner.load(name)) == pytest.approx(millions * 1e6, rel=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_graphs_hang_together_and_scale_with_the_microbatch(name: str) -> None:
    instance = planner.load(name)
    n = len(instance.operators)
    assert topological_order(n, instance.edges) == list(range(n))
    fed = {b for _, b in instance.edges}
    assert all(v in fed or instance.operators[v].name == "input" for v in range(n))
    feeds = {a for a, _ in instance.edges}
    assert [instance.operators[v].name for v in range(n) if v not in feeds] == ["loss"]
    small, large = (planner.load(name, microbatch_size=size) for size in (8, 16))
    assert sum(t.volume_bytes for t in large.tensors) == pytest.approx(2 * sum(t.volume_bytes for t in small.tensors))
    assert parameters(small) == parameters(large)
    assert small.total_compute_s < large.total_compute_s <= 2 * small.total_compute_s
    assert planner.load(name, accelerator="a100").total_compute_s < instance.total_compute_s


def test_forward_operations_of_resnet() -> None:
    # 4.1e9 multiply-adds for an image of 224 pixels; times are at least those of the operations alone.
    seconds = planner.load("resnet50", microbatch_size=64).total_compute_s
    assert seconds > 3 * 64 * 2 * 4.09e9 / (0.7 * 15.7e12)


def test_bert_repeats_itself() -> None:
    sizes = [len(planner.load("bert-l", layers=count).operators) for count in (1, 2, 5)]
    assert sizes[1] - sizes[0] == 22 and sizes[2] - sizes[1] == 66


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("resnet50", 8),
        ("gnmt", 4),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("semantic-fpn", 8), ("bert-l", 16))),
    ],
)
def test_the_optimum_is_proved_and_not_above_the_published_flow(name: str, stages: int) -> None:
    instance = planner.load(name, stages=stages)
    assert (downset_count(instance) or 0) >= len(instance.operators)
    best = planner.solve(instance, exact=True, limits=planner.Limits(time_s=60))
    flow = planner.solve(instance, method="parmesan")
    assert best.status == "optimal" and best.method == "exact"
    assert flow.objective is not None and best.objective is not None
    assert best.objective <= flow.objective * (1 + 1e-9) and flow.objective < 1.1 * best.objective
    assert planner.check(instance, best.plan).objective == best.objective


@pytest.mark.parametrize(("name", "given"), [("bert-l", {"layers": 0}), ("resnet50", {"image_size": 33})])
def test_impossible_sizes_are_one_line(name: str, given: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        planner.load(name, **given)
