"""Certificates of random instances are accepted; mutants of them whose claim is false are not."""

import copy
import json
import math
import random
import shlex
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from certificate_cases import Spoiling, certified, mutants, parsed
from oracles.stage_partitioning import brute_force
from paths import ROOT
from small_instances import random_case

import planner
from formulations.contract.family import UncertifiedError
from formulations.stage_partitioning.certificate import checker
from formulations.stage_partitioning.certificate.writer import write
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from planner import Stop
from planner.cli.app import main
from planner.files.load import family_of
from planner.solving import certify
from solvers.outcome import Watch


def case(number: int) -> StageInstance:
    return random_case("stage_partitioning", 16, number)


def _mutants(rng: random.Random, content: dict, good: dict) -> Iterator[tuple[dict, dict]]:
    """Those of all problems, and claims of devices behind sets with rows or without them, all layers among them."""
    yield from mutants(rng, content, good)
    for is_new in (False, True):
        mutant = copy.deepcopy(good)
        rows = mutant["proof"].setdefault("downsets", [])
        if is_new:
            if good["objective"] is not None:  # a little more than can be proved
                mutant["bound"] = str(Fraction(good["objective"]) * Fraction(10**9 + 1, 10**9))
            count = len(content["layers"])
            mask = f"{rng.choice([(1 << count) - 1, rng.randrange(1 << count)]):x}"
            rows.extend([[mask, [], rng.choice([1, 2, 100])]] * all(row[0] != mask for row in rows))
        elif rows:
            row = rng.choice(rows)
            row[2:] = [rng.choice([0, 1, 2, *(own + 1 for own in row[2:])])]
        yield content, mutant


def optimum(instance: StageInstance) -> Fraction | float:
    """By brute force in float64, and what it rounds; infinite if there is no plan."""
    best = brute_force(instance)
    return math.inf if best is None else Fraction(best.time) * (1 + Fraction(1, 10**12))


SPOILING = Spoiling(case, optimum, _mutants, rejected=1 / 3)


def test_all_layers_on_all_devices_keep_their_label() -> None:
    """Degrees have to sum to two, and one replica of four devices is possible, which work alone says too."""
    rows = {2: (Tmpc("x", 12.0, 1.0, 0.0, 1.0),), 4: (Tmpc("x", 5.0, 10.0, 2.0, 3.0),)}
    certified(StageInstance("one", (Layer("v", rows),), (), 4, 5.0, 2.0, 2, exactly=True, max_dp_degree=2))


def test_bounds_of_other_methods_are_certified() -> None:
    """Heuristics report the work bound, and models the bound of their solver."""
    instance = planner.load("chain8", memory="40MB")
    for method in ("piper", "equi", "milp", "linearised"):
        found = planner.certify(instance, planner.solve(instance, method=method, limits=planner.Limits(time_s=5)))
        assert found.content is not None, (method, found.result.reason)
        assert planner.verify(instance, found.content).accepted, method


def test_a_gap_that_was_allowed_is_what_is_certified() -> None:
    instance = planner.load("bert32", first=12, devices=8)
    result = planner.solve(instance, method="exact", limits=planner.Limits(gap=0.05))
    found = planner.certify(instance, result)
    assert found.content is not None and result.bound is not None
    bound = planner.verify(instance, found.content).bound
    assert bound is not None and result.bound * (1 - 1e-10) <= bound <= result.bound


#: Published inputs: bytes, compressed bytes and CPU seconds of checking that are not exceeded (twice a prototype's).
_PUBLISHED = (
    ("bert32a100.json", 2048, "8GiB", 15_400, 5_800, 2.0), ("resnet.json", 64, "2GiB", 39_000, 4_100, 5.4),
    ("resnet.json", 512, "2GiB", 40_500, 5_500, 14.4), ("resnet.json", 64, "1GiB", 27_100, 1_900, 12.0),
    ("gnmt.json", 64, "2GiB", 60_900, 5_500, 6.6), ("gnmt.json", 64, "1GiB", 188_800, 15_000, 70.0),
)  # fmt: skip


@pytest.mark.paper
@pytest.mark.slow
@pytest.mark.parametrize(("file", "devices", "memory", "size", "compressed", "seconds"), _PUBLISHED)
def test_certificates_of_published_inputs_are_small(
    published: Path, file: str, devices: int, memory: str, size: int, compressed: int, seconds: float
) -> None:
    instance = planner.load(file, inputs=str(published), devices=devices, memory=memory)
    _, content = certified(instance)
    text = json.dumps(content, separators=(",", ":")).encode()
    assert len(text) <= size and len(zlib.compress(text, 9)) <= compressed
    began = time.process_time()
    assert checker.verify(parsed(instance), content)["accepted"]
    assert time.process_time() - began <= seconds


