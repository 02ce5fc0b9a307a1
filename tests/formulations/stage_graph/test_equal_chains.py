"""The checker's search that takes downsets as one where they differ by equal chains: never a proof of what is false."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from certificate_cases import claimed, parsed, proves

import planner
from formulations.stage_graph.certificate import checker
from instances.problems.stage_graph import AffineTime, Operator, OperatorEdge, StageGraph


def branched(number: int) -> StageGraph:
    """Two or three equal chains, with an operator in front of them and one behind them, or without."""
    rng = random.Random(f"chains {number}")
    chains, length = rng.choice([(2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (3, 3)])
    heads, tails = rng.randint(0, 1), rng.choice([0, 1, 1])

    def operator() -> Operator:
        forward = AffineTime(float(rng.randint(0, 2)), float(rng.randint(0, 3)))
        return Operator("x", forward, AffineTime(0.0, 1.0), float(rng.choice([0, 0, 1, 6])), float(rng.randint(0, 3)))

    kinds, sent = [operator() for _ in range(length)], [float(rng.choice([0, 1, 4])) for _ in range(length + 1)]
    first, operators, edges = heads, [operator() for _ in range(heads)], []
    for chain in range(chains):
        own = [first + chain * length + place for place in range(length)]
        operators += kinds
        edges += [OperatorEdge(u, v, volume) for u, v, volume in zip(own, own[1:], sent[1:], strict=False)]
        edges += [OperatorEdge(0, own[0], sent[0])] * heads
        edges += [OperatorEdge(own[-1], first + chains * length, sent[-1])] * tails
    operators += [operator() for _ in range(tails)]
    if heads and tails and rng.random() < 0.3:
        edges.append(OperatorEdge(0, len(operators) - 1, 2.0))
    memory, batch = rng.choice([8.0, 14.0, 20.0, 200.0]), rng.choice([2, 4])
    return StageGraph(
        "chains", tuple(operators), tuple(edges), rng.choice([2, 3, 4]), memory, rng.choice([1.0, 3.0]),
        rng.choice([0.0, 1.0]), batch, weight_copies=1.0,
    )  # fmt: skip


def finds(instance: StageGraph, bound: Fraction | None, exchanged: bool = True) -> bool:
    """Whether the search, with classes or without, finds a plan within the bound, or what may be one."""
    exact = checker.Instance(parsed(instance))
    lattice = checker.Lattice(exact, checker.equal_chains(exact) if exchanged else ())
    searches = [checker.Search(lattice, b, bound) for b in exact.sizes]
    for search in searches:
        for _ in search.run():
            pass
    return any(search.labels[-1] for search in searches)


def test_what_exists_is_found(cases: int) -> None:
    """At the times of the best plans of all sizes, and with other memory; a little below it is mostly refuted."""
    refuted = tried = 0
    for number in range(max(10, cases // 2)):
        instance, rng = branched(number), random.Random(f"memory {number}")
        exact, times = checker.Instance(parsed(instance)), list[Fraction]()
        assert checker.equal_chains(exact), number
        for b in exact.sizes:
            only = replace(instance, microbatches=(b,))
            if (plan := planner.solve(only, method="levels").plan) is not None:
                times.append(checker.plan_time(exact, plan))
                assert finds(only, times[-1]), (number, b)
        if times:
            tried += 1
            refuted += not finds(instance, min(times) * (1 - Fraction(1, 10**12)))
        for _ in range(6):
            other, bound = replace(instance, memory_bytes=float(rng.randint(2, 24))), rng.choice([None, *times])
            assert finds(other, bound) or not finds(other, bound, exchanged=False), (number, other.memory_bytes, bound)
    assert refuted >= 0.8 * tried >= 0.2 * cases, (refuted, tried)


def test_a_chain_may_stand_still() -> None:
    """Operators of 1 s, 2 * 1/4 s for a byte between: j and a1, then b1 and b2, then a2 and h take 2.5, 2 and 2.5 s.

    Sorted, the second stage goes from heights of 1 and 0 to 2 and 1, and has no edge of 1 byte across its boundary.
    """
    each = Operator("x", AffineTime(0.0, 1.0), AffineTime(0.0, 0.0), 0.0, 0.0)
    edges = [(0, 1, 0.0), (1, 2, 1.0), (2, 5, 0.0), (0, 3, 0.0), (3, 4, 1.0), (4, 5, 0.0)]
    instance = StageGraph("still", (each,) * 6, tuple(OperatorEdge(*edge) for edge in edges), 3, 9.0, 4.0, 0.0, 1)
    assert finds(instance, Fraction(5, 2)) and not finds(instance, Fraction(249, 100))


def test_the_depth_of_a_class_is_that_of_its_targets() -> None:
    """Two classes: after t, {x1, y1, y2} and {x1, x2, y1} in either order, then {x2, y2, h}: 10 s each on a device.

    Sorted, the later one of the two in the middle has a follower whose chain goes on in the earlier one, at its depth.
    As deep as that says, three micro-batches in flight, it would not fit: it fits with two, as it reaches t alone.
    """

    def operator(seconds: float, kept: float) -> Operator:
        return Operator("x", AffineTime(0.0, seconds), AffineTime(0.0, 0.0), 0.0, kept)

    x, y = (operator(3.0, 8.0), operator(3.0, 2.0)), (operator(4.0, 12.0), operator(1.0, 8.0))
    operators, edges = (operator(10.0, 0.0), *x, *x, *y, *y, operator(6.0, 8.0)), list[OperatorEdge]()
    for first in (1, 3, 5, 7):
        edges += [OperatorEdge(u, v, 0.0) for u, v in ((first, 0), (first + 1, first), (9, first + 1))]
    instance = StageGraph("deep", operators, tuple(edges), 4, 60.0, 1.0, 0.0, 3, microbatches=(1,))
    assert checker.equal_chains(checker.Instance(parsed(instance))) == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    assert finds(instance, Fraction(10), exchanged=False) and finds(instance, Fraction(10))
    assert not finds(instance, Fraction(999, 100))


def rows(count: int, heads: int, tails: int, **unequal: float) -> StageGraph:
    """Chains of an operator that keeps 1 byte and one that keeps 2, with 1 byte between and 2 bytes at both ends."""
    each = [Operator("x", AffineTime(1.0, 1.0), AffineTime(0.0, 1.0), 1.0, kept) for kept in (1.0, 2.0)]
    head = Operator("x", AffineTime(0.0, 1.0), AffineTime(0.0, 1.0), 1.0, 1.0)
    operators, edges, tail = [head] * heads, [], heads + 2 * count
    for chain in range(count):
        first = heads + 2 * chain
        kept = unequal.get("kept", 2.0) if not chain else 2.0
        operators += [each[0], replace(each[1], activation_bytes=kept)]
        edges.append(OperatorEdge(first, first + 1, unequal.get("sent", 1.0) if not chain else 1.0))
        edges += [OperatorEdge(0, first, 2.0)] * heads + [OperatorEdge(first + 1, tail, 2.0)] * tails
    return StageGraph("rows", (*operators, *[head] * tails), tuple(edges), 4, 99.0, 1.0, 0.0, 4)


@pytest.mark.parametrize(
    ("instance", "classes"),
    [
        (rows(3, 1, 1), [[[2, 1], [4, 3], [6, 5]]]), (rows(2, 0, 1), [[[1, 0], [3, 2]]]),
        (rows(3, 0, 1, sent=2.0), [[[3, 2], [5, 4]]]), (rows(3, 1, 1, kept=1.0), [[[4, 3], [6, 5]]]),
        (rows(1, 1, 1), []), (rows(2, 0, 0), [[[1, 0], [3, 2]]]),
    ],
)  # fmt: skip
def test_classes_by_hand(instance: StageGraph, classes: list) -> None:
    assert checker.equal_chains(checker.Instance(parsed(instance))) == classes


def test_classes_do_not_border_on_each_other() -> None:
    """Two operators before two others: only those of one side may be exchanged."""
    edges = tuple(OperatorEdge(u, v, 1.0) for u in (0, 1) for v in (2, 3))
    instance = replace(rows(2, 0, 0), edges=edges, operators=rows(2, 1, 1).operators[:1] * 4)
    assert checker.equal_chains(checker.Instance(parsed(instance))) in ([[[0], [1]]], [[[2], [3]]])


def test_downsets_by_hand() -> None:
    """Three chains of two behind a join: of heights 0 to 2 there are ten sorted triples, and 27 others."""
    exact = checker.Instance(parsed(rows(3, 1, 1)))
    assert len(checker.Lattice(exact).masks) == 1 + 27 + 1
    assert len(checker.Lattice(exact, checker.equal_chains(exact)).masks) == 1 + 10 + 1


def test_many_downsets_are_searched_by_equal_chains_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, bound = rows(3, 1, 1), Fraction(1, 100)
    monkeypatch.setattr(checker, "MAX_DOWNSETS", 12)
    assert proves(instance, bound)
    monkeypatch.setattr(checker, "MAX_DOWNSETS", 11)
    found = checker.verify(parsed(instance), claimed(instance, bound))
    assert found["reason"] == "size: a graph of over 11 downsets"
