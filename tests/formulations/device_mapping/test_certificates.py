"""Certificates of device mapping: accepted where brute force in fractions confirms them, and mutants nowhere else."""

import copy
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, islice, product

import pytest
from certificate_cases import Spoiling, claimed, exactly, mutants, parsed, proves
from oracles.device_mapping import mappings, random_mapping, seconds_of
from small_instances import random_case

import planner
from formulations.contract.checker.frame import RejectedError
from formulations.contract.family import UncertifiedError
from formulations.device_mapping.certificate import checker, writer
from instances.problems.device_mapping import DeviceMapping, MappingEdge, MappingStage
from solvers.outcome import Stop, Watch


@pytest.fixture
def _sat() -> None:
    pytest.importorskip("pysat", reason="python-sat is not installed (extra proofs)")


needs_sat = pytest.mark.usefixtures("_sat")


def optimum(instance: DeviceMapping) -> Fraction:
    """The least time of all mappings, exactly: of those that are next to it in float64."""
    rough = [(seconds_of(instance, device), device) for device in mappings(instance)]
    least, exact = min(value for value, _ in rough), exactly(instance)
    return Fraction(min(seconds_of(exact, device) for value, device in rough if value <= least * (1 + 1e-9)))


def small(number: int) -> DeviceMapping:
    """Random ones of all kinds; every tenth has five or six devices and edges, where single nodes prove little."""
    return random_case("device_mapping", 16, number) if number % 10 else crowded(random.Random(number))


def crowded(rng: random.Random) -> DeviceMapping:
    while True:
        found = random_mapping(rng, 6, rng.choice(["p2p", "full"]))
        if found.num_devices > 4 and len(found.edges) > 1:
            speeds = {each for row in found.bandwidth_bytes_per_s for each in row if each}
            if len(speeds) < 4:
                return found


def proofs(instance: DeviceMapping, bound: Fraction) -> Iterator[dict]:
    """Every kind of proof, on devices and on groups, with levels that are few or all."""
    yield from ({"kind": "bound", "name": name} for name in ("assignment", "rings"))
    exact = checker.Instance(parsed(instance))
    devices, speeds = range(exact.D), sorted({each for row in exact.B for each in row if each}, reverse=True) or [1.0]
    for groups, levels in product(
        ([[d] for d in devices], [[d for d in devices if d % 2 == half] for half in (0, 1) if half < exact.D]),
        (speeds, sorted({*speeds[::2], speeds[0] * 1.5}, reverse=True)),
    ):
        clauses = checker.clauses_of(exact, checker.Parts(exact, bound), groups, levels)
        try:
            found = writer._refutation(clauses, 10**5, Watch())
        except UncertifiedError:
            found = [[]]
        yield {"kind": "drup", "groups": groups, "levels": levels, "clauses": found}


