"""Schedules as text, as a Chrome trace and as a Gantt chart."""

import json
from pathlib import Path

import pytest

from planner.cli.app import main
from planner.display.schedules import chrome_trace, text_gantt

TASKS = [[0, "F", 0, 0, 1], [1, "F", 0, 1, 2], [1, "B", 0, 2, 4], [0, "B", 0, 4.5, 6.5]]


def test_text_shows_every_pass_and_idle_time() -> None:
    first, second, legend = text_gantt(TASKS, 14)
    assert first == "0 |00.......aaaa|" and second == "1 |..00aaaa.....|"
    assert "a column is 0.5 s" in legend
    assert text_gantt([]) == []


def test_a_trace_has_an_event_for_each_pass_in_microseconds() -> None:
    events = [event for event in chrome_trace(TASKS, "test")["traceEvents"] if event["ph"] == "X"]
    assert [(e["name"], e["tid"], e["ts"], e["dur"]) for e in events][-1] == ("B0", 0, 4.5e6, 2e6)
    assert len(events) == len(TASKS)


def test_solve_writes_trace_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("vl_convert")
    trace, picture = tmp_path / "trace.json", tmp_path / "plan.png"
    assert main(["solve", "schedule-chain", "--method", "1f1b", "--trace", str(trace), "--plot", str(picture)]) == 0
    assert "0 |00112233" in capsys.readouterr().out
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 64
    assert picture.read_bytes().startswith(b"\x89PNG")
