"""The census: the same totals wherever and however often it runs, and files that can be solved."""

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dying import dies_once

import planner
from formulations.stage_partitioning import FAMILY
from formulations.stage_partitioning.questions.studies.subproblems import EDGES, Subproblems
from instances.problems.stage_partitioning import StageInstance
from planner.cli.app import main
from planner.display.census import show_census
from planner.experiments.census import census
from planner.experiments.census.knapsacks import WORST, KnapsackCensus, chunks_of
from planner.files.write import as_json
from planner.process.executors import place, run_each
from planner.results.texts import percent


def totals(found: KnapsackCensus) -> dict[str, Any]:
    """What must not depend on how the census ran."""
    return {"counts": found.counts, "chunks": found.chunks_done, "variants": found.variants}


def test_in_process(whole: KnapsackCensus, instance: StageInstance) -> None:
    counts = whole.counts
    assert counts["instances"] == counts["all_fastest_feasible"] + counts["infeasible"] + counts["nontrivial"]
    assert whole.chunks_done == whole.chunks > 3
    assert whole.crosscheck is not None and whole.crosscheck["checked"] == 3
    assert whole.crosscheck["contradictions"] == [] and whole.crosscheck["unproved"] == 0 and whole.agree
    own = whole.variants[whole.variant]
    assert whole.cpu_seconds > 0
    assert own.suboptimal > own.usable > 0 and own.worst_gap >= own.mean_gap_suboptimal > own.mean_gap > 0
    shown = json.loads(as_json(whole.to_json()))
    keys = (
        "calls", "instances", "all_fastest_feasible", "infeasible", "nontrivial", "suboptimal", "worst_gap", "seconds",
    )  # fmt: skip
    assert all(isinstance(shown[key], int | float) for key in keys)
    assert shown["complete"] is True and shown["calls"] <= shown["pairs"] * shown["formula"]["knapsacks"]
    bins = shown["variants"]["rerank"]["histogram"]
    assert sum(part["count"] for part in bins) == whole.variants["rerank"].suboptimal
    assert (bins[0]["above"], bins[-1]["up_to"]) == (0, None)
    assert all(one["up_to"] == other["above"] for one, other in pairwise(bins))


def test_the_worst_of_all_chunks_are_kept(whole: KnapsackCensus, instance: StageInstance) -> None:
    calls = Subproblems(instance)
    for name, tally in calls.survey(1, calls.num_downsets, worst=WORST).rules.items():
        assert [gap for gap, _ in whole.variants[name].worst] == [gap for gap, _ in tally.worst]
        assert whole.variants[name].worst_gap == tally.worst[0][0] > tally.worst[-1][0]
        assert whole.variants[name].histogram == tally.histogram


def test_end_to_end(whole: KnapsackCensus, instance: StageInstance) -> None:
    assert whole.end_to_end is not None
    for name in ("piper", "exact"):
        options = {"knapsack": whole.variant} if name == "piper" else {}
        assert whole.end_to_end[name] == planner.solve(instance, method=name, options=options).objective
    piper, exact = whole.end_to_end["piper"], whole.end_to_end["exact"]
    assert whole.end_to_end["loss"] == piper / exact - 1 > 0.4


def test_worst_instances_are_files_that_show_the_gap(whole: KnapsackCensus) -> None:
    for name, variant in whole.variants.items():
        assert len(whole.worst_files[name]) == len(variant.worst) > 0
        for (gap, origin), path in zip(variant.worst, whole.worst_files[name], strict=True):
            knapsack = planner.load(path)
            assert knapsack.origin["y"] == origin.y
            found = planner.solve(knapsack, method="piper", options={"knapsack": name}).objective
            best = planner.solve(knapsack, exact=True).objective
            assert found is not None and best is not None and found > best
            assert min(found / best - 1, 1e9) == pytest.approx(gap) if best else gap == 1e9


@pytest.mark.slow
def test_two_processes(whole: KnapsackCensus, instance: StageInstance, tmp_path: Path) -> None:
    found = census(instance, jobs=2, out=str(tmp_path), end_to_end=False)
    assert totals(found) == totals(whole)
    assert found.end_to_end is None and found.crosscheck is None


@pytest.fixture
def cluster() -> Iterator[str]:
    """A worker process behind a scheduler on loopback."""
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as local:
        yield local.scheduler_address


@pytest.mark.slow
def test_dask_cluster(whole: KnapsackCensus, instance: StageInstance, cluster: str, tmp_path: Path) -> None:
    """Totals as in process, though a worker is killed in the middle."""
    assert totals(census(instance, dask=cluster, out=str(tmp_path), end_to_end=False)) == totals(whole)
    marks = tmp_path / "marks"
    marks.mkdir()
    results = dict(run_each(place(dask=cluster), dies_once, [(str(marks), number) for number in range(6)]))
    assert results == {number: number * number for number in range(6)}
    assert len(list(marks.iterdir())) == 1


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    results = dict(run_each(place(jobs=2), dies_once, [(str(tmp_path), number) for number in range(6)]))
    assert results == {number: number * number for number in range(6)}
    assert len(list(tmp_path.iterdir())) == 1


class Breaking(ThreadPoolExecutor):
    """Breaks down after its first result."""

    done = 0

    def submit(self, work, /, *task, **_):
        self.done += 1
        return super().submit(work, *task) if self.done == 1 else super().submit(breaks)


def breaks() -> None:
    time.sleep(0.3)  # the result comes first
    raise BrokenExecutor("broken")


