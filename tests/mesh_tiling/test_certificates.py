"""Certificates of mesh tiling: accepted where brute force in fractions confirms them, and mutants nowhere else."""

from __future__ import annotations

import copy
import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from oracles.mesh_tiling import covers, plans
from small_instances import random_case

import planner
from formulations.family import UncertifiedError
from formulations.mesh_tiling import checker
from formulations.mesh_tiling.certificates import write
from instances.mesh_tiling import MeshInstance, generate, to_json
from planner.cli.app import main
from solvers.outcome import Stop, Watch


def parsed(instance: MeshInstance) -> dict:
    return json.loads(json.dumps(to_json(instance)))


def seconds(instance: MeshInstance, tiles: list[dict[str, int]]) -> Fraction:
    """The objective, once more and exactly."""
    t, d = instance.tp_degree, instance.dp_degree

    def link(a: int, b: int) -> Fraction:
        inter = instance.inter_bytes_per_s
        return Fraction(instance.intra_bytes_per_s[a] if a == b else min(inter[a], inter[b]))

    def node(tile: dict[str, int], m: int, r: int) -> int:
        return tile["column"] + (r if tile["rows"] == t else m)

    def ring(nodes: list[int], volume: float) -> Fraction:
        n, after = len(nodes), nodes[1:] + nodes[:1]
        links = [Fraction(2 * (n - 1), n) * Fraction(volume) / link(a, b) for a, b in zip(nodes, after, strict=True)]
        return max(links) if n > 1 else Fraction(0)

    times = [
        Fraction(instance.compute_s)
        + max(ring([node(tile, m, r) for m in range(t)], instance.tp_bytes) for r in range(d))
        for tile in tiles
    ]
    syncs = [max(ring([node(tile, m, r) for r in range(d)], instance.dp_bytes) for m in range(t)) for tile in tiles]
    sent = Fraction(0)
    for here, there in pairwise(tiles) if instance.ordered else ():
        for r in range(d):
            slowest = min(link(node(here, m, r), node(there, m, r)) for m in range(t))
            sent += Fraction(instance.stage_bytes) / slowest / d
    return (instance.num_microbatches - 1) * max(times) + sum(times) + max(syncs) + sent


def optimum(instance: MeshInstance) -> Fraction | float:
    """The least time of all covers in all orders, exactly; infinite if there is none."""
    return min((seconds(instance, plan["tiles"]) for plan in plans(instance)), default=math.inf)


def small(count: int) -> Iterator[tuple[int, MeshInstance]]:
    """Of up to five tiles; of those without any every second one is left out."""
    number = found = 0
    while found < count:
        instance = random_case("mesh_tiling", 16, number)
        number += 1
        if number % 2 or next(plans(instance), None):
            found += 1
            yield number, instance


def claim(instance: MeshInstance, bound: Fraction | None) -> dict:
    return {
        "format": 1, "problem": "mesh_tiling", "instance_sha256": checker.Instance(parsed(instance)).digest,
        "plan": None, "objective": None, "bound": None if bound is None else str(bound), "proof": {"kind": "search"},
    }  # fmt: skip


def test_certificates_of_random_instances_are_accepted(cases: int) -> None:
    infeasible = 0
    for number, instance in small(cases):
        result = planner.solve(instance, exact=True)
        found = planner.certify(instance, result)
        assert found.content is not None, (number, found.result.reason)
        verdict = planner.verify(instance, json.loads(found.text))
        assert verdict.accepted, (number, verdict.reason)
        if verdict.bound is None:
            infeasible += 1
            continue
        assert result.bound is not None and result.objective is not None
        assert result.bound * (1 - 1e-10) <= verdict.bound <= result.bound * (1 + 1e-15)
        assert math.isclose(verdict.objective or 0.0, result.objective, rel_tol=1e-13)
    assert cases // 10 <= infeasible <= cases * 3 // 4


