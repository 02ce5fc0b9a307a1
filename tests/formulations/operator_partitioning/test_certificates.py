"""Certificates of operator partitioning: accepted where brute force in fractions confirms them, and nowhere else."""

import math
import random
from dataclasses import replace
from fractions import Fraction
from itertools import count

import pytest
from certificate_cases import Spoiling, claimed, exact_optimum, parsed
from oracles import operator_partitioning
from small_instances import random_case

import planner
from formulations.contract.family import UncertifiedError
from formulations.operator_partitioning.certificate import checker
from formulations.operator_partitioning.certificate.writer import write
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor, TrainingMemory
from solvers.outcome import Watch


def optimum(instance: OperatorInstance) -> Fraction | float:
    """The least objective of all plans, exactly; infinite if there is none."""
    return exact_optimum(operator_partitioning.optimum, instance)


def small(number: int) -> OperatorInstance:
    """Of up to five operators, so that all plans can be tried."""
    drawn = (random_case("operator_partitioning", 16, 1000 * number + k) for k in count())
    return next(each for each in drawn if len(each.operators) <= 5 and not each.flushed)


def claim(instance: OperatorInstance, bound: Fraction | None, proof: dict) -> dict:
    return claimed(instance, bound, {"kind": "labels", **proof})


def tried(instance: OperatorInstance, rng: random.Random, best: Fraction) -> dict:
    """Tensors to be counted, and caps, of any kind."""
    exact = checker.Instance(parsed(instance))
    tensors = range(len(instance.tensors))
    rows = [sorted({best * Fraction(rng.random()) for _ in range(rng.randint(0, 3))} - {0}) for _ in exact.shapes()] \
        if instance.num_stages is None else []  # fmt: skip
    return {
        "counted": rng.sample(tensors, rng.randint(0, len(tensors))),
        "caps": [[str(cap) for cap in row] for row in rows],
    }


def test_no_proof_of_any_kind_reaches_the_optimum(cases: int) -> None:
    """No tensors that are counted, and no caps, prove what is false."""
    rng, infeasible = random.Random(3), 0
    for number in range(cases):
        instance = small(number)
        best = optimum(instance)
        if best == math.inf:
            infeasible += 1
            assert checker.verify(parsed(instance), write(instance, None, math.inf, Watch()))["accepted"], number
            continue
        with pytest.raises(UncertifiedError, match=r"does not confirm|finds a plan"):
            write(instance, None, math.inf, Watch())
        best = Fraction(best)
        if not best:
            continue
        made = write(instance, None, float(best / 7), Watch())
        caps = {"counted": made["proof"].get("counted", []), "caps": made["proof"].get("caps", [])}
        for higher in (best, best * (1 + Fraction(1, 10**9)), best * 2, None):
            for proof in (caps, tried(instance, rng, best), tried(instance, rng, best)):
                accepted = checker.verify(parsed(instance), claim(instance, higher, proof))["accepted"]
                assert not accepted, (number, higher, proof)
    assert infeasible >= cases // 25


SPOILING = Spoiling(small, optimum)


def chain(**changes: object) -> OperatorInstance:
    """Operators of 2, 3 and 2 s; the first sends 1 byte to both others, the second 2 bytes on; 1 byte/s, two stages."""
    operators = (Operator("a", 2.0, 4.0), Operator("b", 3.0), Operator("c", 2.0))
    tensors = (Tensor(0, (1, 2), 1.0), Tensor(1, (2,), 2.0))
    return replace(OperatorInstance("hand", operators, tensors, 2, 1, 1.0), **changes)


@pytest.mark.parametrize(
    ("changes", "best", "counted"),
    [
        ({}, 6, []),  # a | b c: 2 + 1 and 5 + 1; a b | c: 5 + 3
        ({"num_stages": 3}, 6, [0]),  # a 2 + 2, b 3 + 1 + 2, c 2 + 3
        ({"num_stages": 3, "num_devices": 5}, 4, [0]),  # a 4 / 1, b 6 / 2, c 5 / 2
        ({"num_stages": 1}, 7, []),
        ({"num_stages": 3, "at_most": True}, 6, []),
        ({"num_stages": None, "num_devices": 2, "step_microbatches": 2}, 11, []),  # R = 2: 7 + 2 * 1 * 4 / 2; S = 2: 18
        ({"num_stages": 4}, math.inf, []),
    ],
)  # fmt: skip
def test_optima_by_hand(changes: dict, best: int | float, counted: list[int]) -> None:
    instance = chain(**changes)
    assert optimum(instance) == best
    rows = [[], []] if instance.num_stages is None else []
    if best == math.inf:
        assert checker.verify(parsed(instance), claim(instance, None, {"counted": [], "caps": []}))["accepted"]
        return
    for bound, accepted in ((Fraction(best) - Fraction(1, 10**9), True), (Fraction(best), False)):
        found = checker.verify(parsed(instance), claim(instance, bound, {"counted": counted, "caps": rows}))
        expected = accepted and instance.num_stages is not None
        assert found["accepted"] is expected, found["reason"]
    # Without a cap the all-reduce of 4 s counts for nothing.
    if instance.num_stages is None:
        below = Fraction(best) - Fraction(1, 10**9)
        proof = {"counted": [], "caps": [[], [str(Fraction(4) - Fraction(1, 10**10))]]}
        assert checker.verify(parsed(instance), claim(instance, below, proof))["accepted"]
        assert not checker.verify(parsed(instance), claim(instance, Fraction(best), proof))["accepted"]
        # At the very time of the all-reduce the cap includes it, and from 3.98 s on 10.98 s is all that is known.
        for cap in ("4", "398/100"):
            missed = {"counted": [], "caps": [[], [cap]]}
            assert not checker.verify(parsed(instance), claim(instance, below, missed))["accepted"], cap


