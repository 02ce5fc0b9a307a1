"""Tables and maps of least times, by devices, sums, memory and settings of a sweep: each cell is an optimum."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import planner
from formulations.contract.figures.plan_figures import Heat, least_of
from planner.analysis.frontier import by_memory, frontier
from planner.analysis.sweep import SweepRow, heat_of
from planner.cli.app import main
from planner.display.headlines import headline
from planner.display.plots import heat
from solvers.outcome import Limits, Stop


def test_the_table_and_its_csv(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "table.csv"
    size = ["--devices", "6", "--microbatches", "4"]
    assert main(["frontier", "chain8", *size, "--memory", "60MB", "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["time_per_sample"]), len(found["time_per_sample"][0])) == (6, 4)
    optimum = planner.solve(planner.load("chain8", devices=6, microbatches=4, memory="60MB"), exact=True).objective
    assert found["time_per_sample"][-1][-1] == pytest.approx(optimum, rel=1e-9)
    two = planner.solve(planner.load("chain8", devices=6, microbatches=2, memory="60MB"), exact=True).objective
    assert found["time_per_sample"][-1][1] == pytest.approx(two, rel=1e-9) and two > optimum
    rows = list(csv.reader(out.open()))
    assert rows[0] == ["devices", "1", "2", "3", "4"] and [row[0] for row in rows[1:]] == list("123456")
    table = [[float(cell) if cell else None for cell in row[1:]] for row in rows[1:]]
    assert table == found["time_per_sample"]
    assert any(cell is None for row in table for cell in row)


def test_a_person_sees_the_best_by_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frontier", "chain8", "--devices", "5"]) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()[-4:]]
    assert [line[0] for line in lines] == ["1", "2", "4", "5"]
    found = frontier(planner.load("chain8", devices=5))
    assert lines[0][1:] == ["-", "-"] and found.times[0][-1] is None
    for k, _, sums in lines[1:]:  # the smallest sum that gives the best
        row = found.times[int(k) - 1]
        assert row[int(sums) - 1] == row[-1] and row[-1] not in row[: int(sums) - 1]


@pytest.mark.parametrize(("seconds", "memory"), [("0", "1GB"), ("1", "1")])
def test_tables_of_zeros_or_of_nothing_have_pictures(seconds: str, memory: str, capsys: Any, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    (tmp_path / "own.csv").write_text(f"time,static_bytes\n{seconds},2\n{seconds},2\n")
    given = ["--devices", "2", "--bandwidth", "1GB/s", "--microbatches", "2", "--plot", str(tmp_path / "own.svg")]
    assert main(["frontier", str(tmp_path / "own.csv"), "--memory", memory, *given]) == 0
    shown, picture = capsys.readouterr(), (tmp_path / "own.svg").read_text()
    has_plan = seconds == "0"
    assert ("no plan with up to 2 devices and a sum of degrees up to 2" in shown.out) is not has_plan
    assert not shown.err and "NaN" not in picture
    assert (">infeasible<" in picture, "Least time per sample<" in picture) == (not has_plan, has_plan)


def test_without_what_draws_there_is_no_picture(capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert main(["frontier", "chain8", "--plot", str(tmp_path / "table.png")]) == 2
    assert "pip install" in capsys.readouterr().err and not (tmp_path / "table.png").exists()


def test_a_limit_leaves_no_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "table.csv"
    assert main(["frontier", "bert32", "--devices", "512", "--time-limit", "0", "--json", "--out", str(out)]) == 3
    assert json.loads(capsys.readouterr().out)["time_per_sample"] is None and not out.exists()


SIZE = ["chain8", "--devices", "3", "--microbatches", "3", "--memory", "40MB"]


def test_each_cell_is_the_optimum_of_its_devices_and_memory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "table.csv"
    arguments = [*SIZE, "--memories", "20000001, 20000002, 80MB", "--more-devices", "1", "--out", str(out), "--json"]
    assert main(["frontier", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["devices"], found["memory_bytes"], found["stop"]) == (3, 40e6, "proved")
    assert found["memories_bytes"] == [20000001, 20000002, 40e6, 80e6]  # its own is among them
    for memory, row in zip(found["memories_bytes"], found["time_per_sample"], strict=True):
        for devices, time in enumerate(row, 1):
            instance = planner.load("chain8", devices=devices, microbatches=3, memory=memory)
            optimum = planner.solve(instance, exact=True).objective
            assert time == (None if optimum is None else pytest.approx(optimum, rel=1e-9)), (memory, devices)
    assert any(time is None for row in found["time_per_sample"] for time in row)
    rows = list(csv.reader(out.open()))
    assert rows[0] == ["devices", "20000001", "20000002", "40000000", "80000000"]
    assert [row[0] for row in rows[1:]] == list("1234")
    table = [[float(cell) if cell else None for cell in row[1:]] for row in rows[1:]]
    assert [list(each) for each in zip(*table, strict=True)] == found["time_per_sample"]


def test_the_map_marks_the_instance_and_the_least() -> None:
    instance = planner.load("chain8", devices=3, microbatches=3, memory="60MB")
    found = by_memory(instance, more_devices=2)
    assert found.memories == (30e6, 45e6, 60e6, 90e6, 120e6, 180e6) and len(found.times[0]) == 5
    picture = found.heat
    assert picture.here == (2, 2) and picture.ys[2] == 60e6 and picture.xs[2] == 3
    optimum = planner.solve(instance, exact=True).objective
    assert picture.values[2][2] == pytest.approx(optimum, rel=1e-9)
    row, column = picture.best
    assert picture.values[row][column] == min(time for each in found.times for time in each if time is not None)


def test_a_person_sees_its_own_devices_and_what_more_buys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frontier", *SIZE, "--more-devices", "3", "--memories", "80MB"]) == 0
    *_, last = lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-6:-1]] == ["1", "2", "3", "4", "6"]
    assert last.startswith("here ") and "3 more devices: " in last and "38.1 MiB more memory of a device: " in last


MAP: dict[str, Any] = {"measure": "time", "unit": "s", "yunit": "bytes"}


def _map(values: list[list[float | None]], here: tuple[int, int] | None, **more: Any) -> Heat:
    ys = [2.0**30 * (row + 1) for row in range(len(values))]
    return Heat("", range(1, 3), ys, values, "devices", "memory", best=least_of(values), here=here, **{**MAP, **more})


@pytest.mark.parametrize(
    ("values", "here", "says"),
    [
        ([[0.2, 0.1], [0.2, 0.05]], (0, 0), "here 200 ms; 1 more devices: 50 % less; 1 GiB more memory: no gain"),
        ([[None, 0.1], [None, 0.05]], (0, 0), "here infeasible; 1 more devices: 100 ms; 1 GiB more memory: infeasible"),
        ([[0.2, 0.1]], (0, 1), "here 100 ms"),
        ([[None, 0.1], [None, 0.05]], None, "least: 50 ms at devices 2, memory 2 GiB; 2 of 4 infeasible"),
        ([[None, None]], None, "2 of 2 infeasible"),
    ],
)
def test_what_a_map_says(values: list[list[float | None]], here: tuple[int, int] | None, says: str) -> None:
    assert headline(_map(values, here)) == says


def test_frames_ticks_and_what_hatches_mean() -> None:
    [chart] = heat(_map([[None, 0.1], [0.2, 0.05]], (1, 0), empty="no plan"))
    assert [name for name, *_ in chart.key] == ["frame: the least", "frame: here", "no plan"]
    cells = {(cell["x"], cell["y"]): cell for cell in chart.datasets["cells"]}
    assert {y for _, y in cells} == {"1 GiB", "2 GiB"}
    assert sorted(cell["said"] for cell in cells.values()) == ["100 ms", "200 ms", "50 ms", "no plan"]
    assert [cell["frame"] for cell in cells.values()].count("best") == 1
    assert chart.spec["layer"][0]["encoding"]["color"]["title"] == "time, ms"


def test_a_limit_leaves_no_map() -> None:
    found = by_memory(planner.load("bert32", devices=64), limits=Limits(time_s=0.0))
    assert found.times is None and found.stop is Stop.TIME_LIMIT
    assert found.heat.values == [] and found.heat.here is None and headline(found.heat) == ""


def test_a_sweep_is_a_map_above_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vl_convert")
    drawn: list[Any] = []
    monkeypatch.setattr("planner.display.pictures.save", lambda charts, *_: drawn.extend(charts))
    size = ["bert", "--layers", "2", "--devices", "2", "--batch-size", "4", "--memory", "8GiB", "--quiet"]
    more = ["--grad-accum", "1,2", "--microbatch-sizes", "1,4", "--plot", str(tmp_path / "x.svg")]
    assert main(["solve", *size, *more]) == 0
    assert [chart.title for chart in drawn][:2] == [
        "Time per sequence by micro-batch and accumulation",
        "Layers by stage",
    ]
    assert drawn[0].text.startswith("least: ") and drawn[0].text.endswith("1 of 4 no plan within the batch")


def test_cells_of_a_sweep() -> None:
    def row(g: int, b: int, time: float | None, status: str = "optimal") -> SweepRow:
        return SweepRow(g, b, 1, status, None if time is None else b * time, time, None, 0.0)

    rows = [row(1, 1, 3.0), row(2, 1, 2.0), row(1, 8, None, "infeasible")]
    found = heat_of(rows, "s")
    assert (found.xs, found.ys) == ([1, 8], [1, 2]) and found.values == [[3.0, None], [2.0, None]]
    assert found.best == (1, 0) and found.measure == "time per sequence"
    assert heat_of([*rows, row(2, 8, 1.0, "feasible")], "s").measure == "least time per sequence found"