@needs_sat
def test_every_proof_is_of_what_is_true(cases: int) -> None:
    """On devices, with all levels, the clauses decide; no proof of any kind reaches the optimum itself."""
    by_clauses = 0
    for number in range(cases // 2):
        instance = small(number)
        best = optimum(instance)
        if best == 0:
            continue
        below = best * (1 - Fraction(1, 10**12))
        for proof in proofs(instance, best):
            assert not proves(instance, best, proof), (number, proof)
        found = [proves(instance, below, proof) for proof in proofs(instance, below)]
        assert any(found), number
        assert found[2], (number, "each device a place, all bandwidths levels")
        by_clauses += not any(found[:2])
    assert by_clauses or cases < 100


@needs_sat
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("objective", ["full", "allreduce"])
def test_rings_of_four_in_any_order(objective: str, seed: int) -> None:
    """Two stages of four replicas: brute force over 8! mappings, by the least of the orders of both rings."""
    rng = random.Random(f"rings {seed}")
    matrix = [[0.0] * 8 for _ in range(8)]
    for a, b in combinations(range(8), 2):
        matrix[a][b] = matrix[b][a] = float(rng.choice([1, 2, 4]))
    instance = DeviceMapping(
        "rings", (MappingStage(1.0, 8.0), MappingStage(2.0, 4.0)), (MappingEdge(0, 1, 3.0),), 4,
        tuple(map(tuple, matrix)), objective, "free",
    )  # fmt: skip
    result = planner.solve(instance, exact=True)
    assert result.status == "optimal" and result.objective is not None
    best = Fraction(result.objective).limit_denominator(1000)
    accepted = [proves(instance, best * (1 - Fraction(1, 10**9)), proof) for proof in
                proofs(instance, best * (1 - Fraction(1, 10**9)))]  # fmt: skip
    assert accepted[2]
    assert not any(proves(instance, best, proof) for proof in proofs(instance, best))


@needs_sat
def _mutants(rng: random.Random, content: dict, good: dict) -> Iterator[tuple[dict, dict]]:
    """An instance and a certificate, one of them with a fault."""
    size = len(content["bandwidth_bytes_per_s"])
    if rng.random() < 0.5 and good["bound"] != "0":
        good = good | {"proof": next(islice(proofs(planner.load(content), Fraction(good["bound"])), 2, None))}
        yield content, good
        for row in good["proof"]["clauses"][:1]:
            negated = [[-one for one in row], *good["proof"]["clauses"][1:]]
            yield content, good | {"proof": good["proof"] | {"clauses": negated}}
    yield from mutants(rng, content, good)
    yield content, good | {"proof": {"kind": "bound", "name": rng.choice(["assignment", "rings"])}}
    faster = copy.deepcopy(content)
    matrix = faster["bandwidth_bytes_per_s"]
    a, b = rng.sample(range(size), 2) if size > 1 else (0, 0)
    matrix[a][b] = matrix[b][a] = matrix[a][b] * rng.choice([1.5, 4])
    yield faster, good


SPOILING = Spoiling(small, optimum, _mutants, rejected=0.2)


def two_pairs() -> DeviceMapping:
    """Two stages of 1 s that exchange 2 bytes, two replicas: pairs of devices 2 bytes/s, all else 1 byte/s."""
    fast = {(0, 2), (1, 3)}
    matrix = [[0.0 if a == b else 2.0 if (min(a, b), max(a, b)) in fast else 1.0 for b in range(4)] for a in range(4)]
    stage = MappingStage(1.0, 4.0)
    return DeviceMapping(
        "hand", (stage, stage), (MappingEdge(0, 1, 2.0),), 2, tuple(map(tuple, matrix)), "p2p"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("objective", "bound", "proof", "accepted"),
    [
        ("p2p", "2", {"kind": "bound", "name": "assignment"}, False),  # 1 + 2/2 on fast links
        ("p2p", "1999/1000", {"kind": "bound", "name": "assignment"}, True),
        ("p2p", "1999/1000", {"kind": "bound", "name": "rings"}, False),  # there are none
        ("allreduce", "3", {"kind": "bound", "name": "rings"}, False),  # 1 + (2 * 1 * 4 / 2) / 2
        ("allreduce", "2999/1000", {"kind": "bound", "name": "rings"}, True),
        ("full", "4", {"kind": "bound", "name": "assignment"}, False),  # one fast link cannot serve both,
        (
            "full",
            "4",
            {"kind": "drup", "groups": [[0], [1], [2], [3]], "levels": [2, 1], "clauses": [[6, 2], [-6]]},
            True,
        ),
        (
            "full",
            "4999/1000",
            {"kind": "drup", "groups": [[0], [1], [2], [3]], "levels": [2, 1], "clauses": [[6, 2], [-6]]},
            True,
        ),
        (
            "full",
            "5",
            {"kind": "drup", "groups": [[0], [1], [2], [3]], "levels": [2, 1], "clauses": [[6, 2], [-6]]},
            False,
        ),
        ("full", "5", {"kind": "drup", "groups": [[0], [1], [2], [3]], "levels": [2, 1], "clauses": [[]]}, False),
        ("full", "4999/1000", {"kind": "drup", "groups": [[0], [1], [2], [3]], "levels": [2], "clauses": []}, False),
        ("full", "4999/1000", {"kind": "drup", "groups": [[0, 1, 2, 3]], "levels": [2, 1], "clauses": []}, False),
        ("full", "3999/1000", {"kind": "drup", "groups": [[0, 1, 2, 3]], "levels": [2, 1], "clauses": []}, True),
    ],
)
def test_proofs_by_hand(objective: str, bound: str, proof: dict, accepted: bool) -> None:
    instance = replace(two_pairs(), objective=objective)
    assert optimum(instance) == {"p2p": 2, "allreduce": 3, "full": 5}[objective]
    found = checker.verify(parsed(instance), claimed(instance, Fraction(bound), proof))
    assert found["accepted"] is accepted, found["reason"]


def test_a_clause_that_does_not_follow_is_named() -> None:
    f = checker.Clauses()
    f.variables(2)
    f.add(1, 2)
    with pytest.raises(RejectedError, match="number 0 does not follow"):
        checker.propagation_refutes(f, [[1]])


def test_unit_propagation_accepts_no_satisfiable_clauses(cases: int) -> None:
    """Random clauses over five variables, and random further ones: whatever is accepted has no solution."""
    rng, counts = random.Random(5), {True: 0, False: 0}
    for _ in range(30 * cases):
        rows = [[rng.choice([-1, 1]) * v for v in rng.sample(range(1, 6), rng.randint(1, 3))] for _ in range(18)]
        f = checker.Clauses()
        f.variables(5)
        for row in rows[: rng.randint(8, 14)]:
            f.add(*row)
        kept = [list(row) for row in f.all]
        try:
            accepted = checker.propagation_refutes(f, rows[14:])
        except RejectedError:
            accepted = False
        counts[accepted] += 1
        solutions = (
            all(any((one > 0) == signs[abs(one) - 1] for one in row) for row in kept)
            for signs in product((True, False), repeat=5)
        )
        assert not (accepted and any(solutions)), kept
    assert min(counts.values()) >= cases


@pytest.mark.parametrize("most", range(5))
def test_counters_by_enumeration(most: int) -> None:
    """Exactly ``most`` of four literals: then, and only then, the counting variables have values."""
    for signs in product((True, False), repeat=4):
        f = checker.Clauses()
        literals = f.variables(4)
        f.exactly(literals, most)
        for one, sign in zip(literals, signs, strict=True):
            f.add(one if sign else -one)
        assert checker.propagation_refutes(f, []) is (sum(signs) != most), signs


@pytest.mark.parametrize(
    "change",
    [
        {"proof": {"kind": "bound", "name": "x"}},
        {"proof": {"kind": "drup", "groups": [[0, 1], [2, 2]], "levels": [2], "clauses": []}},
        {"proof": {"kind": "drup", "groups": [[0, 1], [2], [3]], "levels": [1, 2], "clauses": []}},
        {"proof": {"kind": "drup", "groups": [[0, 1], [2], [3]], "levels": [2, 1], "clauses": [[0]]}},
        {"proof": {"kind": "drup", "groups": [[0, 1], [2], [3]], "levels": [2, 1], "clauses": [[10**9]]}},
        {"proof": {"kind": "drup", "groups": [[0, 1], [2], [3], []], "levels": [2, 1], "clauses": []}},
    ],
)  # fmt: skip
def test_what_is_no_certificate_is_bad_input(change: dict) -> None:
    instance = two_pairs()
    with pytest.raises(ValueError, match=r"\w"):
        checker.verify(
            parsed(instance), claimed(instance, Fraction(1), {"kind": "bound", "name": "assignment"}) | change
        )


def test_what_is_not_certified_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = replace(two_pairs(), objective="full")
    watch = Watch()
    watch.stop(Stop.INTERRUPTED)
    with pytest.raises(UncertifiedError, match=r"stopped|python-sat"):
        writer.write(instance, None, 4.5, watch)
    monkeypatch.setitem(sys.modules, "pysat.solvers", None)
    found = planner.certify(instance)
    assert found.content is None and "python-sat (pip install '.[proofs]')" in found.result.reason
    slow = claimed(
        instance, Fraction(1), {"kind": "drup", "groups": [[0], [1], [2], [3]], "levels": [1], "clauses": []}
    )
    assert checker.verify(parsed(instance), slow)["reason"] == "levels: a link is faster than all of them"


@needs_sat
def test_many_bandwidths_are_rounded_and_free_rings_stated() -> None:
    rng = random.Random(2)
    instance = replace(random_mapping(rng, 5, "allreduce", "free"), replicas=5, stages=(MappingStage(1.0, 9.0),))
    matrix = [[0.0] * 5 for _ in range(5)]
    for a, b in combinations(range(5), 2):
        matrix[a][b] = matrix[b][a] = rng.uniform(1, 9)
    instance = replace(instance, edges=(), bandwidth_bytes_per_s=tuple(map(tuple, matrix)))
    found = planner.certify(instance)
    assert found.content is not None and sorted(found.content["plan"]["rings"][0]) == list(range(5))
    assert planner.verify(instance, found.content).accepted
    del found.content["plan"]["rings"]
    assert planner.verify(instance, found.content).reason == "plan: the order of free rings"
