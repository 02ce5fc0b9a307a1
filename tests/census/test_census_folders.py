"""The folder of a census: it goes on from it, and refuses or repeats what is not its own."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from strategies import random_stage_instance

import planner
from formulations.stage_partitioning import FAMILY
from instances.problems.stage_partitioning import StageInstance
from planner.cli.app import main
from planner.experiments.census import folders
from planner.experiments.census.run import Census, census
from planner.files.write import as_json


def totals(found: Census) -> dict[str, Any]:
    """What must not depend on how the census ran."""
    return {"counts": found.counts, "chunks": found.chunks_done, "variants": found.variants}


def test_resumes_from_the_chunks_that_are_there(whole: Census, instance: StageInstance, tmp_path: Path) -> None:
    census(instance, out=str(tmp_path), end_to_end=False)
    chunks = sorted(tmp_path.glob("chunk-*.json"))
    kept = chunks[1::2]
    for path in chunks[::2]:
        path.unlink()
    stamps = {path: path.stat().st_mtime_ns for path in kept}
    lines: list[str] = []
    again = census(instance, out=str(tmp_path), end_to_end=False, notice=lines.append)
    assert totals(again) == totals(whole)
    assert again.chunks_found == len(kept) and str(len(kept)) in lines[0]
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
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
def test_a_killed_census_goes_on(jobs: int, whole: Census, instance: StageInstance, tmp_path: Path) -> None:
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


def test_another_folder_is_refused(instance: StageInstance, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear reader")
    with pytest.raises(planner.UsageError, match="empty folder"):
        census(instance, out=str(tmp_path / "other"))
    census(instance, out=str(tmp_path / "own"), end_to_end=False)
    with pytest.raises(planner.UsageError, match="very census"):
        census(random_stage_instance(1), out=str(tmp_path / "own"))


def test_chunks_of_other_code_are_not_mixed(
    instance: StageInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version does not change while code is worked on: the files of the rooms and of the census count."""
    named = {(package, file.name) for package, file in folders.code()}
    walk, search = (
        ("formulations.stage_partitioning.kernels", "walk.py"),
        ("formulations.tmpc_knapsack.kernels", "search.py"),
    )
    assert {walk, search, ("planner.experiments.census", "run.py")} <= named
    assert ("planner.display", "census.py") not in named
    code = "import sys, planner.experiments.census.run; print(*(name for name in sys.modules if '.kernels.' in name))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(process.stdout.split()) <= {f"{package}.{file.removesuffix('.py')}" for package, file in named}
    package, out = tmp_path / "code_of_a_census", str(tmp_path / "out")
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(folders, "_CODE", ((package.name, "*.py"),))
    lines = ["", "GAP = 1\n", "GAP = 2\n"]
    for line in lines:
        (package / "kernels.py").write_text(line)
        if line != lines[0]:
            with pytest.raises(planner.UsageError, match="very program"):
                census(instance, out=out, end_to_end=False)
            shutil.rmtree(out)
        census(instance, out=out, end_to_end=False)
        again = census(instance, out=out, end_to_end=False)
        assert again.chunks_found == again.chunks


def test_a_folder_is_of_one_instance_and_of_one_version(
    instance: StageInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same chunks, too."""
    census(instance, out=str(tmp_path), end_to_end=False)
    with pytest.raises(planner.UsageError, match="very census"):
        census(replace(instance, memory_bytes=instance.memory_bytes + 1), out=str(tmp_path), end_to_end=False)
    monkeypatch.setattr(folders, "versions", lambda: {"dnn-planner": "0", "numba": "0"})
    with pytest.raises(planner.UsageError, match="very census"):
        census(instance, out=str(tmp_path), end_to_end=False)


def test_the_folder_of_an_odd_name_lies_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = census(replace(planner.load("chain8"), name="../a [b]/c"), end_to_end=False)
    assert [path.name for path in (tmp_path / "census").iterdir()] == [Path(found.out).name]
    assert Path(found.out).name.startswith(".._a__b__c-")


def damaged(text: str) -> list[str]:
    """A chunk cut short, changed in a digit, emptied, replaced by other JSON, and by no text at all."""
    digit = text.index('"pairs": ') + len('"pairs": ')
    changed = text[:digit] + ("1" if text[digit] != "1" else "2") + text[digit + 1 :]
    return [text[: len(text) // 2], changed, "", "{}", "[1]", '{"survey": 1, "seconds": 2}', "\x00\x00"]


@pytest.mark.parametrize("kind", range(7))
def test_a_damaged_chunk_is_done_again_with_a_warning(
    kind: int, whole: Census, instance: StageInstance, tmp_path: Path
) -> None:
    census(instance, out=str(tmp_path), end_to_end=False)
    chunk = tmp_path / "chunk-0001.json"
    before = chunk.read_text()
    chunk.write_text(damaged(before)[kind])
    said: list[str] = []
    found = census(instance, out=str(tmp_path), end_to_end=False, notice=said.append)
    assert [line.startswith(f"warning: {chunk}: ") for line in said] == [True, False]
    assert said[0].count("\n") == 0 and said[0].endswith("it is recomputed")
    assert found.chunks_found == found.chunks - 1 and totals(found) == totals(whole)
    assert json.loads(chunk.read_text())["survey"] == json.loads(before)["survey"]


def test_a_full_disk_costs_the_chunks_and_not_the_census(
    whole: Census, instance: StageInstance, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
