"""Certificates of pipeline placement: accepted where brute force in fractions confirms them, and nowhere else."""

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
from pathlib import Path

import pytest
from oracles.pipeline_placement import plans
from small_instances import random_case

import planner
from formulations.family import UncertifiedError
from formulations.pipeline_placement import checker
from formulations.pipeline_placement.certificates import write
from formulations.pipeline_placement.plans import plan_from_json
from formulations.pipeline_placement.problem import violations
from instances.operator_partitioning import Operator, OperatorInstance, Tensor
from instances.pipeline_placement import PlacementInstance, placed, to_json
from planner.cli.app import main
from solvers.outcome import Stop, Watch


def parsed(instance: PlacementInstance) -> dict:
    return json.loads(json.dumps(to_json(instance)))


def seconds(instance: PlacementInstance, plan: dict) -> Fraction:
    """The objective, once more and exactly."""
    graph, R, B = instance.operators, instance.operators.replicas, instance.bandwidth_bytes_per_s
    home = {v: s for s, stage in enumerate(plan["partition"]["stages"]) for v in stage}
    ids, devices = [operator.id for operator in graph.operators], plan["mapping"]["devices"]
    times = []
    for s, row in enumerate(devices):
        held = [operator for operator in graph.operators if home[operator.id] == s]
        shared = sum((Fraction(operator.compute_s) for operator in held), Fraction(0))
        if instance.objective != "p2p" and R > 1:
            slowest = min(B[a][b] for a, b in zip(row, row[1:] + row[:1], strict=True))
            shared += Fraction(2 * (R - 1), R) * sum(Fraction(o.parameter_bytes) for o in held) / Fraction(slowest)
        for r in range(R):
            sent = Fraction(0)
            for tensor in graph.tensors if instance.objective != "allreduce" else ():
                source = home[ids[tensor.source]]
                for taker in {home[ids[v]] for v in tensor.targets} - {source}:
                    if s in (source, taker):
                        sent += Fraction(tensor.volume_bytes) / Fraction(B[devices[source][r]][devices[taker][r]])
            times.append(shared + sent)
    return max(times)


def optimum(instance: PlacementInstance) -> Fraction | float:
    """The least time of all plans that the definition allows, exactly; infinite if there is none."""
    found = plans(instance)
    if instance.operators.memory_bytes is not None:
        found = (plan for plan in found if not violations(instance, plan_from_json(instance, plan)))
    return min((seconds(instance, plan) for plan in found), default=math.inf)


def small(count: int) -> Iterator[tuple[int, PlacementInstance]]:
    for number in range(count):
        yield number, random_case("pipeline_placement", 16, number)


def claim(instance: PlacementInstance, bound: Fraction | None) -> dict:
    return {
        "format": 1, "problem": "pipeline_placement", "instance_sha256": checker.Instance(parsed(instance)).digest,
        "plan": None, "objective": None, "bound": None if bound is None else str(bound), "proof": {"kind": "search"},
    }  # fmt: skip


def is_accepted(instance: PlacementInstance, bound: Fraction | None) -> bool:
    return checker.verify(parsed(instance), claim(instance, bound))["accepted"]


