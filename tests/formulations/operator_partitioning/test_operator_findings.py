"""What docs/findings.md states about Parmesan's partitioning."""

from itertools import combinations

import pytest

import planner
from formulations.operator_partitioning import FAMILY
from formulations.operator_partitioning.definition.settings import read
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor, in_topological_order

#: A chain of three operators of 1 s; a sends one tensor of 2 s to both others, b one of 1 s to c.
SHARED = OperatorInstance(
    "shared",
    *in_topological_order(
        [Operator(name, 1.0) for name in ("a", "b", "c")], [Tensor(0, (1, 2), 2.0), Tensor(1, (2,), 1.0)]
    ),
    num_stages=2,
    bandwidth_bytes_per_s=1.0,
)
Cut = tuple[frozenset[str], frozenset[str]]


def cuts() -> list[Cut]:
    """Every way to make two stages: the first holds what its operators take tensors from, and neither is empty."""
    takes = {"a": set(), "b": {"a"}, "c": {"a", "b"}}
    firsts = [frozenset(kept) for size in (1, 2) for kept in combinations(takes, size)]
    return [(first, frozenset(takes) - first) for first in firsts if all(takes[v] <= first for v in first)]


def slowest(cut: Cut, pairs: bool) -> int:
    """Seconds of the slower stage; a tensor counts for every pair of operators (Equation 3) or once for the stage."""
    sent = {"a": (2, {"b", "c"}), "b": (1, {"c"})}
    first, second = cut
    crossing = [(volume, len(takers & second)) for source, (volume, takers) in sent.items() if source in first]
    between = sum(volume * (takers if pairs else min(takers, 1)) for volume, takers in crossing)
    return max(len(first), len(second)) + between


def test_every_best_cut_of_equation_3_is_worse_where_a_shared_tensor_is_sent_once() -> None:
    """Strictly: no rule for ties helps."""
    by_pairs, once = ({cut: slowest(cut, pairs) for cut in cuts()} for pairs in (True, False))
    best = [cut for cut, seconds in by_pairs.items() if seconds == min(by_pairs.values())]
    assert len(by_pairs) == 2 and (min(by_pairs.values()), min(once.values())) == (5, 4)
    assert [once[cut] for cut in best] == [5] * len(best) and best


def test_equation_3_counts_a_shared_tensor_twice_and_takes_the_wrong_cut() -> None:
    program = planner.solve(SHARED, method="dp")  # three operators: nothing is clustered
    best = planner.solve(SHARED, exact=True)
    assert (program.objective, best.objective) == (5.0, 4.0) and best.status == "optimal"
    assert best.plan is not None and best.plan["stages"] == [["a"], ["b", "c"]]
    assert program.plan is not None and program.plan["stages"] == [["a", "b"], ["c"]]
    # Declared so, its count is exact.
    literal = read(SHARED, "shared", {"count": "pair"})
    assert planner.solve(literal, method="dp").objective == planner.solve(literal, exact=True).objective == 5.0


@pytest.mark.parametrize("count", ["once", "pair"])
def test_both_counts_are_the_ones_enumerated(count: str) -> None:
    instance = read(SHARED, "shared", {} if count == "once" else {"count": count})
    for cut in cuts():
        plan = FAMILY.plan_from_json(instance, {"stages": [sorted(stage) for stage in cut]})
        assert FAMILY.evaluate(instance, plan) == slowest(cut, count == "pair")


@pytest.mark.parametrize(
    ("name", "stages", "step", "percent"),
    [("resnet152", 8, "loss", 6.9), ("swin-l", 16, "clustering_loss", 10.2), ("swin-l", 16, "refinement_gain", 10.2)],
)
def test_losses_as_measured(name: str, stages: int, step: str, percent: float) -> None:
    instance = planner.load(name, stages=stages)
    result = planner.solve(instance, method="parmesan", options={"report-losses": True})
    assert 100 * result.stats["losses"][step] == pytest.approx(percent, abs=0.05)


def test_cpsat_agrees_on_the_example() -> None:
    assert planner.solve(SHARED, method="cpsat").objective == 4.0
