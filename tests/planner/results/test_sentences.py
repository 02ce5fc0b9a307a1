"""What a result says of itself in a few lines, for every problem."""

import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from small_instances import random_case
from thinned import thinned

import planner
from formulations import FAMILIES
from formulations.contract.figures.plan_figures import Breakdown
from planner.cli.app import main
from planner.files.load import family_of
from planner.process.streams import INTERRUPTED
from planner.results import frames
from planner.results.events import Event, EventFile
from planner.results.sentences import both_clocks, shape, stage_rows
from solvers.outcome import Status, Stop

Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("name", [family.name for family in FAMILIES])
def test_a_result_says_what_is_minimised_its_value_and_its_shape(name: str) -> None:
    cases = (random_case(name, 1, number) for number in range(20))
    results = (planner.solve(each, exact=True, limits=planner.Limits(time_s=30)) for each in cases)
    result = next(each for each in results if each.plan is not None)
    instance, family = result.of, family_of(result.of)
    assert family.minimises and family.minimised(instance) in family.minimises.values()
    first, second, clock, *table = str(result).splitlines()
    if result.clock() is None:
        table = [clock, *table]
    else:
        assert clock == f"The clock: {both_clocks(result.clock())}."
    assert first.startswith(f"{instance.name}: the least {family.minimised(instance)} is ") and "proved by" in first
    found = result.breakdown()
    assert found is not None and second.startswith(f"{len(found.rows)} {found.row}") and second.endswith(".")
    assert len(table) == 1 + len(stage_rows(result, found)) <= 1 + len(found.rows)
    assert len(stage_rows(result, found, full=True)) == len(found.rows)
    assert "None" not in f"{first}{second}" and "{" not in f"{first}{second}"


def test_equal_neighbours_are_one_row_and_what_depends_on_their_place_is_a_range() -> None:
    result = planner.solve(planner.load("bert32", devices=64, memory="8GiB"), exact=True)
    found = result.breakdown()
    assert found is not None and len(found.rows) == 30
    rows = stage_rows(result, found)
    assert [row["stage"] for row in rows] == ["0", "1-9", "10-21", "22-28", "29"]
    assert (rows[1]["nodes"], rows[1]["names"]) == ("7 .. 15 (9)", "9 x transformer layer")
    assert rows[1]["memory"] == "3.065 .. 2.705 GiB" and rows[1]["in flight"] == "29 .. 21"
    assert str(result).splitlines()[1] == (
        "30 stages, the first with 7 replicas of 2 devices, 21 on 2 devices, 8 on 1 device; stage 22 is the slowest; "
        "64 of 64 devices, fullest 7.953 of 8 GiB."
    )


def test_neighbours_on_other_devices_are_two_rows() -> None:
    result = planner.solve(planner.load("chain8"), exact=True)
    rows: list[dict[str, Any]] = [{"nodes": [0], "time": 1.0}, {"nodes": [1], "time": 1.0}]
    assert len(stage_rows(result, Breakdown(tuple(rows), degrees=[(1, 1), (1, 1)]))) == 1
    assert len(stage_rows(result, Breakdown(tuple(rows), degrees=[(1, 1), (2, 1)]))) == 2


def test_many_shapes_are_shown_by_their_ends() -> None:
    degrees = [(count, 1) for count in range(1, 7)]
    assert shape(Breakdown(({},) * 6, degrees=degrees)) == "6 stages on 1 to 6 devices"


