"""Piper's Fig. 6: stages need not be connected, but they must be contiguous."""

from dataclasses import replace

import planner
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import evaluate, violations
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc


def graph(edges: str, **times: float) -> StageInstance:
    """Nodes with their times; edges such as ``"ab bc"`` carry one byte."""
    layers = tuple(Layer(node, {1: (Tmpc("x", time, 0, 0, 0),)}) for node, time in times.items())
    return StageInstance("graph", layers, tuple(Edge(u, v, 1.0) for u, v in edges.split()), len(layers), 1, 1e6, 8)


def plan(*stages: str) -> StagePlan:
    return StagePlan(tuple(Stage(tuple(nodes), 1, 1, dict.fromkeys(nodes, "x")) for nodes in stages))


def test_contiguous_but_disconnected_is_allowed_and_found() -> None:
    """Two branches without an edge between them are one stage, and in the best plan they must be."""
    diamond = graph("ab ac bd cd", a=2, b=1, c=1, d=2)
    diamond = replace(diamond, num_devices=3, max_dp_degree=1)
    assert violations(diamond, plan("a", "bc", "d")) == ()
    result = planner.solve(diamond, method="exact")
    assert result.objective == evaluate(diamond, plan("a", "bc", "d"))
    assert {frozenset(stage["nodes"]) for stage in result.plan["stages"]} >= {frozenset("bc")}


def test_connected_but_not_contiguous_is_refused_and_not_found() -> None:
    """a and c are joined by an edge, but a path leads from a over b to c: no order of the stages helps."""
    triangle = replace(graph("ab bc ac", a=1, b=4, c=1), num_devices=2, max_dp_degree=1)
    for order in (("ac", "b"), ("b", "ac")):
        assert {found.rule for found in violations(triangle, plan(*order))} == {"order"}
    # {a, c} and {b} would take 4; the best plan that is allowed takes 5
    for method in ("exact", "piper", "cpsat", "milp"):
        result = planner.solve(triangle, method=method)
        assert result.objective is not None and 5 <= result.objective < 5.001
