"""What a result rests on, and the keys that every JSON object has whatever the options."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli.app import main
from planner.process.streams import INTERRUPTED


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, object]:
    assert main([*arguments, "--json"]) == code
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_fingerprints_are_those_of_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = shown(capsys, "solve", "layers", "--layers", "6", "--stages", "2", "--exact")
    made = result["fingerprint"]
    assert isinstance(made, dict) and set(made) == {"instance", "plan", "versions"}
    planner.save(planner.load("layers", layers=6, stages=2), tmp_path / "a.json")
    assert made["instance"] == hashlib.sha256((tmp_path / "a.json").read_bytes().rstrip(b"\n")).hexdigest()
    assert made["plan"] == hashlib.sha256(json.dumps(result["plan"]).encode()).hexdigest()
    assert made["versions"]["dnn-planner"] == planner.__version__
    results = [
        planner.solve(instance, method="uniform")
        for instance in (planner.load(tmp_path / "a.json"), planner.load("layers", layers=6, stages=3))
    ]
    again, other = (result.to_json()["fingerprint"] for result in results)  # both instances are alive
    assert isinstance(again, dict) and isinstance(other, dict)
    assert again["instance"] == made["instance"] != other["instance"] and again["versions"] == other["versions"]


def test_what_has_no_plan_or_no_instance() -> None:
    result = planner.solve(planner.load("chain8", memory=1), exact=True)
    made = result.to_json()["fingerprint"]
    assert isinstance(made, dict) and made["plan"] is None and made["instance"] is not None
    assert replace(result, of=None).to_json()["fingerprint"] is None
    assert set(json.loads(INTERRUPTED)) == set(result.to_json())


def test_models_have_all_keys_without_root_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, "model", "layers", "--layers", "4", "--stages", "2", "--method", "milp")
    assert (found["root_bound"], found["root_seconds"], found["files"]) == (None, None, [])


@pytest.mark.parametrize("option", ["--alternatives=2", "--within=1%", "--pareto=time,memory"])
def test_questions_beside_the_optimum_imply_exact(capsys: pytest.CaptureFixture[str], option: str) -> None:
    found = shown(capsys, "solve", "chain8", option)
    assert found["complete"] and (found["claim"], found["status"]) == ("exact", "optimal")


def test_files_that_are_no_certificates_are_refused_by_the_missing_field(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "plan.json").write_text('{"lengths": [4, 4]}')
    assert main(["verify", "layers", str(tmp_path / "plan.json")]) == 2
    assert "plan.json: format is missing; expected a certificate" in capsys.readouterr().err
