"""Certificates of layer assignment: accepted where brute force in fractions confirms them, and mutants nowhere else."""

from __future__ import annotations

import copy
import json
import math
import random
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from small_instances import random_case

import planner
from formulations.family import UncertifiedError
from formulations.layer_assignment import checker
from formulations.layer_assignment.certificates import write
from instances.layer_assignment import LayerAssignmentInstance, TiedParameters, generate, to_json
from planner import Stop
from planner.cli.app import main
from solvers.outcome import Watch


def parsed(instance: LayerAssignmentInstance) -> dict:
    return json.loads(json.dumps(to_json(instance)))


def all_reduce(instance: LayerAssignmentInstance, stage: int, begin: int, end: int) -> Fraction:
    """Of a stage, exactly."""
    held = sum(map(Fraction, instance.parameters[begin:end]), Fraction(0))
    held += sum(Fraction(tie.parameters) for tie in instance.tied if {*tie.layers} & {*range(begin, end)})
    rings = instance.ring_s_per_parameter or (0.0,)
    return held * Fraction(rings[stage % len(rings)])


def optimum(instance: LayerAssignmentInstance) -> Fraction | float:
    """The least time of any assignment, exactly; infinite if there is none."""
    L, S, found = instance.num_layers, instance.num_stages, []
    for inner in combinations(range(1, L), S - 1):
        ends = (0, *inner, L)
        times = [sum(map(Fraction, instance.layer_time_s[a:b]), Fraction(0)) for a, b in pairwise(ends)]
        sent = [Fraction(instance.cut_cost(end - 1, stage)) for stage, end in enumerate(inner)]
        reduced = [all_reduce(instance, stage, *span) for stage, span in enumerate(pairwise(ends))]
        found.append((instance.num_microbatches - 1) * max(times) + sum(times) + sum(sent) + max(reduced))
    return min(found, default=math.inf)


def cases_of(count: int) -> list[tuple[int, LayerAssignmentInstance]]:
    return [(number, random_case("layer_assignment", 16, number)) for number in range(count)]


Rows = list[tuple[Fraction, list[Fraction]]]


def claim(
    instance: LayerAssignmentInstance, bound: Fraction | None, caps: list[Fraction], rows: Rows | None = None
) -> dict:
    texts = {"rows": [[str(most), [str(cap) for cap in below]] for most, below in rows]} if rows else {}
    return {
        "format": 1, "problem": "layer_assignment", "instance_sha256": checker.Instance(parsed(instance)).digest,
        "plan": None, "objective": None, "bound": None if bound is None else str(bound),
        "proof": {"kind": "caps", "caps": [str(cap) for cap in caps], **texts},
    }  # fmt: skip


def written(made: dict) -> tuple[list[Fraction], Rows]:
    """The caps and the rows of a certificate."""
    rows = made["proof"].get("rows", [])
    return list(map(Fraction, made["proof"]["caps"])), [(Fraction(a), list(map(Fraction, caps))) for a, caps in rows]


def test_certificates_of_random_instances_are_accepted(cases: int) -> None:
    infeasible = reduced = 0
    for number, instance in cases_of(cases):
        result = planner.solve(instance, exact=True)
        found = planner.certify(instance, result)
        assert found.content is not None, (number, found.result.reason)
        verdict = planner.verify(instance, json.loads(found.text))
        assert verdict.accepted, (number, verdict.reason)
        reduced += bool(found.content["proof"].get("rows"))
        if verdict.bound is None:
            infeasible += 1
        else:
            assert result.bound is not None and result.objective is not None
            assert result.bound * (1 - 1e-10) <= verdict.bound <= result.bound * (1 + 1e-15)
            assert math.isclose(verdict.objective or 0.0, result.objective, rel_tol=1e-13)
    assert infeasible >= cases // 100 and reduced >= cases // 4


def test_every_bound_below_the_optimum_is_proved_and_no_other(cases: int) -> None:
    """The caps that are written prove it; caps that are not those prove nothing that is false."""
    rng, counts = random.Random(3), {True: 0, False: 0}
    for number, instance in cases_of(cases):
        best = optimum(instance)
        if best in (0, math.inf):
            continue
        best = Fraction(best)
        for bound in (best * (1 - Fraction(1, 10**9)), best * Fraction(9, 10), best / 7):
            made = write(instance, None, float(bound), Watch())
            assert checker.verify(parsed(instance), made)["accepted"], (number, bound)
            assert Fraction(made["bound"]) >= bound * (1 - Fraction(1, 10**10))
            caps, rows = written(made)
            for higher in (best, best * (1 + Fraction(1, 10**9)), best * 2):
                other = sorted({*caps, best, best * Fraction(rng.random())} - {rng.choice([best, *caps])})
                fewer = [row for row in rows if rng.random() < 0.5]
                for tried in ((caps, rows), (other, rows), (caps, fewer), (other, [])):
                    accepted = checker.verify(parsed(instance), claim(instance, higher, *tried))["accepted"]
                    assert not accepted, (number, higher, tried)
            other = sorted({*caps, best * Fraction(rng.random())} - {rng.choice([best, *caps])})
            counts[checker.verify(parsed(instance), claim(instance, bound, other, rows))["accepted"]] += 1
        with pytest.raises(UncertifiedError, match="does not confirm the bound"):
            write(instance, None, float(best) * (1 + 1e-9), Watch())
    assert min(counts.values()) >= cases // 4, counts