def test_consecutive_breakdowns_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result in between and there may be as many again."""
    monkeypatch.setattr("planner.process.executors.BREAKDOWNS", 1)
    assert sorted(run_each(lambda: Breaking(1), abs, [(-n,) for n in range(6)])) == [(n, n) for n in range(6)]


def test_who_stops_listening_stops_the_work() -> None:
    """What has not begun is not begun any more."""
    begun: list[int] = []

    def slowly(number: int) -> None:
        begun.append(number)
        time.sleep(0.01)

    results = run_each(place(), slowly, [(number,) for number in range(500)])
    next(results)
    results.close()
    assert len(begun) < 500


@pytest.mark.parametrize(
    ("raised", "number"), [(KeyboardInterrupt(), signal.SIGINT), (SystemExit(143), signal.SIGTERM)]
)
def test_interrupted_census_says_so(
    raised: BaseException, number: int, instance: StageInstance, tmp_path: Path
) -> None:
    def interrupt(done: int, _: int) -> None:
        if done == 2:
            raise raised

    found = census(instance, out=str(tmp_path), crosscheck=2, listen=interrupt)
    assert (found.chunks_done, found.signal) == (2, number)
    assert found.to_json()["complete"] is False
    assert found.crosscheck is None and found.end_to_end is None


def test_chunks_cover_all_outer_downsets() -> None:
    for num_downsets in (1, 2, 3, 10, 43, 242, 17_914):
        ranges = chunks_of(num_downsets)
        covered = [outer for first, last in ranges for outer in range(first, last)]
        assert covered == list(range(1, num_downsets))
    assert len(chunks_of(17_914)) > 500


def test_command(whole: KnapsackCensus, instance: StageInstance, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("problem.json").write_text(as_json(FAMILY.to_json(instance)))
    assert main(["census", "problem.json", "--crosscheck", "1", "--seed", "5", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["nontrivial"] == whole.counts["nontrivial"] and shown["crosscheck"]["checked"] == 1
    assert Path(shown["variants"][shown["variant"]]["worst"][0]["file"]).is_file()
    assert main(["census", "problem.json", "--no-end-to-end"]) == 0
    out, err = capsys.readouterr()
    files = whole.variants["rerank"].worst
    assert f"worst-rerank-1.json (and {len(files) - 1} more)" in " ".join(out.split())
    used = [b for b in range(len(EDGES)) if any(each.histogram[b] for each in whole.variants.values())]
    ranges = [f"gap in ({percent(EDGES[b - 1] if b else 0.0)}, {percent(EDGES[b])}]" for b in used]
    assert ranges and all(each in out for each in ranges) and out.count("gap in (") == len(ranges)
    assert "chunks lie in" in err and "sub-optimal" in out and f"{whole.counts['nontrivial']:,}" in out
    assert main(["census", "problem.json", "--jobs", "0"]) == 2
    worst = sorted(Path("census").glob("*/worst-rerank-1.json"))
    assert main(["census", str(worst[0])]) == 2
    assert main(["solve", str(worst[0]), "--exact", "--quiet"]) == 0
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    monkeypatch.setattr("planner.process.executors.CONNECT_S", 0.2)
    assert main(["census", "problem.json", "--fresh", "--dask", "tcp://127.0.0.1:1"]) == 2


def test_what_witnesses_say_is_handed_on(instance: StageInstance, tmp_path: Path, monkeypatch: Any) -> None:
    reports = [
        SimpleNamespace(instance="one", optimum=None, contradictions=[], signal=None),
        SimpleNamespace(instance="two", optimum=3.0, contradictions=["cpsat says 2"], signal=None),
        SimpleNamespace(instance="three", optimum=None, contradictions=[], signal=2),
    ]
    asked: list[dict[str, Any]] = []

    def answer(_: Any, **given: Any) -> SimpleNamespace:
        asked.append(given)
        return reports[len(asked) - 1]

    monkeypatch.setattr("planner.experiments.census.knapsacks.crosscheck", answer)
    lines: list[str] = []
    found = census(instance, out=str(tmp_path), crosscheck=9, seed=4, end_to_end=False, notice=lines.append)
    assert found.crosscheck is not None and not found.agree
    output = {name: found.crosscheck[name] for name in ("checked", "unproved", "contradictions")}
    assert output == {"checked": 3, "unproved": 2, "contradictions": ["two: cpsat says 2"]}
    assert "interrupted after 3" in lines[-1]
    assert all(given["limits"].seed == 4 and given["methods"] == ("exact", "cpsat", "milp") for given in asked)
    asked.clear()
    monkeypatch.chdir(tmp_path)
    Path("problem.json").write_text(as_json(FAMILY.to_json(instance)))
    assert main(["census", "problem.json", "--crosscheck", "3", "--no-end-to-end", "--quiet"]) == 5


def test_what_cannot_be_compared_is_said(whole: KnapsackCensus, capsys: pytest.CaptureFixture[str]) -> None:
    show_census(replace(whole, end_to_end={"piper": None, "exact": None, "loss": None, "reason": "too large"}))
    assert "end to end: not compared (too large)" in capsys.readouterr().out


def test_without_dask_there_is_a_way_out(instance: StageInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(planner.UsageError, match="cluster"):
        census(instance, dask="tcp://127.0.0.1:8786")


@pytest.mark.parametrize("address", ["tls://127.0.0.1:8786", "ucx://127.0.0.1:8786", "nonsense", "x://y:1"])
def test_other_addresses_of_dask_are_one_line(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed")
    assert main(["census", "chain8", "--no-end-to-end", "--dask", address, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"--dask is '{address}'; expected the address of a dask scheduler")


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
