"""Planners on device graphs: which devices stages get, and all that they can have."""

import math
from dataclasses import replace

import pytest
from branching_cases import random_graph
from device_graphs import heterogeneous_devices, least_on_devices

import planner
from formulations.stage_graph.definition.problem import evaluate, violations
from formulations.stage_graph.paper.device_graph import Placer, least_machine, machines
from formulations.stage_graph.paper.graphpipe import solve_graphpipe
from formulations.stage_graph.upsets import device_sets
from instances.problems.stage_graph import AffineTime, DeviceGraph, Operator, OperatorEdge, StageGraph
from planner import Result
from solvers.outcome import Limits, Status, Watch

HEURISTICS = ("graphpipe", "graphpipe-plus", "pipedream", "piper-dp", "data-parallel")


def two_stages() -> StageGraph:
    """An operator that takes 16 bytes before one that takes 4, on three devices of 4, 8 and 16 bytes."""
    time = AffineTime(0.0, 1.0)
    operators = Operator("large", time, time, 3.0, 4.0), Operator("small", time, time, 0.0, 3.0)
    links = ((0.0, 4.0, 1.0), (2.0, 0.0, 0.0), (1.0, 0.0, 0.0))
    return StageGraph(
        "two",
        operators,
        (OperatorEdge(0, 1, 1.0),),
        3,
        0.0,
        1.0,
        0.0,
        1,
        device_graph=DeviceGraph((4.0, 8.0, 16.0), links),
    )


def devices_of(result: Result) -> list[list[int]]:
    """By stage."""
    assert result.plan is not None
    return [stage["devices"] for stage in result.plan["stages"]]


def test_no_plan_beats_the_exact_one(cases: int) -> None:
    optimal = dict.fromkeys(HEURISTICS, 0)
    infeasible, count = 0, max(12, cases // 4)
    for seed in range(count):
        instance = heterogeneous_devices(seed)
        optimum = least_on_devices(instance)
        exact = device_sets.solve(instance, Limits(), Watch())
        if optimum == math.inf:
            assert exact.infeasible, seed
        else:
            assert exact.plan is not None and not violations(instance, exact.plan), seed
            assert evaluate(instance, exact.plan) == pytest.approx(optimum, rel=1e-9), seed
            assert exact.bound is not None and exact.bound == pytest.approx(optimum, rel=1e-8), seed
        for method in HEURISTICS:
            found = planner.solve(instance, method=method)  # which checks the plan, its objective and the bound
            assert found.objective is None or found.objective >= optimum * (1 - 1e-9), (seed, method)
            assert found.bound is None or found.bound <= optimum * (1 + 1e-9), (seed, method)
            optimal[method] += found.objective == pytest.approx(optimum, rel=1e-9)
        infeasible += optimum == math.inf
    assert 0 < infeasible < count
    assert optimal["graphpipe-plus"] > 0.8 * (count - infeasible) > optimal["graphpipe"]


@pytest.mark.parametrize(
    ("memory", "links", "held"),
    [
        # the same room and other links: only the first and the last device have the fast one
        ((16.0, 16.0, 16.0), ((0.0, 1.0, 4.0), (1.0, 0.0, 2.0), (4.0, 2.0, 0.0)), {0, 2}),
        # the same links and other rooms: the small operator has to leave the first device to the large one
        ((16.0, 4.0, 4.0), ((0.0, 4.0, 4.0), (4.0, 0.0, 4.0), (4.0, 4.0, 0.0)), {0, 1}),
    ],
)
def test_devices_that_differ_in_room_or_links_are_not_exchanged(
    memory: tuple[float, ...], links: tuple[tuple[float, ...], ...], held: set[int]
) -> None:
    # No device holds both operators: together they need 20 bytes.
    exact = device_sets.solve(replace(two_stages(), device_graph=DeviceGraph(memory, links)), Limits(), Watch())
    assert exact.plan is not None and {u for stage in exact.plan.stages for u in stage.device_ids} == held


def test_what_algorithm_1_sees() -> None:
    instance = two_stages()
    seen = least_machine(instance)
    assert (seen.num_devices, seen.memory_bytes, seen.bandwidth_bytes_per_s) == (3, 4.0, 1.0)
    assert seen.device_graph is None and least_machine(seen) is seen
    rooms = {(each.num_devices, each.memory_bytes) for each in machines(instance)}
    assert rooms == {(3, 4.0), (2, 8.0), (1, 16.0), (3, 28.0)}
    assert {each.bandwidth_bytes_per_s for each in machines(instance) if each.num_devices == 3} == {1.0, 2.0}


def test_stages_take_devices_in_order() -> None:
    instance = two_stages()
    assert planner.solve(instance, method="graphpipe").status is Status.UNKNOWN  # no stage with weights fits everywhere
    roomy = replace(instance, device_graph=replace(instance.device_graph, memory_bytes=(32.0, 32.0, 16.0)))
    found = planner.solve(roomy, method="graphpipe")
    assert devices_of(found) == [[0], [1]] and found.objective == 3.0  # 2 of passes, 1 sent: link 0 to 1 is not slowest
    links = ((0.0, 0.0, 9.0), (0.0, 0.0, 9.0), (9.0, 9.0, 0.0))
    apart = replace(roomy, device_graph=DeviceGraph((16.0, 16.0, 16.0), links))
    assert planner.solve(apart, method="graphpipe").plan is None  # devices 0 and 1 are not linked
    better = planner.solve(apart, method="graphpipe-plus")
    assert [2] in devices_of(better) and better.objective < 3.0


def test_large_stages_get_large_devices() -> None:
    instance = two_stages()
    found = planner.solve(instance, method="graphpipe-plus")
    assert devices_of(found) == [[2], [0]]
    assert found.objective == planner.solve(instance, method="device-sets").objective == 4.0  # 2 of passes, 2 sent


@pytest.mark.parametrize("seed", range(6))
def test_equal_devices_of_a_graph_are_identical_ones(seed: int) -> None:
    instance = random_graph(seed, (3, 6), 4, series_parallel=True)
    rates = [[0.0 if u == v else instance.bandwidth_bytes_per_s for v in range(4)] for u in range(4)]
    graph = DeviceGraph((instance.memory_bytes,) * 4, tuple(map(tuple, rates)))
    declared = replace(instance, device_graph=graph)
    for method in HEURISTICS:
        one, other = (planner.solve(each, method=method).objective for each in (instance, declared))
        assert other == pytest.approx(one) if method != "graphpipe-plus" else (one is None or other <= one * (1 + 1e-9))
    search = device_sets.DeviceSets(declared, Watch())
    assert search.kind == [0, 0, 0, 0]
    proved = planner.solve(declared, method="device-sets")
    assert proved.objective == pytest.approx(planner.solve(instance, method="levels").objective)


def test_a_size_for_each_stage_on_a_device_graph() -> None:
    for seed in range(6):
        instance = replace(heterogeneous_devices(seed), schedule="per-stage")
        for method in ("graphpipe", "graphpipe-plus"):
            found = planner.solve(instance, method=method)
            assert found.plan is None or found.verified


def test_the_score_is_that_of_the_definition() -> None:
    for seed in range(20):
        instance = heterogeneous_devices(seed)
        found = solve_graphpipe(instance, Limits(), Watch()).plan
        if found is not None:
            apart, over, *times = Placer(instance, Watch()).score(found)
            assert (apart, over) == (0, 0.0) and times[0] == pytest.approx(evaluate(instance, found))
