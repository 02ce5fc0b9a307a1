"""Pictures in the terminal, and of differences and tables: no wider than what they are shown on, and true."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from thinned import thinned

import planner
from formulations.contract.figures.plan_figures import Item, Strip, stages_of
from planner.cli.app import main
from planner.display.differences import match_colours
from planner.display.progress import note
from planner.display.schedules import chrome_trace, text_gantt
from planner.display.strips import cells, sparkline, strip_lines
from planner.files.load import family_of
from planner.results.events import Event


def strip(sizes: list[float], decisive: int = 0) -> Strip:
    times = [2.0 if stage == decisive else 1.0 for stage in range(len(sizes))]
    items = [Item(f"l{stage}", stage, size) for stage, size in enumerate(sizes)]
    return Strip("", items, stages_of(times, ["dp 1 x tp 2"] * len(sizes)), "time")


@pytest.mark.parametrize("width", [20, 40, 80, 120])
@pytest.mark.parametrize("count", [1, 3, 9, 30, 64])
def test_a_strip_is_as_wide_as_the_terminal_at_most(count: int, width: int) -> None:
    for decisive in (0, count - 1):
        lines = strip_lines(strip([1.0] * count, decisive), width)
        assert bool(lines) == (2 * count <= width - 1)
        assert all(line.cell_len <= width for line in lines)
        if lines:
            above, below = (line.plain for line in lines)
            assert below.count("|") == count + 1 and "bottleneck" in above
            at = above.index("▼")
            owner = below[: at + 1].count("|") - 1
            assert abs(owner - decisive) <= 1 + 13 * 2 // max(1, width // count)


def test_a_strip_has_colours_only_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = strip_lines(strip([1.0, 3.0]), 40)
    shown = Console(width=40, force_terminal=True, color_system="truecolor", _environ={})
    with shown.capture() as coloured:
        shown.print(lines[1])
    assert "\x1b[" in coloured.get() and "48;2;0;63;136" in coloured.get()
    plain = Console(width=40, force_terminal=True, _environ={"NO_COLOR": "1", "TERM": "xterm-256color"})
    with plain.capture() as bare:
        plain.print(lines[1])
    assert "48;" not in bare.get() and "|1 dp 1" in bare.get()


def test_columns_are_shared_in_proportion() -> None:
    assert sum(cells([1.0, 2.0, 3.0], 61)) == 61
    assert cells([], 10) == [] and cells([0.0, 0.0], 10) == [5, 5]
    uneven = cells([100.0, *[0.1] * 20], 60)
    assert sum(uneven) == 60 and min(uneven) == 2, "the wide ones make room for the narrow ones"


def test_a_sparkline_falls_with_the_gap() -> None:
    events = [Event("p", "i", "m", s, 10.0, 10.0 - gap) for s, gap in ((0.0, 8.0), (1.0, 4.0), (2.0, 0.0))]
    line = sparkline(events, 9)
    assert len(line) == 9 and line[0] == "█" and line[-1] == "▁" and list(line) == sorted(line, reverse=True)
    assert sparkline(events[:1]) == ""


def test_a_solved_chain_shows_its_strip(capsys: Any) -> None:
    assert main(["solve", "chain8", "--quiet"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1].startswith("|0 dp 1 x tp 2") and "▼ bottleneck" in shown[-2]
    assert max(map(len, shown)) <= 160


def test_plans_that_planner_wrote_are_compared_and_drawn(tmp_path: Path, capsys: Any) -> None:
    """What a plan file records of its instance is no decision."""
    files = []
    for method in ("exact", "equi"):
        files.append(str(tmp_path / f"{method}.json"))
        assert main(["solve", "chain8", "--devices", "4", "--method", method, "--quiet", "--out", files[-1]]) == 0
    capsys.readouterr()
    target = tmp_path / "both.png"
    assert main(["diff", *files, "chain8", "--devices", "4", "--plot", str(target)]) == 0
    assert "devices" not in capsys.readouterr().out
    assert target.read_bytes().startswith(b"\x89PNG")


def test_stages_of_two_plans_share_colours_where_they_share_nodes() -> None:
    first, second = list("00112233"), list("00011223")
    own, other = match_colours(first, second)
    assert own == {"0": 0, "1": 1, "2": 2, "3": 3}
    assert other["0"] == 0 and len(set(other.values())) == 4
    assert match_colours(["0", None], [None, "5"]) == ({"0": 0}, {"5": 1})


def test_a_frontier_is_a_heat_map_with_its_best_entry_marked() -> None:
    from planner.analysis.frontier import frontier

    found = frontier(planner.load("chain8", devices=3, microbatches=3))
    picture = found.heat
    assert picture.best is not None and picture.values == found.times
    row, column = picture.best
    known = [value for line in picture.values for value in line if value is not None]
    assert picture.values[row][column] == min(known) and None in picture.values[0] + picture.values[1]


def test_pictures_are_made_when_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are printed by every run, and simulations are not for free."""
    instance = planner.load("chain8")
    plan = family_of(instance).plan_from_json(instance, planner.solve(instance).plan)
    monkeypatch.setattr("formulations.stage_partitioning.definition.plan_figures.steady", None)
    found = family_of(instance).breakdown(instance, plan)
    assert found.rows and found.strip is not None and found.strip().items
    with pytest.raises(TypeError):
        _ = found.pictures


@thinned("width", [40, 60, 80])
def test_nothing_is_wider_than_the_terminal(width: int, monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    for name, value in (("COLUMNS", str(width)), ("NO_COLOR", "1"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    instance = ["chain8", "--memory", "80MB"]
    plans = [str(tmp_path / f"{method}.json") for method in ("exact", "equi")]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for method, plan in zip(("exact", "equi"), plans, strict=True):
        assert main(["solve", *instance, "--method", method, "--out", plan, "--quiet"]) == 0
    assert main(["diff", *plans, *instance]) == 0
    assert main(["frontier", *instance, "--quiet"]) == 0
    shown = [Text.from_ansi(line).plain for line in capsys.readouterr().out.splitlines()]
    assert max(map(cell_len, shown)) <= width and len(shown) > 30
    text = " ".join(" ".join(shown).split())
    assert "slowest stage is" in text and "the plans are the same" in text, "all of it is there"
    note(False, "warning: " + 30 * "word ")
    assert capsys.readouterr().err.count("\n") == 1, "a file or a pipe has whole lines"


def test_in_a_pipe_lines_have_no_blanks_at_their_ends(capsys: pytest.CaptureFixture[str]) -> None:
    for given in (
        ["list"],
        ["solve", "chain8", "--method", "exact", "--quiet"],
        ["model", "chain8", "--method", "milp"],
    ):
        assert main(given) == 0
        lines = capsys.readouterr().out.split("\n")
        assert len(lines) > 8 and lines[-1] == "" and all(line == line.rstrip() for line in lines), given


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


def test_solve_writes_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    assert main(["solve", "schedule-chain", "--method", "1f1b", "--trace", str(trace)]) == 0
    assert "0 |00112233" in capsys.readouterr().out
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 64
