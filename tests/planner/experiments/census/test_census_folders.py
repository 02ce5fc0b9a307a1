"""The folder of a census: it goes on from it, and refuses or repeats what is not its own."""

import json
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import planner
from formulations.stage_partitioning import FAMILY
from instances.problems.stage_partitioning import StageInstance
from planner.cli.app import main
from planner.experiments.census import census
from planner.experiments.census.knapsacks import KnapsackCensus
from planner.files.write import as_json


def totals(found: KnapsackCensus) -> dict[str, Any]:
    """What must not depend on how the census ran."""
    return {"counts": found.counts, "chunks": found.chunks_done, "variants": found.variants}


def test_resumes_from_the_chunks_that_are_there(whole: KnapsackCensus, instance: StageInstance, tmp_path: Path) -> None:
    census(instance, out=str(tmp_path), end_to_end=False)
    journal = tmp_path / "journal.jsonl"
    kept = journal.read_text().splitlines(keepends=True)[1::2]
    journal.write_text("".join(kept))
    lines: list[str] = []
    again = census(instance, out=str(tmp_path), end_to_end=False, notice=lines.append)
    assert totals(again) == totals(whole)
    assert again.chunks_found == len(kept) and str(len(kept)) in lines[0]
    assert journal.read_text().startswith("".join(kept))
    assert census(instance, out=str(tmp_path), end_to_end=False, fresh=True).chunks_found == 0


_KILLED = """
import sys, time, planner
from pathlib import Path
from planner.experiments.census.run import census

def slowly(done, chunks):
    print(done, flush=True)
    if done == 3:
        time.sleep(60)

if __name__ == "__main__":
    census(planner.load(sys.argv[1]), out=sys.argv[2], jobs=int(sys.argv[3]), end_to_end=False, listen=slowly)
"""


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.slow
def test_a_killed_census_goes_on(jobs: int, whole: KnapsackCensus, instance: StageInstance, tmp_path: Path) -> None:
    problem, folder = tmp_path / "problem.json", tmp_path / "out"
    problem.write_text(as_json(FAMILY.to_json(instance)))
    script = tmp_path / "killed.py"  # workers that are spawned import it again
    script.write_text(_KILLED)
    with subprocess.Popen(
        [sys.executable, str(script), str(problem), str(folder), str(jobs)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "3":
            assert process.poll() is None
        process.kill()
        process.communicate(timeout=30)  # its workers hold the pipe open until they are gone, too
    assert not any(folder.glob("worst-*"))
    found = census(planner.load(problem), out=str(folder), end_to_end=False)
    assert 3 <= found.chunks_found < found.chunks
    assert totals(found) == totals(whole)


def test_a_folder_is_of_one_instance(instance: StageInstance, tmp_path: Path) -> None:
    """Of the same chunks, too."""
    census(instance, out=str(tmp_path), end_to_end=False)
    with pytest.raises(planner.UsageError, match="very census"):
        census(replace(instance, memory_bytes=instance.memory_bytes + 1), out=str(tmp_path), end_to_end=False)


def test_the_folder_of_an_odd_name_lies_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = census(replace(planner.load("chain8"), name="../a [b]/c"), end_to_end=False)
    assert [path.name for path in (tmp_path / "census").iterdir()] == [Path(found.out).name]
    assert Path(found.out).name.startswith(".._a__b__c-")


def test_a_full_disk_costs_the_chunks_and_not_the_census(
    whole: KnapsackCensus, instance: StageInstance, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = tmp_path / "problem.json"
    problem.write_text(as_json(FAMILY.to_json(instance)))
    given = ["census", str(problem), "--no-end-to-end", "--out", str(tmp_path / "out"), "--json"]
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        code = main(given)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    shown = capsys.readouterr()
    assert code == 2 and json.loads(shown.out)["nontrivial"] == whole.counts["nontrivial"]
    assert json.loads(shown.out)["variants"]["rerank"]["worst"] == []
    assert "warning: " in shown.err and "File too large" in shown.err.splitlines()[-1]
    assert list((tmp_path / "out").iterdir()) == []
    assert main(given) == 0 and json.loads(capsys.readouterr().out)["chunks_found"] == 0
