"""Certificates of stage graphs: accepted where all plans, priced in fractions, confirm them."""

import math
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from branching_cases import prices, random_graph, stage_bytes, uneven_graph
from certificate_cases import Spoiling, claimed, parsed, proves

from formulations.contract.checker.frame import RejectedError
from formulations.contract.family import UncertifiedError
from formulations.stage_graph.certificate import checker
from formulations.stage_graph.certificate.writer import write
from instances.problems.stage_graph import AffineTime, DeviceGraph, Operator, OperatorEdge, StageGraph, TableTime
from solvers.outcome import Watch


def small(number: int) -> StageGraph:
    """At most four operators, most often with whole numbers: a stage often takes the bound exactly."""
    rng = random.Random(f"small {number}")
    if number % 4 == 0:
        return uneven_graph(number, (1, 4))
    found = random_graph(number, (1, 4), rng.randint(1, 4), series_parallel=number % 2 == 0)
    if number % 4 == 1:
        return found
    made = []
    for each in found.operators:
        time: AffineTime | TableTime = AffineTime(rng.randint(0, 2), rng.randint(0, 3))
        if rng.random() < 0.3:
            time = TableTime((2, 4), (3, rng.choice([3, 4, 6])))
        made.append(replace(each, forward=time, backward=AffineTime(rng.randint(0, 1), rng.randint(1, 3))))
    tier = {"inner_bandwidth_bytes_per_s": 8.0, "devices_per_node": 2} if rng.random() < 0.3 else {}
    return replace(
        found, operators=tuple(made), bandwidth_bytes_per_s=rng.choice([1.0, 3.0]), latency_s=rng.choice([0, 1]), **tier
    )


def test_memory_is_that_of_the_definition_to_the_last_digit(cases: int) -> None:
    """Sums of tenths, with the memory that some stage takes in float64, or the next number below it."""
    outcomes = {True: 0, False: 0}
    for number in range(cases):
        rng = random.Random(f"tenths {number}")
        instance = random_graph(number, (2, 4), rng.randint(2, 4), series_parallel=number % 2 == 0)
        tenths = [
            replace(each, weight_bytes=rng.randint(0, 9) / 10, activation_bytes=rng.randint(1, 9) / 10)
            for each in instance.operators
        ]
        edges = tuple(replace(edge, bytes_per_sample=rng.randint(0, 5) / 10) for edge in instance.edges)
        instance = replace(instance, operators=tuple(tenths), edges=edges, weight_copies=rng.choice([0.7, 3.0]))
        part, size = list(range(rng.randint(1, len(tenths)))), rng.choice(instance.microbatch_sizes)
        exactly = stage_bytes(
            instance, part, size, rng.randint(1, min(size, instance.num_devices)), rng.choice((1, 2, 3))
        )
        above, below = (replace(instance, memory_bytes=m) for m in (exactly, math.nextafter(exactly, 0)))
        best = [prices(each)[:1] for each in (above, below)]
        for each, (first, *_) in zip((above, below), ([*found, None] for found in best), strict=True):
            assert proves(each, None) is (first is None), number
            if first:
                assert not proves(each, first) and proves(each, first * (1 - Fraction(1, 10**12))), number
        outcomes[best[0] != best[1]] += 1
    assert min(outcomes.values()) >= max(1, cases // 10), outcomes


def optimum(instance: StageGraph) -> Fraction | float:
    """The least price; infinite if there is no plan."""
    return min(prices(instance), default=math.inf)


SPOILING = Spoiling(small, optimum)


def two_operators(**fields: Any) -> StageGraph:
    """a before b, 3 s each per sample for both passes, 4 bytes kept; one byte between them, over 1 byte/s; B = 2."""
    each = Operator("x", AffineTime(0.0, 1.0), AffineTime(0.0, 2.0), 0.0, 4.0)
    found = StageGraph("two", (each, each), (OperatorEdge(0, 1, 1.0),), 2, 100.0, 1.0, 0.0, 2)
    return replace(found, **fields)


def test_edges_of_a_plan_may_be_more_than_its_tensors_need() -> None:
    """Stages in a sequence keep more in flight; a plan without an edge that a tensor needs is rejected."""
    instance = replace(two_operators(), edges=(), microbatches=(1,))

    def plan(edges: list, flying: int) -> dict:
        own = {"devices": 1, "microbatch": 1, "k": 1}
        stages = [{"nodes": [0], "in_flight": flying, **own}, {"nodes": [1], "in_flight": 1, **own}]
        return {"stages": stages, "edges": edges, "idle_devices": 0}

    exact = checker.Instance(parsed(instance))
    assert checker.plan_time(exact, plan([], 1)) == checker.plan_time(exact, plan([[0, 1]], 2)) == 3
    with pytest.raises(RejectedError, match="samples in flight"):
        checker.plan_time(exact, plan([[0, 1]], 1))
    with pytest.raises(RejectedError, match="tp_degree"):
        checker.plan_time(exact, {"stages": [each | {"tp_degree": 2} for each in plan([], 1)["stages"]], "edges": []})
    with pytest.raises(RejectedError, match="wait for each other"):
        checker.plan_time(exact, plan([[0, 1], [1, 0]], 2))
    with pytest.raises(RejectedError, match="a tensor without an edge"):
        checker.plan_time(checker.Instance(parsed(two_operators(microbatches=(1,)))), plan([], 1))


def test_more_devices_for_fewer_stages_are_kept() -> None:
    """Three operators of 3 s per sample: two stages of the last two leave the first one three micro-batches in flight.

    It has memory for two of six samples on one device, and is too slow on two. One stage of the last two takes 3 s and
    more on two devices, and on three 2 s and 2/3 s for its weights.
    """

    def operator(weights: float, kept: float) -> Operator:
        return Operator("x", AffineTime(0.0, 1.0), AffineTime(0.0, 2.0), weights, kept)

    edges = (OperatorEdge(0, 1, 0.0), OperatorEdge(1, 2, 0.0))
    operators = (operator(48.0, 1.0), operator(6.0, 0.0), operator(6.0, 0.0))
    instance = StageGraph(
        "three", operators, edges, 4, 12.0, 1.0, 0.0, 24, microbatches=(6,), weight_copies=0.0
    )  # fmt: skip
    assert prices(instance)[0] == 3
    assert not proves(instance, Fraction(3)) and proves(instance, Fraction(2999, 1000))


def test_what_is_not_certified_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = DeviceGraph((9.0, 9.0), ((0.0, 1.0), (1.0, 0.0)))
    for fields, reason in (
        ({"schedule": "kfkb"}, "schedule: uniform only"), ({"objective": "iteration"}, "objective: tps only"),
        ({"device_graph": pair}, "device_graph: identical devices only"),
    ):  # fmt: skip
        with pytest.raises(UncertifiedError, match=reason):
            write(two_operators(**fields), None, 2.0, Watch())
    content = parsed(two_operators())
    monkeypatch.setattr(checker, "MAX_STEPS", 0)
    assert not checker.verify(content, claimed(two_operators(), Fraction(9)))["accepted"]
    with pytest.raises(UncertifiedError, match="size: over 0 pairs"):
        write(two_operators(microbatches=(1,)), None, 4.0, Watch())
    monkeypatch.setattr(checker, "MAX_SUMS", 0)
    with pytest.raises(UncertifiedError, match="size: over 0 times"):
        write(two_operators(), None, 4.0, Watch())
