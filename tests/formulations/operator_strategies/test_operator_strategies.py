"""Operator strategies: the definition by hand, every method beside brute force, rules of files, the contest's JSON."""

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.operator_strategies import optimum, random_instance

import planner
from formulations import family_named
from formulations.operator_strategies import reduction
from formulations.operator_strategies.definition.plan import StrategyPlan
from formulations.operator_strategies.definition.problem import evaluate, peak_usage, violations
from instances.errors import InstanceError
from instances.problems.operator_strategies import IMPOSSIBLE, OperatorStrategies, StrategyNode, generate
from instances.readers import iopddl_json
from planner.cli.app import main
from solvers.outcome import Limits, Status, Watch

#: Written by hand after the contest's format: live together are 0 and 1 at times 1 and 2, 1 and 2 at time 3.
CONTEST = {
    "problem": {
        "name": "by hand",
        "nodes": {
            "intervals": [[0, 3], [1, 4], [3, 5], [2, 2]],
            "costs": [[4, 1], [2], [3, 5, 0], [1, 2]],
            "usages": [[5, 8], [6], [4, 3, 9], [99, 99]],
        },
        "edges": {"nodes": [[0, 1], [2, 0], [0, 2]], "costs": [[7, 0], [0, 9, 0, 9, 0, 9], [1, 1, 1, 2, 2, 2]]},
        "usage_limit": 14,
    }
}


def by_hand() -> OperatorStrategies:
    return iopddl_json.read(CONTEST, "by hand")


def test_costs_and_usages_by_hand() -> None:
    instance, plan = by_hand(), StrategyPlan((1, 0, 1, 0))
    # nodes 1 + 2 + 5 + 1; edges: 0 for (0, 1), entry 1 * 2 + 1 of the second, entry 1 * 3 + 1 of the third
    assert evaluate(instance, plan) == 9 + 0 + 9 + 2
    # 8 and 6 from time 1 on, 6 and 3 at time 3; the last node is live at no time
    assert peak_usage(instance, plan) == (14, 1) and peak_usage(instance, StrategyPlan((0, 0, 2, 1))) == (15, 3)
    assert violations(instance, plan) == ()
    assert [each.rule for each in violations(replace(instance, usage_limit=13), plan)] == ["memory"]
    assert violations(replace(instance, usage_limit=None), StrategyPlan((1, 0, 2, 1))) == ()
    for wrong in ((1, 0, 1), (2, 0, 0, 0), (-1, 0, 0, 0)):
        assert [each.rule for each in violations(instance, StrategyPlan(wrong))] == ["choice"]


def test_maximal_sets_of_live_nodes() -> None:
    assert reduction.cliques(by_hand()) == [[0, 1], [1, 2]]
    assert reduction.binding(by_hand(), [[0], [0], [0], [0]]) == [], "these need 11 and 10 of 14"
    assert reduction.binding(by_hand(), [[0, 1], [0], [0, 2], [0]]) == [[1, 2]]
    spans = [(0, 9), (1, 3), (2, 4), (3, 5), (6, 6), (7, 9)]
    nodes = tuple(StrategyNode(span, (0,), (1,)) for span in spans)
    assert reduction.cliques(OperatorStrategies("spans", nodes)) == [[0, 1, 2], [0, 2, 3], [0, 5]]


def test_what_is_reduced_costs_the_same() -> None:
    """Of every plan of kept strategies, and some optimal plan is one, or a known plan is as good."""
    rng, dropped, raised = random.Random(5), 0, 0
    for _ in range(150):
        instance = random_instance(rng, 4)
        best = optimum(instance)
        # What is impossible costs more than counts in full.
        if best is None or best >= IMPOSSIBLE:
            continue
        known = rng.choice([None, best, best + rng.randint(0, 9)])
        found = reduction.reduce(instance, Watch(Limits()), known=known, dominated=rng.random() < 0.7)
        dropped += sum(len(n.costs) - len(k) for n, k in zip(instance.nodes, found.kept, strict=True))
        raised += found.base > 0
        least = None
        for chosen in np.ndindex(*map(len, found.kept)):
            plan = found.plan(chosen)
            cost = found.base + sum(int(costs[i]) for costs, i in zip(found.node_cost, chosen, strict=True))
            cost += sum(int(table[chosen[u], chosen[v]]) for (u, v), table in found.pair_cost.items())
            true = evaluate(instance, plan)
            assert cost <= true and (true >= IMPOSSIBLE or cost == true)
            banned = any(table[chosen[u], chosen[v]] for (u, v), table in found.banned.items())
            assert not banned or (known is not None and true > known)
            if not violations(instance, plan) and not banned:
                least = true if least is None else min(least, true)
        assert least == best
    assert dropped > 50 and raised > 50


