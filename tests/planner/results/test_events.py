"""Gap over time: events arrive in order, are written as they come, and end with what was verified."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from small_instances import random_case

import planner
from formulations import FAMILIES
from planner.cli.app import main
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