def test_the_example_of_the_documentation_is_right() -> None:
    page = (ROOT / "docs" / "what-optimal-means.md").read_text()
    certificate = json.loads(page.partition("```json\n")[2].partition("```")[0])

    def layer(name: str, seconds: float) -> Layer:
        return Layer(name, {1: (Tmpc("x", seconds, 2.0, 2.0, 4.0),)})

    layers = (layer("a", 3.0), layer("b", 2.5))
    instance = StageInstance("two", layers, (Edge("a", "b", 1.0),), 2, 20.0, 1.0, 2)
    certificate["instance_sha256"] = checker.Instance(parsed(instance)).digest
    found = planner.verify(instance, certificate)
    assert (found.accepted, found.objective) == (True, 5.0)
    assert not planner.verify(instance, certificate | {"bound": "5"}).accepted
    assert not planner.verify(
        instance, certificate | {"proof": {"kind": "labels", "downsets": [["0", [[0, 0]]]]}}
    ).accepted


def test_what_cannot_be_certified_says_why() -> None:
    instance = planner.load("bert32", devices=64, memory="8GiB")
    result = planner.solve(instance, method="exact")
    assert result.bound is not None and result.objective is not None
    watch = Watch()
    watch.stop(Stop.INTERRUPTED)
    with pytest.raises(UncertifiedError, match="stopped before the labels were complete"):
        write(instance, result.plan, result.bound, watch)
    with pytest.raises(UncertifiedError, match="does not confirm the bound"):
        write(instance, None, 2 * result.objective, Watch())
    with pytest.raises(planner.UsageError, match="expected a result of device_mapping"):
        planner.certify(planner.load("torus2d"), result)


@pytest.fixture
def _uncertified(monkeypatch: pytest.MonkeyPatch) -> None:
    """No problem has certificates."""
    monkeypatch.setattr(
        certify,
        "family_of",
        lambda instance: replace(family_of(instance), entries={**family_of(instance).entries, "certificates": None}),
    )


@pytest.mark.usefixtures("_uncertified")
def test_problems_without_certificates_say_so() -> None:
    other = planner.load("torus2d")
    found = planner.certify(other, planner.solve(other))
    assert (found.content, found.text, found.result.certificate) == (None, "", None)
    assert found.result.reason.endswith("uncertified: device_mapping has no certificates yet")
    with pytest.raises(planner.UsageError, match="a problem that has certificates"):
        planner.verify(other, {})


def test_commands(tmp_path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["bert32", "--first", "9", "--devices", "8", "--max-dp", "3", "--tp", "1,2"]
    assert main(["certify", *given, "--out", "a.json", "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["certificate"]["kind"] == "labels"
    assert result["certificate"]["bytes"] == len((tmp_path / "a.json").read_text())
    assert main(["verify", *given, "a.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"accepted", "problem", "kind", "objective", "bound", "unit", "reason", "seconds"}
    assert found["accepted"] and found["problem"] == "stage_partitioning"
    assert main(["solve", *given, "--exact", "--certificate", "b.json.gz", "--out", "p.json", "--json", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["verify", *given, "b.json.gz"]) == 0
    assert capsys.readouterr().out.startswith("accepted: every plan takes more than ")
    assert main(["verify", *given[:-1], "1", "a.json"]) == 1
    assert capsys.readouterr().out == "rejected: instance: the certificate is of another one\n"
    assert main(["verify", *given, "p.json"]) == 2
    assert capsys.readouterr().err.startswith("p.json: format is missing; expected a certificate")
    assert main(["certify", *given, "--memory", "1MB", "--out", "none.json", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "infeasible"
    assert main(["verify", *given, "--memory", "1MB", "none.json"]) == 0
    assert capsys.readouterr().out == "accepted: there is no plan\n"


def test_certify_ends_with_the_command_that_checks_its_file(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "a certificate.json")
    given = ["chain8", "--memory", "40MB", "--max-dp", "2", "--method", "exact", "--quiet", "--out", file]
    assert main(["certify", *given]) == 0
    *_, said, command = capsys.readouterr().out.splitlines()
    assert said == f"written {file}; this checks it with exact numbers and no solver:"
    program, *words = shlex.split(command)
    assert program == "planner" and main(words) == 0 and "--max-dp" in words
    assert capsys.readouterr().out.startswith("accepted: every plan takes more")
    assert main(["certify", "chain8", "--require", "num_stages <= 3", "--out", file]) == 3
    assert f"--out {file}: there is nothing to write: uncertified: " in capsys.readouterr().err


def test_check_says_that_it_looks_at_the_plan_only(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    result = planner.solve(planner.load("chain8"), method="exact").to_json()
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(result | {"bound": result["objective"]}))
    assert main(["check", "chain8", str(forged)]) == 0
    assert "only the plan was checked" in capsys.readouterr().err


@pytest.mark.usefixtures("_uncertified")
def test_uncertified_writes_nothing_and_ends_with_3(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c.json"
    assert main(["certify", "torus2d", "--out", str(out), "--json", "--quiet"]) == 3
    assert json.loads(capsys.readouterr().out)["certificate"] is None
    assert not out.exists()
    assert main(["solve", "torus2d", "--certificate", str(out), "--quiet"]) == 0
    assert not out.exists()
    assert main(["verify", "torus2d", str(out)]) == 2
