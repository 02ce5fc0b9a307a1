"""Certificates of layer assignment: accepted where brute force in fractions confirms them, and mutants nowhere else."""

from __future__ import annotations

import copy
import json
import math
import random
import subprocess
import sys
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from small_instances import random_case

import planner
from formulations.family import UncertifiedError
from formulations.layer_assignment import checker
from formulations.layer_assignment.certificates import write
from instances.layer_assignment import LayerAssignmentInstance, generate, to_json
from planner import Stop
from planner.cli.app import main
from solvers.outcome import Watch


def parsed(instance: LayerAssignmentInstance) -> dict:
    return json.loads(json.dumps(to_json(instance)))


def optimum(instance: LayerAssignmentInstance) -> Fraction | float:
    """The least time of any assignment (without an all-reduce), exactly; infinite if there is none."""
    L, S, found = instance.num_layers, instance.num_stages, []
    for inner in combinations(range(1, L), S - 1):
        ends = (0, *inner, L)
        times = [sum(map(Fraction, instance.layer_time_s[a:b]), Fraction(0)) for a, b in pairwise(ends)]
        sent = [Fraction(instance.cut_cost(end - 1, stage)) for stage, end in enumerate(inner)]
        found.append((instance.num_microbatches - 1) * max(times) + sum(times) + sum(sent))
    return min(found, default=math.inf)


def cases_of(count: int) -> list[tuple[int, LayerAssignmentInstance]]:
    found = ((number, random_case("layer_assignment", 16, number)) for number in range(2 * count))
    return [(n, each) for n, each in found if not any(each.ring_s_per_parameter)][:count]


def claim(instance: LayerAssignmentInstance, bound: Fraction | None, caps: list[Fraction]) -> dict:
    return {
        "format": 1, "problem": "layer_assignment", "instance_sha256": checker.Instance(parsed(instance)).digest,
        "plan": None, "objective": None, "bound": None if bound is None else str(bound),
        "proof": {"kind": "caps", "caps": [str(cap) for cap in caps]},
    }  # fmt: skip


def test_certificates_of_random_instances_are_accepted(cases: int) -> None:
    infeasible = 0
    for number, instance in cases_of(cases):
        result = planner.solve(instance, exact=True)
        found = planner.certify(instance, result)
        assert found.content is not None, (number, found.result.reason)
        verdict = planner.verify(instance, json.loads(found.text))
        assert verdict.accepted, (number, verdict.reason)
        if verdict.bound is None:
            infeasible += 1
        else:
            assert result.bound is not None and result.objective is not None
            assert result.bound * (1 - 1e-10) <= verdict.bound <= result.bound * (1 + 1e-15)
            assert math.isclose(verdict.objective or 0.0, result.objective, rel_tol=1e-13)
    assert infeasible >= cases // 100


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
            caps = [Fraction(cap) for cap in made["proof"]["caps"]]
            for higher in (best, best * (1 + Fraction(1, 10**9)), best * 2):
                other = sorted({*caps, best, best * Fraction(rng.random())} - {rng.choice([best, *caps])})
                for tried in (caps, other):
                    accepted = checker.verify(parsed(instance), claim(instance, higher, tried))["accepted"]
                    assert not accepted, (number, higher, tried)
            other = sorted({*caps, best * Fraction(rng.random())} - {rng.choice([best, *caps])})
            counts[checker.verify(parsed(instance), claim(instance, bound, other))["accepted"]] += 1
        with pytest.raises(UncertifiedError, match="does not confirm the bound"):
            write(instance, None, float(best) * (1 + 1e-9), Watch())
    assert min(counts.values()) >= cases // 4, counts


def test_no_mutant_that_claims_what_is_false_is_accepted(cases: int) -> None:
    rejected = tried = 0
    for number, instance in cases_of(cases):
        rng = random.Random(f"mutants {number}")
        good = planner.certify(instance).content
        assert good is not None
        for kind in range(7):
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
            elif kind == 5:
                content["num_microbatches"] = rng.randint(1, 9)
            else:
                place = rng.randrange(len(content["layer_time_s"]))
                content["layer_time_s"][place] = rng.choice([0.9, 0.5, 0.0]) * content["layer_time_s"][place]
            mutant["instance_sha256"] = checker.Instance(content).digest
            tried += 1
            accepted = checker.verify(content, mutant)["accepted"]
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
    "change",
    [
        {"bound": "1e9"}, {"plan": {"lengths": []}}, {"proof": {"kind": "caps", "caps": ["-1"]}},
        {"proof": {"kind": "caps", "caps": ["2", "1"]}}, {"proof": {"kind": "caps"}}, {"objective": "3"},
        {"proof": {"kind": "caps", "caps": [2]}},
    ],
)  # fmt: skip
def test_what_is_no_certificate_is_bad_input(change: dict) -> None:
    instance = generate(6, 2, 4)
    with pytest.raises(ValueError, match=r"\w"):
        checker.verify(parsed(instance), claim(instance, Fraction(1, 10**6), []) | change)


def test_what_is_not_certified_says_why() -> None:
    with_rings = generate(8, 3, 4, all_reduce=True)
    found = planner.certify(with_rings)
    assert found.content is None and "uncertified: bounds with an all-reduce are not" in found.result.reason
    assert checker.verify(parsed(with_rings), claim(with_rings, Fraction(1, 100), []))["reason"].startswith(
        "all-reduce"
    )
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
