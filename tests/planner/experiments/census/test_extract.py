"""Extracted instances: the rows are the subproblems, in both kinds of files."""

import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from strategies import random_stage_instance

import planner
from formulations.stage_partitioning import FAMILY
from formulations.stage_partitioning.questions.studies.subproblems import Subproblems
from instances.errors import InstanceError
from instances.problems.stage_partitioning import StageInstance
from planner.cli.app import main
from planner.experiments.census.extract import extract
from planner.experiments.census.knapsacks import chunks_of, draw_sample
from planner.files.rows import split_row
from planner.files.write import as_json

SUFFIXES = ["jsonl", "parquet"]


@pytest.fixture
def suffix(request: pytest.FixtureRequest) -> str:
    if request.param == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return str(request.param)


@pytest.fixture(params=["int", "str"])
def instance(request: pytest.FixtureRequest) -> StageInstance:
    """A few hundred subproblems, some dozens of them non-trivial, and nodes with several TMPCs."""
    found = (random_stage_instance(seed, max_nodes=4, memory="tight", ids=request.param) for seed in range(500))
    return next(each for each in found if 100 < _count(each, False) < 300 and _count(each, True) > 30)


def _count(instance: StageInstance, nontrivial: bool) -> int:
    calls = Subproblems(instance)
    return calls.count(1, calls.num_downsets, nontrivial=nontrivial)


@pytest.mark.parametrize("suffix", SUFFIXES, indirect=True)
def test_rows_are_the_instances(instance: StageInstance, suffix: str, tmp_path: Path) -> None:
    calls, out = Subproblems(instance), str(tmp_path / f"all.{suffix}")
    for nontrivial in (False, True):
        last = calls.num_downsets
        count = calls.count(1, last, nontrivial=nontrivial)
        expected = calls.pick(1, last, range(count), nontrivial=nontrivial)
        assert extract(instance, out, nontrivial=nontrivial) == len(expected) > 30
        for row in (0, 1, len(expected) // 2, len(expected) - 1):
            assert planner.load(f"{out}#{row}") == calls.knapsack(expected[row])
        with pytest.raises(InstanceError, match=f"row is {len(expected)}"):
            planner.load(f"{out}#{len(expected)}")


@pytest.mark.parametrize("suffix", SUFFIXES, indirect=True)
def test_blocks_do_not_show(instance: StageInstance, suffix: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("planner.experiments.census.extract._BLOCK", 7)
    rows = extract(instance, str(tmp_path / f"some.{suffix}"), sample=20, seed=3)
    monkeypatch.undo()
    assert rows == extract(instance, str(tmp_path / "whole.jsonl"), sample=20, seed=3) == 20
    for row in range(rows):
        assert planner.load(tmp_path / f"some.{suffix}#{row}") == planner.load(tmp_path / f"whole.jsonl#{row}")


def test_samples(instance: StageInstance, tmp_path: Path) -> None:
    def drawn(seed: int, sample: int | None) -> list[str]:
        extract(instance, str(tmp_path / "drawn.jsonl"), sample=sample, seed=seed)
        return (tmp_path / "drawn.jsonl").read_text().splitlines()

    everything = drawn(0, None)
    assert drawn(0, len(everything) + 5) == everything
    assert drawn(1, 9) == drawn(1, 9) != drawn(2, 9)
    assert len(set(drawn(1, 9))) == 9 and set(drawn(1, 9)) <= set(everything)
    assert drawn(1, 0) == []
    with pytest.raises(planner.UsageError, match="--sample"):
        drawn(1, -1)


def test_files_are_as_readable_as_others(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    extract(planner.load("chain8"), str(tmp_path / "rows.jsonl"), sample=1)
    assert (tmp_path / "rows.jsonl").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_every_instance_has_the_same_chance(instance: StageInstance) -> None:
    calls = Subproblems(instance)
    ranges = chunks_of(calls.num_downsets)
    counts = [calls.count(*each, nontrivial=True) for each in ranges]
    half, tries = sum(counts) // 2, 200
    drawn = [list(draw_sample(calls, ranges, counts, half, seed, nontrivial=True)) for seed in range(tries)]
    assert all(len(set(each)) == half for each in drawn)
    everything = calls.pick(1, calls.num_downsets, range(sum(counts)), nontrivial=True)
    for origin in (everything[0], everything[half], everything[-1]):
        assert 0.35 * tries < sum(origin in each for each in drawn) < 0.65 * tries


def test_command(instance: StageInstance, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem, out = tmp_path / "problem.json", tmp_path / "rows.jsonl"
    problem.write_text(as_json(FAMILY.to_json(instance)))
    arguments = ["extract", str(problem), "--problem", "tmpc_knapsack", "--out", str(out)]
    assert main([*arguments, "--sample", "6", "--seed", "1", "--nontrivial", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 6 == len(out.read_text().splitlines())
    assert main(["solve", f"{out}#5", "--exact", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["status"] == "optimal" and shown["verified"] is True
    assert main(["solve", f"{out}#5", "--out", str(out)]) == 2  # never over its own source
    assert main([*arguments, "--memory", "0"]) == 0  # nothing is left of what needs memory, but it is counted


def test_other_families_have_nothing_to_extract(tmp_path: Path) -> None:
    extract(planner.load("chain8"), str(tmp_path / "rows.jsonl"), sample=1)
    with pytest.raises(planner.UsageError, match="stage_partitioning"):
        extract(planner.load(tmp_path / "rows.jsonl#0"), str(tmp_path / "more.jsonl"))


def test_rows_of_bad_files(tmp_path: Path) -> None:
    for name, suffix in product(("missing", "garbage"), SUFFIXES):
        path = tmp_path / f"{name}.{suffix}"
        if name == "garbage":
            path.write_bytes(b"\x80PAR1 is what this is not")
        if suffix == "parquet":
            pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        with pytest.raises(InstanceError, match=name):
            planner.load(f"{path}#0")
    with pytest.raises(InstanceError, match="#0"):
        planner.load(tmp_path / "garbage.parquet")
    assert extract(planner.load("chain8"), str(tmp_path / "none.parquet"), sample=0) == 0
    with pytest.raises(InstanceError, match="row is 0; expected nothing: it has no rows"):
        planner.load(tmp_path / "none.parquet#0")
    assert split_row("a#1") == ("a#1", None)
    (tmp_path / "odd.jsonl#1").write_text("{}")
    assert split_row(str(tmp_path / "odd.jsonl#1"))[1] is None


def test_without_pyarrow_there_is_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(planner.UsageError, match=r"\.jsonl"):
        extract(planner.load("chain8"), str(tmp_path / "rows.parquet"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "rows.parquet").touch()
    with pytest.raises(planner.UsageError, match="columnar"):
        planner.load(tmp_path / "rows.parquet#0")