def test_what_is_not_proved_is_not_claimed() -> None:
    result = planner.solve(planner.load("chain8"), method="equi-no-tp")
    assert str(result).splitlines()[0] == (
        "chain8: by equi-no-tp the time per sample of the slowest stage is 0.028 s (35.71 samples/s); no plan has less "
        "than 0.022 s (gap 21.4 %)."
    )
    assert "nothing is proved of others" in str(replace(result, bound=None, gap=None))
    limited = str(replace(result, stop=Stop.TIME_LIMIT)).splitlines()[0]
    assert "is 0.028 s (35.71 samples/s) within the time limit; no plan has less" in limited
    none = replace(result, objective=None, plan=None, own_plan=None, status=Status.UNKNOWN, stop=Stop.TIME_LIMIT)
    assert str(none) == "chain8: no plan was found (time_limit); no plan has less than 0.022 s."
    starved = planner.solve(planner.load("chain8", memory="10MB"), exact=True)
    assert (
        str(starved) == f"chain8: there is no plan, proved by {starved.proved_by}; 34.34 MiB a device would be enough."
    )
    assert planner.solve(planner.load("chain8", memory="34.34MiB"), exact=True).status is Status.OPTIMAL
    assert planner.solve(planner.load("chain8", memory="34.33MiB"), exact=True).status is Status.INFEASIBLE
    few = planner.solve(planner.load("bert32", devices=4, memory="2GiB"), exact=True)
    assert str(few).endswith("; 31 GiB a device or 112 devices would be enough.")


def test_a_changed_model_is_answered_in_its_own_terms() -> None:
    chain = planner.load("chain8", memory="60MB", devices=4)
    best = planner.solve(chain, exact=True).objective
    assert best is not None
    model = planner.model(chain, "milp", complete=True).at_most(1.5 * best)
    found = model.minimise(model.expression("num_devices"), unit="devices").solve(planner.Limits(time_s=60))
    first = str(found).splitlines()[0]
    assert first.startswith("chain8: the least of the changed model is 3 devices; the time per sample of the slowest")
    feasible = str(replace(found, own={**(found.own or {}), "status": "feasible", "bound": 2.0})).splitlines()[0]
    assert "the changed model has a plan of 3 devices; no plan of it has less than 2 devices; the time" in feasible


def test_the_gap_of_an_optimum_is_nothing(run: Run) -> None:
    report = planner.crosscheck(planner.load("chain8"), methods=["exact", "equi"])
    assert 0 < report.results[0].gap < 1e-6  # type: ignore[operator]
    exact, equi = str(report).splitlines()[1:3]
    assert "  0 %  " in exact and "  19.4 %  " in equi
    assert str(report).endswith("the methods agree; optimum 0.0273 s; 1 proof, no second one")


def test_search_figures_and_all_rows_are_shown_where_they_are_wanted(run: Run) -> None:
    given = ("solve", "bert32", "--devices", "64", "--memory", "8GiB")
    usual, full = (run(*given, *more)[1] for more in ((), ("--verbose", "--full")))
    assert "downsets" not in usual and "stats" in full and "knapsack_searches" in full
    assert len(usual.splitlines()) < 16 and full.count("transformer layer") >= 30
    many = run("solve", "knapsack")[1]
    assert "8 more rows: --full" in many and "more row" not in run("solve", "knapsack", "--full")[1]


def test_an_instance_prints_a_line_for_each_fact() -> None:
    shown = str(planner.load("bert32", devices=64, memory="8GiB")).splitlines()
    assert shown[0] == "bert32, an instance of stage_partitioning" and len(shown) < 12
    assert "  memory_bytes      8 GiB" in shown and "  layers            37" in shown
    assert "schedule" in str(planner.load("chain8-flushed")) and "layers" in str(planner.load("chain8-flushed"))


def test_reports_are_data_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    report = planner.crosscheck(planner.load("chain8"), methods=["exact", "equi"])
    monkeypatch.setattr(frames, "find_spec", lambda _: None)
    with pytest.raises(planner.UsageError, match=r"pandas or polars: pip install '\.\[frames\]'"):
        report.to_frame()
    monkeypatch.setattr(frames, "find_spec", find_spec)
    pytest.importorskip("pandas")
    frame = report.to_frame()
    assert list(frame["method"]) == ["exact", "equi"] and frame["loss"][0] == 0.0
    assert list(planner.to_frame([{"a": 1}, {"a": 2}])["a"]) == [1, 2]


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


@thinned("family", FAMILIES, ids=lambda family: family.name)
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
