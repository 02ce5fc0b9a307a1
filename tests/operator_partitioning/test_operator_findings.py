"""What docs/findings.md says of Parmesan's partitioning."""

from __future__ import annotations

import pytest

import planner
from formulations.operator_partitioning import FAMILY, read
from instances.operator_partitioning import Operator, OperatorInstance, Tensor, ordered

#: a feeds b and d with one tensor; b and c feed d.
SHARED = OperatorInstance(
    "shared",
    *ordered(
        [Operator(name, time) for name, time in (("a", 3.0), ("b", 2.0), ("c", 1.0), ("d", 1.0))],
        [Tensor(0, (1, 3), 2.0), Tensor(1, (3,), 1.0), Tensor(2, (3,), 2.0)],
    ),
    num_stages=2,
    bandwidth_bytes_per_s=1.0,
)


def test_equation_3_counts_a_shared_tensor_twice_and_takes_the_wrong_cut() -> None:
    program = planner.solve(SHARED, method="dp")  # four operators: nothing is clustered
    best = planner.solve(SHARED, exact=True)
    assert (program.objective, best.objective) == (8.0, 6.0) and best.status == "optimal"
    assert best.plan is not None and best.plan["stages"] == [["a"], ["b", "c", "d"]]
    # Declared so, its count is exact.
    literal = read(SHARED, "shared", {"count": "pair"})
    assert planner.solve(literal, method="dp").objective == planner.solve(literal, exact=True).objective == 8.0


@pytest.mark.parametrize(
    ("name", "stages", "step", "percent"),
    [("resnet152", 8, "loss", 6.9), ("swin-l", 16, "clustering_loss", 10.2), ("swin-l", 16, "refinement_gain", 10.2)],
)
def test_losses_as_measured(name: str, stages: int, step: str, percent: float) -> None:
    instance = planner.load(name, stages=stages)
    result = planner.solve(instance, method="parmesan", options={"report-losses": True})
    assert 100 * result.stats["losses"][step] == pytest.approx(percent, abs=0.05)


def test_cpsat_agrees_on_the_example() -> None:
    assert planner.solve(SHARED, method="cpsat").objective == 6.0
    assert FAMILY.evaluate(SHARED, FAMILY.plan_from_json(SHARED, {"stages": [["a", "b"], ["c", "d"]]})) == 8.0
