"""The library: its instances are made byte for byte, what is known is verified, and nothing unverified gets in."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import formulations
import planner
from instances.errors import InstanceError
from planner.cli.app import main
from planner.experiments.library import entries, submit
from planner.experiments.library.entries import BestKnown, LibraryEntry, Origin, best_known
from planner.experiments.library.score import Score, ScoredRun, score
from planner.files.write import as_json
from planner.process.errors import CrosscheckError, UsageError
from planner.results.check import agree, check
from solvers.outcome import Limits

ALL, CERTIFICATES = entries.entries(), entries.certificates()
#: Tests of every run make and check each so many-th instance; the slow ones all of them.
_STRIDE = 61
FORMULATIONS = Path(formulations.__file__).parent
SAMPLE = [each for place, each in enumerate(ALL.values()) if place % _STRIDE == 0]


def test_the_manifest_has_all_problems_and_nothing_twice() -> None:
    assert len(ALL) >= 340
    problems = {folder.name for folder in FORMULATIONS.iterdir() if list(folder.glob("definition*"))}
    assert {each.problem for each in ALL.values()} == problems - {"serving_strategy"} and len(problems) == 15
    assert len({each.sha256 for each in ALL.values()}) == len(ALL)
    assert set(best_known()) <= set(ALL) and set(CERTIFICATES) <= set(best_known())
    files = {path.name for path in (entries.FOLDER / "files").iterdir()}
    assert files == {each.instance for each in ALL.values() if each.instance.endswith(".json")}


def _expect_right(each: LibraryEntry) -> None:
    made, known = each.make(), best_known().get(each.name)
    assert planner.solve(made, limits=Limits(time_s=0.0)).problem == each.problem
    if known is not None:
        verdict = check(made, known.plan)
        assert verdict.objective is not None and agree(verdict.objective, known.objective), each.name
        assert verdict.unit == known.unit
        assert known.bound is None or known.bound <= known.objective * (1 + 1e-9)
        assert (known.proof == entries.CERTIFICATE) == (each.name in CERTIFICATES)
    if each.name in CERTIFICATES:
        assert known is not None
        verdict_of_proof = planner.verify(made, CERTIFICATES[each.name])
        assert verdict_of_proof.accepted and verdict_of_proof.bound == known.bound, each.name


@pytest.mark.parametrize("each", SAMPLE, ids=lambda each: each.name)
def test_instances_are_the_same_bytes_and_plans_are_what_they_claim(each: LibraryEntry) -> None:
    _expect_right(each)


@pytest.mark.slow
def test_all_instances_and_plans() -> None:
    for each in ALL.values():
        _expect_right(each)


@pytest.mark.slow
def test_instances_are_the_same_bytes_on_a_processor_without_fused_multiplication() -> None:
    """Roots, powers and logarithms come from other code there, and differ in their last bits."""
    made = "from planner.experiments.library.entries import entries; print(len([e.make() for e in entries().values()]))"
    older = {"NPY_DISABLE_CPU_FEATURES": "X86_V3", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-FMA,-FMA4"}
    done = subprocess.run([sys.executable, "-c", made], env=os.environ | older, capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == (str(len(ALL)), 0), done.stderr


def test_an_instance_that_is_made_otherwise_is_refused() -> None:
    with pytest.raises(InstanceError, match="this version makes another instance than planlib-1 means"):
        replace(ALL["chain8"], settings={"devices": 3}).make()


@pytest.fixture(scope="module")
def solved() -> dict[str, Any]:
    return planner.solve(ALL["chain8"].make(), method="exact").to_json()


@pytest.fixture(scope="module")
def worse() -> dict[str, Any]:
    return planner.solve(ALL["chain8"].make(), method="equi-no-tp").to_json()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_what_is_better_is_kept_and_what_is_no_better_is_refused(
    folder: Path, solved: dict[str, Any], worse: dict[str, Any]
) -> None:
    first = submit.submit({**worse, "bound": None}, folder=folder)
    assert first.new == ("plan",) and first.before is None and not first.known.is_optimal
    second = submit.submit(solved, folder=folder)
    assert second.new == ("plan", "bound") and second.known.is_optimal and second.before == first.known
    assert best_known(folder) == {"chain8": second.known}
    for again in (solved, worse):
        with pytest.raises(UsageError, match=r"expected a plan below 0\.0273 s, or a bound above"):
            submit.submit(again, folder=folder)
    assert best_known(folder) == {"chain8": second.known}


def test_the_plan_is_judged_whatever_the_result_says(folder: Path, solved: dict[str, Any]) -> None:
    lie = submit.submit({**solved, "objective": 0.001}, folder=folder)
    assert lie.known.objective == solved["objective"]
    stages = [dict(stage) for stage in solved["plan"]["stages"]][:-1]
    with pytest.raises(UsageError, match="expected a plan that keeps the rules"):
        submit.submit({**solved, "plan": {**solved["plan"], "stages": stages}}, folder=folder)
    with pytest.raises(UsageError, match="a result of an instance of the library"):
        submit.submit({**solved, "fingerprint": {"instance": "0" * 64}}, folder=folder)


@pytest.mark.parametrize("change", [{"fingerprint": "x"}, {"fingerprint": None}, {"plan": None}, {"plan": 3}])
def test_what_is_no_result_is_refused(folder: Path, solved: dict[str, Any], change: dict[str, Any]) -> None:
    with pytest.raises((UsageError, InstanceError)):
        submit.submit({**solved, **change}, folder=folder)
    assert not best_known(folder)


@pytest.mark.parametrize("bound", ["0.0273", float("nan"), float("-inf"), None, []])
def test_a_bound_that_is_no_number_is_none(folder: Path, solved: dict[str, Any], bound: Any) -> None:
    assert submit.submit({**solved, "bound": bound, "seconds": bound}, folder=folder).known.bound is None


def test_a_bound_of_a_heuristic_is_no_proof_and_a_false_one_is_loud(
    folder: Path, solved: dict[str, Any], worse: dict[str, Any]
) -> None:
    found = submit.submit({**worse, "bound": worse["objective"], "proved_by": "search"}, folder=folder)
    assert found.known.bound is None
    for prover in (worse["method"], "equi", []):  # heuristics prove nothing, neither this one nor another
        with pytest.raises(UsageError, match="expected a plan below"):
            submit.submit({**worse, "bound": 0.02, "proved_by": prover}, folder=folder)
    with pytest.raises(CrosscheckError, match=r"chain8: the bound 0\.03 by exact lies above the plan"):
        submit.submit({**solved, "bound": 0.03}, folder=folder)
    assert best_known(folder)["chain8"] == found.known


def test_a_certificate_of_a_loose_bound_leaves_a_proved_optimum(
    folder: Path, solved: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = submit.submit(solved, folder=folder)
    loose = SimpleNamespace(accepted=True, bound=0.9 * solved["objective"])
    monkeypatch.setattr(submit, "verify", lambda *_: loose)
    with pytest.raises(UsageError, match="expected a plan below"):
        submit.submit(solved, {}, folder=folder)
    assert best_known(folder)["chain8"] == claimed.known


def test_a_certificate_replaces_a_claim_and_a_forged_one_nothing(folder: Path, solved: dict[str, Any]) -> None:
    instance = ALL["chain8"].make()
    content = planner.certify(instance, planner.solve(instance, method="exact")).content
    assert content is not None
    claimed = submit.submit(solved, folder=folder)
    certified = submit.submit(solved, content, folder=folder)
    assert (claimed.known.proof, certified.known.proof, certified.new) == ("search", "certificate", ("certificate",))
    assert certified.known.proved_by == claimed.known.proved_by
    with pytest.raises(UsageError, match="expected a plan below"):  # of an optimum a claim replaces no certificate
        submit.submit({**solved, "bound": 0.0273}, folder=folder)
    assert entries.certificates(folder) == {"chain8": content}
    forged = {**content, "instance_sha256": "0" * 64}
    large = {**content, "more": " " * submit.MOST_BYTES}
    for wrong, why in ((forged, "expected a certificate that is accepted"), (large, "expected at most 6,000 bytes")):
        with pytest.raises(UsageError, match=why):
            submit.submit(solved, wrong, folder=folder)
    with pytest.raises(UsageError, match="expected a plan of at most 250,000 bytes"):
        submit.submit({**solved, "plan": {**solved["plan"], "more": " " * submit.MOST_OF_PLAN}}, folder=folder)
    assert entries.certificates(folder) == {"chain8": content}


def test_a_certificate_that_rounds_more_replaces_the_claim_of_an_optimum(folder: Path, solved: dict[str, Any]) -> None:
    instance = ALL["chain8"].make()
    least = planner.solve(instance, method="exact")
    content = planner.certify(instance, replace(least, bound=0.0273 * (1 - 1e-7))).content
    submit.submit({**solved, "bound": 0.0273}, folder=folder)
    certified = submit.submit(solved, content, folder=folder).known
    assert certified.proof == "certificate" and certified.is_optimal and 0.0273 > (certified.bound or 0) > 0.027299


def test_a_bound_that_is_greater_than_a_certified_one_takes_its_certificate_away(
    folder: Path, solved: dict[str, Any]
) -> None:
    instance = ALL["chain8"].make()
    found = planner.solve(instance, method="exact")
    content = planner.certify(instance, replace(found, bound=0.02)).content
    assert content is not None
    first = submit.submit({**solved, "bound": None}, content, folder=folder)
    assert first.new == ("plan", "bound") and first.known.proof == "certificate"
    assert submit.submit(solved, folder=folder).known.proof == "search" and not entries.certificates(folder)


def _known(objective: float, bound: float | None) -> BestKnown:
    origin = Origin("exact", 0.5, "2026-11-26", "a machine", {})
    return BestKnown("chain8", objective, "s", {}, origin, bound, None if bound is None else "search", origin)


def _score(*rows: ScoredRun, known: Mapping[str, BestKnown], time_limit_s: float | None = 4.0) -> Score:
    features = {row.name: {"size": 8, "memory_pressure": 0.5} for row in rows}
    return Score(rows, features, time_limit_s, 0.1, "2026-11-26", "a machine", {}, known=known)


def test_standings_count_what_is_proved_and_what_is_only_best() -> None:
    proved, open_ = _known(2.0, 2.0), _known(4.0, 1.0)
    assert (proved.difficulty, open_.difficulty) == ("second", "open")
    known = {"chain8": proved, "diamond": open_, "gpt-k8-80GB": open_, "bert32-k32-8GiB": proved}
    objectives = {"chain8": 2.0, "bert32-k32-8GiB": 3.0, "diamond": 3.0, "gpt-k8-80GB": None, "bert-k8": 7.0}
    rows = [ScoredRun(name, "mine", objective, 1.5) for name, objective in objectives.items()]
    found = _score(*rows, known=known)
    judged = {each["instance"]: each["rows"]["mine"] for each in found.records()}
    assert {name: row["loss"] for name, row in judged.items()} == {
        **{"chain8": 0.0, "bert32-k32-8GiB": 0.5, "diamond": -0.25, "gpt-k8-80GB": None, "bert-k8": None}
    }
    assert [row["outcome"] for row in judged.values()] == ["optimal", "suboptimal", "open", "no_plan", "open"]
    each = found.standings()["mine", "stage_partitioning"]
    assert (each.instances, each.plans, each.optimal, each.best, each.suboptimal) == (5, 4, 1, 3, 1)
    assert (each.mean_loss, each.worst_loss, each.seconds) == (pytest.approx(0.25 / 3), 0.5, 7.5)
    assert "all" not in {problem for _, problem in found.standings()}


def test_a_primal_integral_counts_the_time_without_a_plan_and_how_far_plans_are() -> None:
    known = {"chain8": _known(2.0, 2.0), "diamond": _known(2.0, 2.0), "bert-k8": _known(2.0, None)}
    early = ScoredRun("chain8", "mine", 2.0, 3.0, ((1.0, 4.0), (3.0, 2.0)))  # 1 of 4 s without, 2 of them at half
    late = ScoredRun("diamond", "mine", 2.0, 6.0, ((6.0, 2.0),))  # after the limit
    better = ScoredRun("bert-k8", "mine", 1.0, 0.0, ((0.0, 1.0),))  # below the best known: no gap
    judged = [each["rows"]["mine"]["primal_integral"] for each in _score(early, late, better, known=known).records()]
    assert judged == [0.5, 1.0, 0.0]
    found = _score(early, late, better, ScoredRun("gpt-k8-80GB", "mine", 9.0), known=known)
    assert found.standings()["mine", "stage_partitioning"].primal_integral == 0.5  # nothing is known of the fourth
    assert _score(early, known=known, time_limit_s=None).records()[0]["rows"]["mine"]["primal_integral"] is None


def test_losses_by_features_and_a_record_that_is_read_again() -> None:
    names = ["bert32-k32-8GiB", "bert32-k64-8GiB", "bert32-k128-8GiB", "bert32-k16-16GiB", "bert32-k64-16GiB"]
    known = {name: _known(1.0, 1.0) for name in names}
    rows = [ScoredRun(name, "mine", 1.5 if "8GiB" in name else 1.0, 0.5, ((0.5, 1.5),)) for name in names]
    found = _score(*rows, ScoredRun("layers-l10-s3-seed0", "mine", 1.0, 1.0, reason=None), known=known)
    first, *_ = found.by("stage_partitioning")
    assert first.parameter == "memory" and first.explains["mine"] == pytest.approx(1.0)
    assert first.methods["mine"]["8GiB"].mean_loss == 0.5
    assert {each.parameter for each in found.by("stage_partitioning")} == {"memory", "devices"}  # all else is the same
    record = json.loads(as_json(found.to_json()))
    assert [each["parameter"] for each in record["by"]["stage_partitioning"]] == ["memory", "devices"]
    again = replace(Score.from_json(record), known=known)
    assert again.to_json()["standings"] == found.to_json()["standings"]
    assert ("mine", "all") in again.standings()


def test_a_score_goes_on_where_it_stopped_and_counts_what_a_method_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.experiments.library.score.calibration", lambda: 0.25)
    chosen = [ALL["chain8"], ALL["diamond"], ALL["gpt3-175b-k16384-80GB-m16384"]]
    known = {"chain8": _known(0.0273, 0.0273)}
    kept: list[Any] = []
    limits = Limits(time_s=5.0)
    first, _ = score(chosen[:2], ["equi"], limits, known, keep=kept.append)
    assert [row["rows"]["equi"]["loss"] for row in first.records()] == [0.0, None] and len(kept) == 2
    assert all(row.incumbents[-1][1] == row.objective for row in first.rows)
    again, _ = score(chosen, ["equi", "piper"], limits, known, done=kept, keep=kept.append)
    assert len(kept) == 5  # of the third only equi's
    refused = [str(row.reason) for row in again.rows if row.method == "piper" and row.objective is None]
    assert len(refused) == 1 and "at most" in refused[0]
    assert again.standings()["piper", "stage_partitioning"].plans == 2
    other, _ = score(chosen[:2], ["equi"], Limits(time_s=4.0), known, done=kept)
    assert len(other.rows) == 2  # what was run within another limit does not count
    assert again.to_json()["calibration_s"] == 0.25
    with pytest.raises(UsageError, match="method is 'nobodys'"):
        score(chosen, ["nobodys"], limits, known)


@pytest.mark.slow
def test_a_score_is_of_the_text_that_a_file_has_now(tmp_path: Path) -> None:
    mine, kept = tmp_path / "mine.py", list[Any]()
    text = "import planner\n\n\ndef solve(instance):\n    return planner.solve(instance, method={!r}).plan\n"
    for method, loss in (("equi-no-tp", 0.0256), ("exact", 0.0)):
        mine.write_text(text.format(method))
        known = {"chain8": _known(0.0273, 0.0273)}
        name = f"{mine}:solve"
        found, _ = score([ALL["chain8"]], [name], Limits(time_s=20.0), known, done=list(kept), keep=kept.append)
        assert [row["rows"][name]["loss"] for row in found.records()] == [pytest.approx(loss, abs=1e-3)]
    assert len(kept) == 2


def test_the_command_gets_shows_submits_and_scores(tmp_path: Path, solved: dict[str, Any], capsys: Any) -> None:
    result, made, out = tmp_path / "result.json", tmp_path / "chain8.json", tmp_path / "score"
    result.write_text(json.dumps(solved))
    library = ["--library", str(tmp_path)]
    assert main(["library", "get", "chain8", "--out", str(made)]) == 0
    assert planner.load(made) == ALL["chain8"].make()
    assert main(["library", "show", "chain8", *library]) == 0
    assert main(["library", "submit", str(result), *library]) == 0
    assert main(["library", "list", "--problem", "stage_partitioning", "--difficulty", "second", *library]) == 0
    arguments = ["--problem", "stage_partitioning", "--difficulty", "second", "--out", str(out), "--quiet"]
    assert main(["library", "score", "equi,exact", *arguments, *library]) == 0
    said = capsys.readouterr().out
    assert "nobody has submitted a plan" in said and "chain8: new plan and bound" in said
    assert "1 instance, 1 proved" in said and "CPU s for the calibration run" in said
    record = json.loads((out / "score.json").read_text())
    assert [row["optimal"] for row in record["standings"]] == [1, 1]
    assert (out / "table.tex").read_text().count("\\\\") == 3
    assert not list(out.glob("profile-*"))  # of two methods there is none
    assert main(["library", "certificate", "chain8", *library]) == 2  # its bound is a claim
    for wrong in (["library", "sing"], ["library", "get"], ["library", "get", "chain9"], ["library", "list", "x"]):
        assert main(wrong) == 2
