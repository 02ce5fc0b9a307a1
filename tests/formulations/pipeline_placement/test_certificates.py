"""Certificates of pipeline placement: accepted where brute force in fractions confirms them, and nowhere else."""

from dataclasses import replace
from fractions import Fraction
from itertools import count

import pytest
from certificate_cases import Spoiling, claimed, exact_optimum, parsed, proves
from oracles import pipeline_placement
from small_instances import random_case

import planner
from formulations.pipeline_placement.certificate import checker
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor
from instances.problems.pipeline_placement import PlacementInstance, place_on


def optimum(instance: PlacementInstance) -> Fraction | float:
    """The least objective of all plans, exactly; infinite if there is none."""
    return exact_optimum(pipeline_placement.optimum, instance)


def small(number: int) -> PlacementInstance:
    """With four devices now and then, otherwise with fewer: their models take a hundred times as long."""
    drawn = (random_case("pipeline_placement", 16, 1000 * number + k) for k in count())
    certified = (each for each in drawn if each.objective != "step")
    return next(each for each in certified if number % 10 == 0 or len(each.bandwidth_bytes_per_s) < 4)


SPOILING = Spoiling(small, optimum)


def hand(**changes: object) -> PlacementInstance:
    """Operators of 2, 3 and 2 s in a row with tensors of 1 and 2 bytes; two stages, links of 1 byte/s."""
    operators = tuple(Operator(f"v{v}", time, 4.0, 0.0, 1.0) for v, time in enumerate((2.0, 3.0, 2.0)))
    tensors = (Tensor(0, (1,), 1.0), Tensor(1, (2,), 2.0))
    graph = replace(OperatorInstance("hand", operators, tensors, 2, 1, 1.0), **changes)
    size = (graph.num_stages or 0) * graph.replicas
    matrix = tuple(tuple(float(a != b) for b in range(size)) for a in range(size))
    return place_on(graph, matrix, objective="full")


def test_a_ring_of_four_passes_each_replica_once() -> None:
    """Links of 4 bytes/s around a square, of 1 byte/s across it: 1 s, and 2 * 3 / 4 * 8 bytes over the fast ones."""
    matrix = tuple(tuple(0.0 if a == b else 4.0 if (a - b) % 2 else 1.0 for b in range(4)) for a in range(4))
    instance = place_on(OperatorInstance("square", (Operator("a", 1.0, 8.0),), (), 1, 4, 1.0), matrix, objective="full")
    assert optimum(instance) == 4
    assert proves(instance, 4 - Fraction(1, 10**9)) and not proves(instance, Fraction(4))


@pytest.mark.parametrize(("excess", "fits"), [(0.9e-12, True), (1.1e-12, False)])
def test_memory_that_the_definition_admits_is_admitted(excess: float, fits: bool) -> None:
    operators = (Operator("a", 1.0, memory_bytes=1.0), Operator("b", 1.0, memory_bytes=excess))
    instance = place_on(OperatorInstance("tight", operators, (), 1, 1, 1.0, memory_bytes=1.0), ((0.0,),))
    assert (optimum(instance) == 2) is fits and proves(instance, None) is not fits


def test_what_is_not_certified_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    rings = claimed(replace(hand(replicas=4), ring="free"), Fraction(1))
    assert checker.verify(parsed(replace(hand(replicas=4), ring="free")), rings)["reason"].startswith("rings: in any")
    content = parsed(hand())
    content["operators"]["at_most"] = True
    with pytest.raises(ValueError, match="as many stages as are given"):
        checker.verify(content, claimed(hand(), Fraction(1)))
    monkeypatch.setattr(checker, "MAX_STEPS", 2)
    found = planner.certify(hand())
    assert found.content is None and "size: over 2 operators and nodes are tried" in found.result.reason
