"""The register of claims, and the command that examines one."""

import json
import re
from pathlib import Path

import pytest
from paths import ROOT

from planner.cli.app import main
from planner.display.reproduction import show_reproduction
from planner.process.errors import UsageError
from planner.reproduction import CLAIMS, Evidence
from planner.reproduction.claim import meets
from planner.reproduction.reproduce import Reproduction, claims_listing, reproduce
from planner.reproduction.verdicts import CPU_S, KINDS, verdict_of


def test_names_are_unique() -> None:
    names = [claim.name for claim in CLAIMS]
    assert len(names) == len(set(names)) and all(claim.summary and claim.paper for claim in CLAIMS)


def test_a_folder_without_the_inputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--inputs is .*bert32a100\.json"):
        reproduce("piper-fig-4", inputs=str(tmp_path))


def test_what_is_met_and_compared_are_counted_apart() -> None:
    evidence = Evidence(({"here": 1.0},), "published", compared=3, matched=2, notes=("a",), figures={"calls": 7})
    found = Reproduction(CLAIMS[0], evidence, 0.5).to_json()
    assert found == {
        "claim": CLAIMS[0].name, "paper": CLAIMS[0].paper, "inputs": "published", "compared": 3, "matched": 2,
        "rows": [{"here": 1.0}], "notes": ["a"], "tables": None, "seconds": 0.5, "calls": 7,
        "verdict": verdict_of(CLAIMS[0].name).to_json(),
    }  # fmt: skip


def test_the_command_lists_the_claims(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == claims_listing()
    assert main(["reproduce", "--list"]) == 0
    printed = capsys.readouterr().out
    assert all(claim.name in printed for claim in CLAIMS)
    assert {verdict_of(claim.name).says for claim in CLAIMS} == {
        kind for kind in KINDS.values() if f" {kind} " in printed
    }


def test_a_verdict_is_said_first_and_ten_rows_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rows = tuple({"setting": f"row {number}"} for number in range(12))
    found = Reproduction(CLAIMS[0], Evidence(rows, "published"), 0.5)
    show_reproduction(found)
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{found.verdict.says}: {found.verdict.claim}")
    assert sum("row " in line for line in others) == 10 and others[-1] == "10 of 12 rows; all with --full"
    show_reproduction(found, full=True)
    assert sum("row " in line for line in capsys.readouterr().out.splitlines()) == 12


@pytest.mark.parametrize(
    ("found", "printed", "met"),
    [
        (17.01672, "17.0167", True), (17.01676, "17.0167", False), (7.838028, "7.83803", True),
        (10.26, "10.26", True), (10.264, "10.26", True), (10.266, "10.26", False), (0.021238, "0.021238", True),
        (None, None, True), (None, "1.5", False), (1.5, None, False),
    ],
)  # fmt: skip
def test_printed_precision(found: float | None, printed: str | None, met: bool) -> None:
    assert meets(found, printed) is met


def test_optima_of_a_claim_are_certified_into_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "proofs"
    given = ["reproduce", "piper-fig-4", "--quiet", "--json"]
    assert main([*given, "--certify", str(folder)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert f"certified in {folder}: 2 of 2" in found["notes"]
    files = {each["file"] for each in found["certificates"]}
    assert files == {str(path) for path in folder.glob("*.certificate.json")} and len(files) == 2
    for file in files:
        instance = file.rpartition("-")[0] + ".instance.json"
        assert main(["verify", instance, file]) == 0


def test_what_a_claim_takes_is_what_its_finding_states() -> None:
    """Where a finding says the CPU time of a command, that; and of no claim that there is not."""
    findings = (ROOT / "docs" / "findings.md").read_text()
    stated = re.findall(r"`planner\s+reproduce\s+([a-z0-9-]+)`\s*[(,]\s*(\d+)\s+(?:s of )?CPU", findings)
    assert len(stated) >= 10 and all(CPU_S.get(name, int(s)) == int(s) for name, s in stated)
    assert {claim.name for claim in CLAIMS} >= set(CPU_S)
