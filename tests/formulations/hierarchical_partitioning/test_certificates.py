"""Certificates of hierarchical partitioning: accepted where all plans, priced in fractions, confirm them."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from certificate_cases import Spoiling, claimed, exact_optimum, parsed
from oracles.hierarchical_partitioning import BruteForce, random_hierarchical, tight_graph

from formulations.contract.family import UncertifiedError
from formulations.hierarchical_partitioning.certificate import checker
from formulations.hierarchical_partitioning.certificate.writer import write
from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel, on_machines
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from solvers.outcome import Watch


def small(number: int) -> HierarchicalInstance:
    """Two layers, at times three, with whole numbers: a stage or a link often takes the bound exactly."""
    if number % 10 == 5:
        found = tight_graph(number)
        if len(found.flat.layers) <= 3:
            return found
    return random_hierarchical(number, max_nodes=3 if number % 20 == 0 else 2, max_tmpcs=2)


def optimum(instance: HierarchicalInstance) -> Fraction | float:
    """The least objective of all plans, exactly; infinite if there is none."""
    return exact_optimum(lambda each: BruteForce(each).solve(), instance)


SPOILING = Spoiling(small, optimum)


def two_layers(**fields: Any) -> HierarchicalInstance:
    """a of 8 s before b of 8 s, 2 bytes in flight and 6 bytes of weights each, one byte between them; K_1 = K_2 = 2."""
    model = fields.pop("model", MemoryModel.PRECISE)
    K1, K2, B1, B2 = (fields.pop(name, value) for name, value in (("K1", 2), ("K2", 2), ("B1", 1.0), ("B2", 2.0)))
    layers = tuple(Layer(v, {1: (Tmpc("x", 8.0, 6.0, 2.0, 0.0),)}) for v in "ab")
    flat = StageInstance("two", layers, (Edge("a", "b", 1.0),), 4, 100.0, 1.0, 4)
    return on_machines(replace(flat, **fields), K1, K2, B1, B2, model)


@pytest.mark.parametrize(
    ("fields", "bound", "accepted"),
    [
        # each layer on a machine of two: (8 + 2 + 12)/2 = 11 s; on a device: 10 s; two machines of both: 10/2 = 5 s,
        # while their link takes 4 * 1/2 * 12 / 2 / 2 = 6 s
        ({}, "599999/100000", True),
        ({}, "6", False),
        ({"num_microbatches": 3}, "799999/100000", True),  # two machines of two stages have degrees of 4, of one 2
        # a has two micro-batches in flight behind b, and 3 bytes do not hold them: a before b on one device
        ({"memory_bytes": 3.0, "K2": 1}, None, True),
        ({"memory_bytes": 4 * (1 - 0.9e-12), "K2": 1}, "10", False),  # the definition's slack
        ({"memory_bytes": 4 * (1 - 1e-11), "K2": 1}, "10", True),
        ({"memory_bytes": 4 * (1 - 1e-11), "K2": 1, "model": MemoryModel.NONE}, "10", False),
        ({"memory_bytes": 3.9, "model": MemoryModel.CRUDE}, None, True),  # S = 4: two in flight on two replicas
        ({"memory_bytes": 4.0, "model": MemoryModel.CRUDE}, "11", False),
    ],
)  # fmt: skip
def test_bounds_by_hand(fields: dict, bound: str | None, accepted: bool) -> None:
    instance = two_layers(**fields)
    found = checker.verify(parsed(instance), claimed(instance, None if bound is None else Fraction(bound)))
    assert found["accepted"] is accepted, found["reason"]


def test_what_is_not_certified_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    content = parsed(two_layers())
    monkeypatch.setattr(checker, "MAX_STEPS", 0)
    assert not checker.verify(content, claimed(two_layers(), Fraction(9)))["accepted"]
    with pytest.raises(UncertifiedError, match="size: over 0 stages"):
        write(two_layers(), None, 5.9, Watch())
    monkeypatch.setattr(checker, "MAX_WAYS", 0)
    with pytest.raises(UncertifiedError, match="size: over 0 superstages"):
        write(two_layers(), None, 5.9, Watch())