def test_no_mutant_that_claims_what_is_false_is_accepted(cases: int) -> None:
    rejected = tried = 0
    for number, instance in cases_of(cases):
        rng = random.Random(f"mutants {number}")
        good = planner.certify(instance).content
        assert good is not None
        for kind in range(9):
            content, mutant = parsed(instance), copy.deepcopy(json.loads(json.dumps(good)))
            if kind == 0 and mutant["bound"] is not None:
                mutant["bound"] = mutant["objective"]
            elif kind == 1 and mutant["plan"]:
                rng.shuffle(mutant["plan"]["lengths"])
            elif kind == 2:
                mutant.update(plan=None, objective=None, bound=None)
            elif kind == 3 and mutant["objective"] is not None:
                mutant["objective"] = str(Fraction(mutant["objective"]) * Fraction(9, 10))
            elif kind == 4 and mutant["proof"]["caps"]:
                mutant["proof"]["caps"].pop()
            elif kind == 5 and mutant["proof"].get("rows"):
                rows = mutant["proof"]["rows"]
                row = rows.pop(rng.randrange(len(rows)))
                if rng.random() < 0.5:
                    rows.append([str(Fraction(row[0]) * rng.choice([2, Fraction(1, 2)])), row[1]])
                    rows.sort(key=lambda row: Fraction(row[0]))
            elif kind == 6 and content.get("ring_s_per_parameter"):
                place = rng.randrange(len(content["ring_s_per_parameter"]))
                content["ring_s_per_parameter"][place] *= rng.choice([0.9, 0.5, 0.0])
            elif kind == 7 and content.get("parameters"):
                content["parameters"][rng.randrange(len(content["parameters"]))] *= rng.choice([0.9, 0.0])
            elif kind == 8:
                content["num_microbatches"] = rng.randint(1, 9)
            else:
                place = rng.randrange(len(content["layer_time_s"]))
                content["layer_time_s"][place] = rng.choice([0.9, 0.5, 0.0]) * content["layer_time_s"][place]
            mutant["instance_sha256"] = checker.Instance(content).digest
            tried += 1
            try:
                accepted = checker.verify(content, mutant)["accepted"]
            except ValueError:
                accepted = False
            rejected += not accepted
            if accepted:
                changed = planner.load(content)
                best = optimum(changed)
                assert best == math.inf if mutant["bound"] is None else best > Fraction(mutant["bound"]) or best == 0
                if mutant["plan"] is not None:
                    attained = planner.check(changed, mutant["plan"]).objective
                    assert attained == pytest.approx(float(Fraction(mutant["objective"])), rel=1e-13)
    assert rejected >= tried // 4


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
    for number, instance in cases_of(cases):
        if not any(instance.ring_s_per_parameter):
            continue
        rng, exact = random.Random(number), checker.Instance(parsed(instance))
        spans = [(a, b) for b in range(1, len(exact.times) + 1) for a in range(b)]
        a, b = rng.choice(spans)
        cap, most = rng.choice([None, sum(exact.times[a:b])]), exact.parameters(*rng.choice(spans))
        for end, first in enumerate(exact._first(cap, most)):
            fitting = [
                begin for begin in range(end)
                if (cap is None or sum(exact.times[begin:end]) <= cap) and exact.parameters(begin, end) <= most
            ]  # fmt: skip
            assert first == min(fitting, default=end), number


@pytest.mark.parametrize(
    "change",
    [
        {"bound": "1e9"}, {"plan": {"lengths": []}}, {"proof": {"kind": "caps", "caps": ["-1"]}},
        {"proof": {"kind": "caps", "caps": ["2", "1"]}}, {"proof": {"kind": "caps"}}, {"objective": "3"},
        {"proof": {"kind": "caps", "caps": [2]}}, {"proof": {"kind": "caps", "caps": [], "rows": [["1"]]}},
        {"proof": {"kind": "caps", "caps": [], "rows": [["2", []], ["1", []]]}},
        {"proof": {"kind": "caps", "caps": [], "rows": [[None, []]]}},
    ],
)  # fmt: skip
def test_what_is_no_certificate_is_bad_input(change: dict) -> None:
    instance = generate(6, 2, 4)
    with pytest.raises(ValueError, match=r"\w"):
        checker.verify(parsed(instance), claim(instance, Fraction(1, 10**6), []) | change)


@pytest.mark.parametrize("change", [{"ring_s_per_parameter": (2.0,)}, {"parameters": (1.0, 2.0)}, {"tied": ()}])
def test_a_certificate_of_another_all_reduce_is_rejected(change: dict) -> None:
    tie = TiedParameters((0, 1), 1.0)
    instance = LayerAssignmentInstance("hand", (2.0, 2.0), ((0.0,),), 1, 1, (1.0, 1.0), (tie,), (1.0,))
    found = checker.verify(parsed(replace(instance, **change)), claim(instance, Fraction(1), []))
    assert found["reason"] == "instance: the certificate is of another one"


def test_what_is_not_certified_says_why() -> None:
    watch = Watch()
    watch.stop(Stop.INTERRUPTED)
    with pytest.raises(UncertifiedError, match="stopped"):
        write(generate(8, 3, 4), None, 1.0, watch)
    required = planner.certify(planner.load(parsed(generate(8, 3, 4)), require=["stage_of(2) <= 1"]))
    assert required.content is None and "uncertified: what is required of a plan" in required.result.reason


def test_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The command, and the checker alone on its files."""
    instance, certificate = tmp_path / "instance.json", tmp_path / "certificate.json"
    planner.save(generate(100, 8, 16), instance)
    assert main(["solve", str(instance), "--certificate", str(certificate), "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certificate"]["kind"] == "caps"
    assert main(["verify", str(instance), str(certificate)]) == 0
    assert "accepted: every plan takes more than " in capsys.readouterr().out
    command = [sys.executable, "-I", "-S", checker.__file__, str(instance), str(certificate)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.startswith("accepted: ")