def test_what_several_stages_take_counts_for_each_only_if_it_is_counted() -> None:
    """a's byte goes to two stages: without counting a takes 3 s, and with it 4 s; here that decides."""
    instance = chain(num_stages=3, operators=(Operator("a", 5.0), Operator("b", 1.0), Operator("c", 2.0)))
    assert optimum(instance) == 7
    for counted, accepted in (([0], True), ([], False)):
        proof = {"counted": counted, "caps": []}
        assert checker.verify(parsed(instance), claim(instance, Fraction(13, 2), proof))["accepted"] is accepted
    assert write(instance, None, 6.5, Watch())["proof"]["counted"] == [0]


@pytest.mark.parametrize("seed", [161, 169, 176, 203, 266, 318, 361])
def test_labels_with_more_stages_or_other_takers_are_kept(seed: int) -> None:
    """Tensors that many operators take, and four or five stages: here the first labels of some sets lead nowhere."""
    rng = random.Random(f"takers {seed}")
    operators = tuple(Operator(f"v{v}", float(rng.choice([0, 1, 2, 4]))) for v in range(8))
    tensors = tuple(
        Tensor(
            source,
            tuple(sorted(rng.sample(range(source + 1, 8), min(7 - source, rng.randint(1, 6))))),
            float(rng.randint(1, 5)),
        )
        for source in range(rng.randint(1, 7))
    )
    instance = OperatorInstance("takers", operators, tensors, rng.randint(2, 5), 1, 1.0)
    best = planner.solve(instance, exact=True).objective
    assert best is not None and best.is_integer()
    proof = {"counted": list(range(len(tensors))), "caps": []}
    for bound, accepted in ((Fraction(best) - Fraction(1, 10**9), True), (Fraction(best), False)):
        assert checker.verify(parsed(instance), claim(instance, bound, proof))["accepted"] is accepted


@pytest.mark.parametrize(("memory", "fits"), [(1.0, True), (0.9, False)])
@pytest.mark.parametrize(("schedule", "microbatches"), [("1f1b", 3), ("gpipe", 1)])
def test_inputs_in_flight_by_hand(schedule: str, microbatches: int, memory: float, fits: bool) -> None:
    """b keeps the byte that it takes from a once: it is in the last stage, or there is one micro-batch."""
    training = TrainingMemory(0.0, microbatches, schedule, recompute=True)
    operators = (Operator("a", 1.0, activation_bytes=1.0), Operator("b", 1.0))
    instance = OperatorInstance(
        "flight", operators, (Tensor(0, (1,), 1.0),), 2, 1, 1.0, memory_bytes=memory, training=training
    )
    assert (optimum(instance) == 2) is fits
    accepted = checker.verify(parsed(instance), claim(instance, None, {"counted": [], "caps": []}))["accepted"]
    assert accepted is not fits


@pytest.mark.parametrize("caps", [[[]], [["2", "1"], []], [["0"], []], [["1"] * 2000, []]])
def test_caps_that_are_none_are_bad_input(caps: list) -> None:
    instance = chain(num_stages=None, num_devices=2, step_microbatches=2)
    with pytest.raises(ValueError, match="expected"):
        checker.verify(parsed(instance), claim(instance, Fraction(1), {"counted": [], "caps": caps}))


def test_what_is_not_certified_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "MAX_STEPS", 2)
    found = planner.certify(chain(num_stages=3))
    assert found.content is None and "size: over 2 stages behind labels" in found.result.reason


@pytest.mark.parametrize(("excess", "fits"), [(0.9e-12, True), (1.1e-12, False)])
def test_memory_that_the_definition_admits_is_admitted(excess: float, fits: bool) -> None:
    """A stage may exceed its memory by 1e-12 of it: a plan of one stage is there, or it is not."""
    operators = (Operator("a", 1.0, memory_bytes=1.0), Operator("b", 1.0, memory_bytes=excess))
    instance = OperatorInstance("tight", operators, (), 1, 1, 1.0, memory_bytes=1.0)
    assert (optimum(instance) == 2) is fits
    accepted = checker.verify(parsed(instance), claim(instance, None, {"counted": [], "caps": []}))["accepted"]
    assert accepted is not fits