def test_every_bound_below_the_optimum_is_accepted_and_no_other(cases: int) -> None:
    for number, instance in small(cases // 2):
        best = optimum(instance)
        assert not is_accepted(instance, None), number
        if not best:
            continue
        for part, accepted in ((Fraction(10**12 - 1, 10**12), True), (Fraction(1, 2), True), (1, False), (2, False)):
            assert is_accepted(instance, best * part) is accepted, (number, part)
        with pytest.raises(UncertifiedError, match="does not confirm the bound"):
            write(instance, None, float(best) * (1 + 1e-9), Watch())


def test_certificates_and_their_mutants(cases: int) -> None:
    """What is written is accepted; no mutant that claims what is false is."""
    rejected = count = 0
    for number, instance in small(cases // 4):
        rng, result = random.Random(f"mutants {number}"), planner.solve(instance, exact=True)
        found = planner.certify(instance, result)
        assert found.content is not None, (number, found.result.reason)
        good = json.loads(found.text)
        verdict = planner.verify(instance, good)
        assert verdict.accepted and verdict.bound is not None and result.bound is not None, (number, verdict.reason)
        assert result.bound * (1 - 1e-10) <= verdict.bound <= result.bound * (1 + 1e-15)
        for kind in range(7):
            content, mutant = parsed(instance), copy.deepcopy(good)
            if kind == 0:
                mutant["bound"] = mutant["objective"]
            elif kind == 1:
                rng.shuffle(mutant["plan"]["mapping"]["devices"])
            elif kind == 2:
                rng.shuffle(mutant["plan"]["partition"]["stages"])
            elif kind == 3:
                mutant.update(plan=None, objective=None, bound=None)
            elif kind == 4:
                mutant["objective"] = str(Fraction(mutant["objective"]) * Fraction(9, 10))
            elif kind == 5 and len(content["bandwidth_bytes_per_s"]) > 1:
                matrix = content["bandwidth_bytes_per_s"]
                matrix[0][1] = matrix[1][0] = matrix[0][1] * rng.choice([0.5, 2, 8])
            else:
                rng.choice(content["operators"]["operators"])["compute_s"] *= rng.choice([0.9, 0.5])
            mutant["instance_sha256"] = checker.Instance(content).digest
            count += 1
            accepted = checker.verify(content, mutant)["accepted"]
            rejected += not accepted
            if accepted:
                changed, bound = planner.load(content), mutant["bound"]
                assert bound is not None
                assert optimum(changed) > Fraction(bound) or not Fraction(bound), (number, kind)
                checked = planner.check(changed, mutant["plan"])
                assert checked.objective == pytest.approx(float(Fraction(mutant["objective"])), rel=1e-13)
    assert rejected >= count // 4


def hand(**changes: object) -> PlacementInstance:
    """Operators of 2, 3 and 2 s in a row with tensors of 1 and 2 bytes; two stages, links of 1 byte/s."""
    operators = tuple(Operator(f"v{v}", time, 4.0, 0.0, 1.0) for v, time in enumerate((2.0, 3.0, 2.0)))
    tensors = (Tensor(0, (1,), 1.0), Tensor(1, (2,), 2.0))
    graph = replace(OperatorInstance("hand", operators, tensors, 2, 1, 1.0), **changes)
    size = (graph.num_stages or 0) * graph.replicas
    matrix = tuple(tuple(float(a != b) for b in range(size)) for a in range(size))
    return placed(graph, matrix, objective="full")


@pytest.mark.parametrize(
    ("changes", "best"),
    [
        ({}, 6),  # v0 | v1 v2: 3 and 6; v0 v1 | v2: 7
        ({"memory_bytes": 2.0}, 6), ({"memory_bytes": 1.9}, math.inf), ({"num_stages": 1}, 7),
        ({"replicas": 2}, 14),  # and 2 * 1 / 2 times 8 bytes of parameters
        ({"replicas": 2, "memory_bytes": 1.0, "pooled_memory": True}, 14),
    ],
)  # fmt: skip
def test_optima_by_hand(changes: dict, best: float) -> None:
    instance = hand(**changes)
    assert optimum(instance) == best
    if best == math.inf:
        assert is_accepted(instance, None)
        return
    assert is_accepted(instance, best - Fraction(1, 10**9)) and not is_accepted(instance, Fraction(best))


def test_a_ring_of_four_passes_each_replica_once() -> None:
    """Links of 4 bytes/s around a square, of 1 byte/s across it: 1 s, and 2 * 3 / 4 * 8 bytes over the fast ones."""
    matrix = tuple(tuple(0.0 if a == b else 4.0 if (a - b) % 2 else 1.0 for b in range(4)) for a in range(4))
    instance = placed(OperatorInstance("square", (Operator("a", 1.0, 8.0),), (), 1, 4, 1.0), matrix, objective="full")
    assert optimum(instance) == 4
    assert is_accepted(instance, 4 - Fraction(1, 10**9)) and not is_accepted(instance, Fraction(4))


@pytest.mark.parametrize(("excess", "fits"), [(0.9e-12, True), (1.1e-12, False)])
def test_memory_that_the_definition_admits_is_admitted(excess: float, fits: bool) -> None:
    operators = (Operator("a", 1.0, memory_bytes=1.0), Operator("b", 1.0, memory_bytes=excess))
    instance = placed(OperatorInstance("tight", operators, (), 1, 1, 1.0, memory_bytes=1.0), ((0.0,),))
    assert (optimum(instance) == 2) is fits and is_accepted(instance, None) is not fits


@pytest.mark.parametrize(
    "change",
    [{"bound": "1e9"}, {"plan": {"partition": {}}}, {"plan": {"mapping": 1}}, {"objective": "3"}, {"proof": {}}],
)
def test_what_is_no_certificate_is_bad_input(change: dict) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        checker.verify(parsed(hand()), claim(hand(), Fraction(1)) | change)


def test_what_is_not_certified_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    watch.stop(Stop.INTERRUPTED)
    with pytest.raises(UncertifiedError, match="stopped"):
        write(hand(), None, 1.0, watch)
    required = planner.certify(planner.load(parsed(hand()), require=["stage_of(v0) <= 0"]))
    assert required.content is None and "uncertified: what is required of a plan" in required.result.reason
    rings = claim(replace(hand(replicas=4), ring="free"), Fraction(1))
    assert checker.verify(parsed(replace(hand(replicas=4), ring="free")), rings)["reason"].startswith("rings: in any")
    monkeypatch.setattr(checker, "MAX_STEPS", 2)
    found = planner.certify(hand())
    assert found.content is None and "size: over 2 operators and nodes are tried" in found.result.reason


def test_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The command, and the checker alone on its files."""
    instance, certificate = tmp_path / "instance.json", tmp_path / "certificate.json"
    planner.save(planner.load("placement"), instance)
    assert main(["certify", str(instance), "--out", str(certificate), "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certificate"]["kind"] == "search"
    assert main(["verify", str(instance), str(certificate)]) == 0
    assert "accepted: every plan takes more than " in capsys.readouterr().out
    command = [sys.executable, "-I", "-S", checker.__file__, str(instance), str(certificate)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.startswith("accepted: ")
