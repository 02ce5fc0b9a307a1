"""The command on whole tables: one JSON object, a CSV, a picture, and refusals of one line."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.analysis.frontier import frontier
from planner.cli.app import main
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


def test_from_python() -> None:
    found = frontier(planner.load("chain8", devices=3, memory="10GB"), limits=Limits(time_s=60))
    assert found.stop is Stop.PROVED and None not in found.best
    assert found.best[2] < found.best[0]
