"""Certificates of layer assignment: accepted where brute force in fractions confirms them, and mutants nowhere else."""

import math
import random
from fractions import Fraction

import pytest
from certificate_cases import Spoiling, claimed, exact_optimum, parsed
from oracles import layer_assignment
from small_instances import random_case

from formulations.layer_assignment.certificate import checker
from formulations.layer_assignment.certificate.writer import write
from instances.problems.layer_assignment import LayerAssignmentInstance, TiedParameters
from solvers.outcome import Watch


def optimum(instance: LayerAssignmentInstance) -> Fraction | float:
    """The least objective of all plans, exactly; infinite if there is none."""
    return exact_optimum(layer_assignment.optimum, instance)


def small(number: int) -> LayerAssignmentInstance:
    return random_case("layer_assignment", 16, number)


Rows = list[tuple[Fraction, list[Fraction]]]


def claim(
    instance: LayerAssignmentInstance, bound: Fraction | None, caps: list[Fraction], rows: Rows | None = None
) -> dict:
    texts = {"rows": [[str(most), [str(cap) for cap in below]] for most, below in rows]} if rows else {}
    return claimed(instance, bound, {"kind": "caps", "caps": [str(cap) for cap in caps], **texts})


def written(made: dict) -> tuple[list[Fraction], Rows]:
    """The caps and the rows of a certificate."""
    rows = made["proof"].get("rows", [])
    return list(map(Fraction, made["proof"].get("caps", []))), [
        (Fraction(a), list(map(Fraction, caps))) for a, caps in rows
    ]


def test_caps_of_any_kind_prove_nothing_false(cases: int) -> None:
    """Caps that are not those that are written prove nothing that is false."""
    rng, counts = random.Random(3), {True: 0, False: 0}
    for number in range(cases):
        instance = small(number)
        best = optimum(instance)
        if best in (0, math.inf):
            continue
        best = Fraction(best)
        for bound in (best * (1 - Fraction(1, 10**9)), best * Fraction(9, 10), best / 7):
            made = write(instance, None, float(bound), Watch())
            caps, rows = written(made)
            for higher in (best, best * (1 + Fraction(1, 10**9)), best * 2):
                other = sorted({*caps, best, best * Fraction(rng.random())} - {rng.choice([best, *caps])})
                fewer = [row for row in rows if rng.random() < 0.5]
                for tried in ((caps, rows), (other, rows), (caps, fewer), (other, [])):
                    accepted = checker.verify(parsed(instance), claim(instance, higher, *tried))["accepted"]
                    assert not accepted, (number, higher, tried)
            other = sorted({*caps, best * Fraction(rng.random())} - {rng.choice([best, *caps])})
            counts[checker.verify(parsed(instance), claim(instance, bound, other, rows))["accepted"]] += 1
    assert min(counts.values()) >= cases // 4, counts


SPOILING = Spoiling(small, optimum)


@pytest.mark.parametrize(
    ("bound", "caps", "accepted"),
    [
        ("10", ["3"], False),  # (1, 2, 2): (2 - 1) 4 + 6 = 10 for stages of 2 and 4
        ("998/100", ["399/100"], True),
        ("999/100", ["4"], False),  # stages of 4 take 10
        ("999/100", ["398/100"], False),  # from 3.98 on 9.98 is all that is known
        ("999/100", [], False),
        ("599/100", [], True),
        (None, [], False),
    ],
)
def test_caps_by_hand(bound: str | None, caps: list[str], accepted: bool) -> None:
    """Layers of 2, 2 and 2 s in two stages, two micro-batches, cuts for nothing: 4 s at least for the slowest."""
    instance = LayerAssignmentInstance("hand", (2.0, 2.0, 2.0), ((0.0,), (0.0,)), 2, 2)
    assert optimum(instance) == 10
    limit = None if bound is None else Fraction(bound)
    found = checker.verify(parsed(instance), claim(instance, limit, [Fraction(cap) for cap in caps]))
    assert found["accepted"] is accepted, found["reason"]


@pytest.mark.parametrize(
    ("bound", "caps", "rows", "accepted"),
    [
        ("599/100", [], [("1", []), ("1995/1000", [])], True),  # what takes 4 s has an all-reduce of 2 s
        ("6", [], [("1", []), ("1995/1000", [])], False),
        ("6", [], [("1", []), ("2", [])], False),  # the all-reduce takes 2 s exactly
        ("599/100", [], [("1995/1000", [])], True),
        ("599/100", [], [("2", [])], False),
        ("599/100", [], [], False),
        ("599/100", [], [("1", []), ("198/100", [])], False),  # from 1.98 s on 5.98 s is all that is known
        ("399/100", [], [], True),
    ],
)
def test_rows_by_hand(bound: str, caps: list[str], rows: list, accepted: bool) -> None:
    """Layers of 2 and 2 s with a parameter each, one of them shared by both, in one stage: 4 s and 2 s."""
    tie = TiedParameters((0, 1), 1.0)
    instance = LayerAssignmentInstance("hand", (2.0, 2.0), ((0.0,),), 1, 1, (1.0, 0.0), (tie,), (1.0,))
    assert optimum(instance) == 6
    given = [(Fraction(most), list(map(Fraction, below))) for most, below in rows]
    found = checker.verify(parsed(instance), claim(instance, Fraction(bound), list(map(Fraction, caps)), given))
    assert found["accepted"] is accepted, found["reason"]


def test_windows_of_layers_that_share_parameters(cases: int) -> None:
    """The longest stage that ends anywhere, within limits on its time and its parameters."""
    for number in range(cases):
        instance = small(number)
        if not any(instance.ring_s_per_parameter):
            continue
        rng, exact = random.Random(number), checker.Instance(parsed(instance))
        spans = [(a, b) for b in range(1, exact.n + 1) for a in range(b)]
        a, b = rng.choice(spans)
        times = rng.choice(exact.times)
        cap, most = rng.choice([None, sum(times[a:b])]), exact.parameters(*rng.choice(spans))
        for end, first in enumerate(exact._first(times, cap, most)):
            fitting = [
                begin for begin in range(end)
                if (cap is None or sum(times[begin:end]) <= cap) and exact.parameters(begin, end) <= most
            ]  # fmt: skip
            assert first == min(fitting, default=end), number
