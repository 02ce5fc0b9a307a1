"""Parmesan's steps: clustering, the dynamic program on clusters, refinement, and what each of them loses."""

import random
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from oracles.operator_partitioning import random_instance
from thinned import thinned

import planner
from formulations.operator_partitioning import FAMILY, exact
from formulations.operator_partitioning.costs.downsets import all_downsets
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate, violations
from formulations.operator_partitioning.definition.settings import read
from formulations.operator_partitioning.paper import parmesan
from formulations.operator_partitioning.paper.clustering import default_clusters, fuse
from formulations.operator_partitioning.paper.refinement import refine
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor, in_topological_order
from solvers.outcome import Limits, Watch


def solve(method: Any, instance: OperatorInstance, **options: Any) -> Any:
    limits = Limits(time_s=30)
    return method(instance, limits, Watch(limits), **options)


#: Many tensors of one target: then Equation 3 is a matter of the stage alone.
def _plain(seed: int, n: int = 9) -> OperatorInstance:
    rng = random.Random(seed)
    operators = [Operator(v, float(rng.randint(1, 9))) for v in range(n)]
    pairs = {(max(0, v - rng.randint(1, 3)), v) for v in range(1, n)} | {(v, v + 2) for v in range(0, n - 2, 3)}
    tensors = [Tensor(a, (b,), float(rng.randint(0, 6))) for a, b in sorted(pairs)]
    return OperatorInstance("plain", *in_topological_order(operators, tensors), num_stages=3, bandwidth_bytes_per_s=2.0)


def test_the_published_program_is_exact_without_clustering_where_tensors_have_one_target(cases: int) -> None:
    for seed in range(cases):
        instance = _plain(seed)
        answer = solve(parmesan.solve_dp, instance, clusters=9)
        best = solve(exact.solve, instance)
        assert answer.stats["clusters"] == 9
        assert evaluate(instance, answer.plan) == pytest.approx(evaluate(instance, best.plan), rel=1e-9)


def test_fusions_are_convex_and_by_rising_cost_where_they_may_be(cases: int) -> None:
    for seed in range(cases // 5):
        instance = _plain(seed, 14)
        fusions = fuse(instance, 1)
        for count in range(14, 1, -1):
            clusters = fusions.clusters(count)
            home = {v: c for c, members in enumerate(clusters) for v in members}
            assert sorted(home) == list(range(14))
            assert all_downsets(instance, 10**6) is not None
            plan = _by_waiting(instance, clusters, home)
            assert plan is not None, "a cycle of clusters"
    chain = OperatorInstance(
        "chain",
        tuple(Operator(v, time) for v, time in enumerate((5.0, 1.0, 1.0, 4.0))),
        tuple(Tensor(v, (v + 1,), 1.0) for v in range(3)),
        2,
        bandwidth_bytes_per_s=1.0,
    )
    assert fuse(chain, 2).clusters(3) == ((0,), (1, 2), (3,))
    # Communication that weighs enough turns the choice.
    heavy = replace(chain, tensors=(Tensor(0, (1,), 9.0), *chain.tensors[1:]))
    assert fuse(heavy, 3, alpha=1.0).clusters(3) == ((0, 1), (2,), (3,))
    assert fuse(heavy, 3, alpha=0.0).clusters(3) == ((0,), (1, 2), (3,))


def _by_waiting(instance: OperatorInstance, clusters: Any, home: dict[int, int]) -> list[int] | None:
    """The clusters in an order in which none waits for a later one."""
    done: list[int] = []
    while len(done) < len(clusters):
        waits = {home[b] for a, b in instance.edges if home[a] != home[b] and home[a] not in done}
        ready = [c for c in range(len(clusters)) if c not in done and c not in waits]
        if not ready:
            return None
        done.append(ready[0])
    return done


def test_a_pair_with_a_detour_waits_until_the_detour_is_inside() -> None:
    # a -> b -> c and a -> c: (a, c) is the cheapest pair, but b would be left outside.
    operators = tuple(Operator(v, time) for v, time in enumerate((1.0, 50.0, 1.0, 60.0)))
    tensors = (Tensor(0, (1, 2), 1.0), Tensor(1, (2,), 1.0), Tensor(2, (3,), 1.0))
    instance = OperatorInstance("detour", operators, tensors, 2, bandwidth_bytes_per_s=1.0)
    assert fuse(instance, 3).pairs[0] == (0, 1)
    assert fuse(instance, 1).clusters(2) == ((0, 1, 2), (3,))


def test_a_fusion_must_fit_a_device() -> None:
    operators = tuple(Operator(v, 1.0, memory_bytes=4.0) for v in range(4))
    tensors = tuple(Tensor(v, (v + 1,), 1.0) for v in range(3))
    instance = OperatorInstance("tight", operators, tensors, 2, bandwidth_bytes_per_s=1.0, memory_bytes=8.0)
    assert [len(each) for each in fuse(instance, 1).clusters(1)] == [2, 2]


def test_refinement_moves_an_operator_over_the_border_and_stops() -> None:
    operators = tuple(Operator(v, 1.0) for v in range(6))
    tensors = tuple(Tensor(v, (v + 1,), 0.1) for v in range(5))
    instance = OperatorInstance("six", operators, tensors, 2, bandwidth_bytes_per_s=1.0)
    start = OperatorPlan(((0,), (1, 2, 3, 4, 5)), (1, 1))
    better, moves = refine(instance, start)
    assert (better.stages, moves) == (((0, 1, 2), (3, 4, 5)), 2)
    assert refine(instance, start, moves=1)[1] == 1
    assert refine(instance, better) == (better, 0)


def test_refinement_never_makes_it_worse_and_keeps_the_rules(cases: int) -> None:
    for case in range(cases):
        instance = random_instance(random.Random(f"refine {case}"), 9)
        if instance.num_stages is None:
            continue
        start = parmesan.equal(instance)
        if start is None or violations(instance, start):
            continue
        better, _ = refine(instance, start)
        assert violations(instance, better) == ()
        assert evaluate(instance, better) <= evaluate(instance, start) * (1 + 1e-12)


def test_the_default_number_of_clusters() -> None:
    assert [default_clusters(each) for each in (2, 16, 100)] == [64, 128, 256]


def test_losses_of_each_step_add_up() -> None:
    for name, stages in (("resnet50", 8), ("gnmt", 4)):
        instance = planner.load(name, stages=stages)
        stats = solve(parmesan.solve, instance, report_losses=True).stats["losses"]
        best = solve(exact.solve, instance)
        assert stats["optimum"] == pytest.approx(evaluate(instance, best.plan), rel=1e-8)
        assert stats["optimum"] <= stats["clustered"] * (1 + 1e-9)
        assert stats["clustered"] <= stats["dynamic_program"] * (1 + 1e-9)
        parts = stats["clustering_loss"] + stats["dynamic_program_loss"] - stats["refinement_gain"]
        assert parts == pytest.approx(stats["loss"], abs=1e-9)


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


@thinned(
    ("name", "stages", "step", "percent"),
    [("resnet152", 8, "loss", 6.9), ("swin-l", 16, "clustering_loss", 10.2), ("swin-l", 16, "refinement_gain", 10.2)],
)
def test_losses_as_measured(name: str, stages: int, step: str, percent: float) -> None:
    instance = planner.load(name, stages=stages)
    result = planner.solve(instance, method="parmesan", options={"report-losses": True})
    assert 100 * result.stats["losses"][step] == pytest.approx(percent, abs=0.05)