@pytest.mark.parametrize("method", ["cpsat", "milp", "brute-force", "greedy", "random-path", "descent"])
def test_methods_beside_brute_force(method: str, cases: int) -> None:
    rng, exact, seen = random.Random(11), method in ("cpsat", "milp", "brute-force"), set()
    for _ in range(cases):
        instance = random_instance(rng, 5)
        best = optimum(instance)
        result = planner.solve(instance, method=method, limits=Limits(time_s=10))
        seen.add(result.status)
        if best is None:
            assert result.plan is None and (not exact or result.status is Status.INFEASIBLE)
            continue
        assert result.bound is None or result.bound <= best
        assert result.objective is None or result.objective >= best
        if exact and best < IMPOSSIBLE:
            assert (result.status, result.objective) == (Status.OPTIMAL, best)
        if exact or method != "greedy":
            assert result.objective is not None
    assert Status.INFEASIBLE in seen and len(seen) > 1


def test_no_node_at_all() -> None:
    for method in ("cpsat", "milp", "brute-force", "greedy", "random-path", "descent"):
        result = planner.solve(OperatorStrategies("none", (), (), 0), method=method)
        assert result.plan == {"strategy_of": []} and result.objective == 0.0


def test_heuristics_follow_their_words() -> None:
    instance = generate(30, 5, seed=3)
    least = planner.solve(instance, method="greedy")
    assert least.plan == {"strategy_of": [min(range(len(n.usages)), key=n.usages.__getitem__) for n in instance.nodes]}
    free = replace(instance, usage_limit=None)
    cheap = planner.solve(free, method="greedy", options={"by": "node-cost"})
    assert cheap.plan == {"strategy_of": [min(range(len(n.costs)), key=n.costs.__getitem__) for n in instance.nodes]}
    refused = planner.solve(by_hand(), method="greedy", options={"by": "node-cost"})
    assert refused.plan is None and "live nodes use 15 at time 3" in refused.reason
    walked = planner.solve(instance, method="random-path")
    assert walked.objective is not None and least.objective is not None
    assert planner.solve(instance, method="descent").objective <= walked.objective < least.objective


def test_requirements_reach_strategies_that_another_beats() -> None:
    node = StrategyNode((0, 1), (1, 5), (1, 2))
    instance = OperatorStrategies("beaten", (node,), usage_limit=9, requirements=("strategy_of(0) == 1",))
    for method in ("cpsat", "milp"):
        result = planner.solve(instance, method=method)
        assert (result.status, result.objective) == (Status.OPTIMAL, 5.0)


def test_files_of_the_contest_go_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(2)
    for instance in (by_hand(), generate(12, 4, seed=1), *(random_instance(rng) for _ in range(30))):
        written = json.loads(json.dumps(iopddl_json.write(instance)))
        assert iopddl_json.read(written, "again") == instance
        assert family_named("operator_strategies").recognise(written)
    (tmp_path / "hand.json.gz").write_bytes(gzip.compress(json.dumps(CONTEST).encode()))
    assert planner.load(str(tmp_path / "hand.json.gz")) == by_hand()
    assert main(["convert", str(tmp_path / "hand.json.gz"), "--to", "iopddl"]) == 0
    assert json.loads(capsys.readouterr().out) == CONTEST
    with pytest.raises(InstanceError, match="requirements"):
        iopddl_json.write(replace(by_hand(), requirements=("strategy_of(0) == 1",)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nodes": {**CONTEST["problem"]["nodes"], "costs": [[1]]}}, "len(problem.nodes.costs) is 1; expected 4"),
        ({"nodes": {**CONTEST["problem"]["nodes"], "usages": [[1], [1], [1], [1]]}}, "len(nodes[0].usages) is 1"),
        (
            {"nodes": {**CONTEST["problem"]["nodes"], "usages": [[2**62, 8], [6], [4, 3, 9], [99, 99]]}},
            "usages is 4611686018427388018; expected largest ones that sum to at most 4611686018427387904",
        ),
        (
            {"nodes": {**CONTEST["problem"]["nodes"], "intervals": [[3, 0], [1, 4], [3, 5], [2, 2]]}},
            "nodes[0].interval",
        ),
        ({"edges": {"nodes": [[0, 4]], "costs": [[1]]}}, "edges[0].nodes is [0, 4]; expected two nodes of 4"),
        ({"edges": {"nodes": [[1, 1]], "costs": [[1]]}}, "edges[0].nodes is [1, 1]; expected two nodes"),
        ({"edges": {"nodes": [[0, 1]], "costs": [[1]]}}, "len(edges[0].costs) is 1; expected 2"),
        ({"edges": {"nodes": [[0, 1, 2]], "costs": [[1]]}}, "problem.edges.nodes[0]"),
        ({"usage_limit": -1}, "problem.usage_limit is -1; expected an integer from 0 on"),
    ],
)
def test_bad_files_are_refused_in_words(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InstanceError) as refused:
        planner.load({"problem": {**CONTEST["problem"], **change}})
    assert words in str(refused.value)