def test_every_bound_below_the_optimum_is_accepted_and_no_other(cases: int) -> None:
    ordered = 0
    for number, instance in small(cases // 3):
        best = optimum(instance)
        if best == math.inf:
            assert checker.verify(parsed(instance), claim(instance, None))["accepted"], number
            continue
        assert not checker.verify(parsed(instance), claim(instance, None))["accepted"], number
        if not best:
            continue
        best, ordered = Fraction(best), ordered + instance.ordered
        for part, accepted in ((Fraction(10**12 - 1, 10**12), True), (Fraction(1, 2), True), (1, False), (2, False)):
            found = checker.verify(parsed(instance), claim(instance, best * part))
            assert found["accepted"] is accepted, (number, part, found["reason"])
        with pytest.raises(UncertifiedError, match="does not confirm the bound"):
            write(instance, None, float(best) * (1 + 1e-9), Watch())
    assert ordered >= cases // 30


@pytest.mark.parametrize(
    ("shape", "seed"),
    [
        *[((4, 12, 2, 4), seed) for seed in (7, 8, 10, 14)],
        *[((6, 12, 2, 3), seed) for seed in (0, 24, 39)],
        *[((4, 5, 2, 1), seed) for seed in (0, 37, 72, 106)],
        ((4, 8, 2, 1), 6),
    ],
)
def test_fronts_where_no_cover_is_best_in_everything(shape: tuple[int, int, int, int], seed: int) -> None:
    """Without order: some covers have the faster slowest stage, some the lesser sum, some the faster all-reduce."""
    rng, (rows, columns, t, d) = random.Random(f"fronts {seed}"), shape
    intra, inter = (tuple(float(rng.choice([1, 2, 3, 5, 8])) for _ in range(columns)) for _ in range(2))
    instance = MeshInstance("fronts", rows, intra, inter, t, d, rng.choice([2, 4]), tp_bytes=8.0, dp_bytes=40.0)
    names = ("row", "column", "rows", "columns")
    best = min(seconds(instance, [dict(zip(names, tile, strict=True)) for tile in cover]) for cover in covers(instance))
    for part, accepted in ((Fraction(10**12 - 1, 10**12), True), (1, False)):
        assert checker.verify(parsed(instance), claim(instance, best * part))["accepted"] is accepted


def test_no_mutant_that_claims_what_is_false_is_accepted(cases: int) -> None:
    rejected = count = 0
    for number, instance in small(cases // 8):
        rng, good = random.Random(f"mutants {number}"), planner.certify(instance).content
        assert good is not None
        for kind in range(8):
            content, mutant = parsed(instance), copy.deepcopy(json.loads(json.dumps(good)))
            tiles = mutant["plan"]["tiles"] if mutant["plan"] else []
            if kind == 0 and mutant["bound"] is not None:
                mutant["bound"] = mutant["objective"]
            elif kind == 1 and len(tiles) > 1:
                tiles[0]["stage"], tiles[1]["stage"] = tiles[1]["stage"], tiles[0]["stage"]
            elif kind == 2 and tiles:
                rng.choice(tiles)[rng.choice(["row", "column", "rows", "columns"])] += 1
            elif kind == 3:
                mutant.update(plan=None, objective=None, bound=None)
            elif kind == 4 and mutant["objective"] is not None:
                mutant["objective"] = str(Fraction(mutant["objective"]) * Fraction(9, 10))
            elif kind == 5:
                name = rng.choice(["intra", "inter"])
                content[f"{name}_bytes_per_s"] = [
                    each * rng.choice([1, 1.5, 4]) for each in content[f"{name}_bytes_per_s"]
                ]
            elif kind == 6:
                content["num_microbatches"] = rng.randint(1, 9)
            else:
                content[rng.choice(["compute_s", "tp_bytes", "dp_bytes", "stage_bytes"])] *= rng.choice([0.0, 0.9])
            mutant["instance_sha256"] = checker.Instance(content).digest
            count += 1
            accepted = checker.verify(content, mutant)["accepted"]
            rejected += not accepted
            if accepted:
                changed, bound = planner.load(content), mutant["bound"]
                best = optimum(changed)
                assert best == math.inf if bound is None else best > Fraction(bound) or not Fraction(bound), (
                    number,
                    kind,
                )
                if mutant["plan"] is not None:
                    checked = planner.check(changed, mutant["plan"])
                    assert checked.objective == pytest.approx(float(Fraction(mutant["objective"])), rel=1e-13)
    assert rejected >= count // 5


@pytest.mark.parametrize(("changes", "best"), [({}, 7), ({"num_microbatches": 1}, 3), ({"dp_degree": 3}, math.inf)])
def test_optima_by_hand(changes: dict, best: float) -> None:
    """Tiles of two devices in two columns: a ring of 2 bytes takes 1 s in one and 2 s in the other, 4 s across."""
    instance = replace(MeshInstance("hand", 2, (2.0, 1.0), (0.5, 0.5), 2, 1, 3, tp_bytes=2.0), **changes)
    assert optimum(instance) == best  # (3 - 1) 2 + 1 + 2
    bound = None if best == math.inf else Fraction(best)
    assert checker.verify(parsed(instance), claim(instance, bound))["accepted"] is (bound is None)


@pytest.mark.parametrize(
    "change",
    [{"bound": "1e9"}, {"plan": {"tiles": [{}]}}, {"plan": {"tiles": [1]}}, {"objective": "3"}, {"proof": {}}],
)
def test_what_is_no_certificate_is_bad_input(change: dict) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        checker.verify(parsed(generate()), claim(generate(), Fraction(1, 10**9)) | change)


def test_what_is_not_certified_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    watch.stop(Stop.INTERRUPTED)
    with pytest.raises(UncertifiedError, match="stopped"):
        write(generate(), None, 1.0, watch)
    required = planner.certify(planner.load(parsed(generate()), require=["stage_of(0, 0) <= 0"]))
    assert required.content is None and "uncertified: what is required of a plan" in required.result.reason
    monkeypatch.setattr(checker, "MAX_STEPS", 2)
    found = planner.certify(generate())
    assert found.content is None and "size: over 2 tiles laid behind labels" in found.result.reason
    monkeypatch.setattr(checker, "MAX_STEPS", 10**6)
    monkeypatch.setattr(checker, "MAX_STATES", 2)
    found = planner.certify(generate(ordered=True))
    assert found.content is None and "size: over 2 states of the orders" in found.result.reason


def test_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The command, and the checker alone on its files."""
    instance, certificate = tmp_path / "instance.json", tmp_path / "certificate.json"
    planner.save(generate(4, 4, 2, 1, ordered=True), instance)
    assert main(["certify", str(instance), "--out", str(certificate), "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certificate"]["kind"] == "search"
    assert main(["verify", str(instance), str(certificate)]) == 0
    assert "accepted: every plan takes more than " in capsys.readouterr().out
    command = [sys.executable, "-I", "-S", checker.__file__, str(instance), str(certificate)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.startswith("accepted: ")
