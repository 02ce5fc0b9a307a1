"""Gap over time: events arrive in order, are written as they come, and end with what was verified."""

import hashlib
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_instances import random_case

import planner
from formulations import FAMILIES
from planner.cli.app import main
from planner.process.streams import INTERRUPTED
from planner.results.events import Event, EventFile


@pytest.mark.parametrize("method", ["exact", "cpsat", "milp"])
def test_incumbents_fall_and_bounds_rise_until_they_meet(method: str) -> None:
    received: list[Event] = []
    result = planner.solve(planner.load("chain8", memory="40MB"), method=method, listen=received.append)
    assert received and {event.method for event in received} == {method}
    for sooner, later in itertools.pairwise(received):
        assert sooner.seconds <= later.seconds
        assert sooner.objective is None or (later.objective is not None and later.objective <= sooner.objective)
        assert sooner.bound is None or (later.bound is not None and later.bound >= sooner.bound)
    assert received[-1].objective == pytest.approx(result.objective)
    assert received[-1].gap is not None and received[-1].gap <= 1e-6


def test_solve_writes_a_line_for_every_event_and_the_verified_end(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "events.jsonl"
    assert main(["solve", "chain8", "--memory", "40MB", "--exact", "--events", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) > 2
    assert all("status" not in line for line in lines[:-1])
    assert {name: lines[-1][name] for name in ("objective", "bound", "gap", "status", "stop", "method")} == {
        name: result[name] for name in ("objective", "bound", "gap", "status", "stop", "method")
    }


def test_crosscheck_names_the_method_of_every_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert main(["crosscheck", "chain8", "--methods", "exact,cpsat", "--events", str(path), "--json"]) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["method"] for line in lines if "status" in line] == ["exact", "cpsat"]
    assert {line["method"] for line in lines} == {"exact", "cpsat"}


def test_who_else_listens_hears_the_same() -> None:
    received: list[Event] = []
    event = Event("p", "i", "m", 0.5, 2.0, 1.0)
    EventFile(None, received.append).listen(event)
    assert received == [event] and event.gap == 0.5


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_is_heard_last_is_the_result(family: Any) -> None:
    """Of every method of every problem, feasible or not: the bound that an answer brings is heard, too."""
    heard: dict[str, Event] = {}
    for number in range(9):
        instance = random_case(family.name, 5, number)
        report = planner.crosscheck(
            instance, limits=planner.Limits(time_s=5), listen=lambda event: heard.update({event.method: event})
        )
        for result in report.results:
            nothing = Event("", "", "", 0.0, None, None)
            last = heard.pop(result.method, nothing)
            assert (last.objective, last.bound) == (result.objective, result.bound), result.method
        if any(result.verified for result in report.results):
            return
    raise AssertionError("no instance has a plan")


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
