"""A validation is one whoever runs it: it goes on where it was killed, in processes and on a cluster as in this one."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from validation_totals import totals

import planner
from formulations.tmpc_knapsack import FAMILY
from instances.problems.tmpc_knapsack import generate
from planner.experiments.validation.run import Validation
from planner.process.errors import UsageError

Run = Callable[..., tuple[int, str, str]]
METHODS = ["piper", "./slow.py:solve"]
#: Fails on some instances, is slow where a file says so, and keeps a record of its calls.
SLOW = """
import os, time

def solve(instance):
    with open(os.path.join(os.path.dirname(__file__), "calls"), "a") as file:
        file.write(instance.name + "\\n")
    if os.path.exists(os.path.join(os.path.dirname(__file__), "slowly")):
        time.sleep(0.4)
    if len(instance.nodes) == 5:
        raise ValueError("five")
    return {"choice": {str(n.id): min(n.options, key=lambda o: o.memory_bytes).id for n in instance.nodes}}
"""
COUNT = 5


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in with a method and a population."""
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text(SLOW)
    made = [generate(3 + number % 4, seed=number) for number in range(COUNT)]
    Path("some.jsonl").write_text("".join(json.dumps(FAMILY.to_json(each)) + "\n" for each in made))
    return tmp_path


def whole(out: str = "whole", **more: Any) -> Validation:
    return planner.validate("some.jsonl", methods=METHODS, out=out, **more)


def calls() -> list[str]:
    return Path("calls").read_text().splitlines() if Path("calls").exists() else []


def lines() -> int:
    journal = Path("out/journal.jsonl")
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def started(*more: str) -> subprocess.Popen[str]:
    given = ["validate", "some.jsonl", "--methods", ",".join(METHODS), "--out", "out", "--json", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "planner", *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def killed_after_some(*more: str) -> None:
    """A validation that is ended by kill -9 when three instances are done."""
    Path("slowly").touch()
    with started(*more) as process:
        while lines() < 3:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.kill()
        process.communicate(timeout=60)
    Path("slowly").unlink()


@pytest.mark.slow
def test_a_killed_validation_goes_on(folder: Path) -> None:
    """In another way than it began: what processes found is what this one finds."""
    killed_after_some("--jobs", "2")
    done = lines()
    assert 3 <= done < COUNT and not list(Path("out").glob("rows*"))
    before = len(calls())
    found = whole("out")
    assert len(calls()) - before == COUNT - done  # nothing that was kept is solved again
    assert totals(found) == totals(whole()) and found.methods["./slow.py:solve"].errors > 0


@pytest.fixture(params=[1, 2])
def cluster(folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """Workers that are at home in another folder."""
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with distributed.LocalCluster(
        n_workers=request.param, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as local:
        monkeypatch.chdir(folder)
        yield local.scheduler_address


@pytest.mark.slow
def test_a_cluster_killed_once_and_continued_equals_this_process(folder: Path, cluster: str) -> None:
    killed_after_some("--dask", cluster)
    assert 3 <= lines() < COUNT
    found = whole("out", dask=cluster)
    assert totals(found) == totals(whole())
    assert found.instances == found.wanted == COUNT


@pytest.mark.slow
def test_a_validation_that_was_killed_before_its_population_was_written_goes_on(folder: Path) -> None:
    first = whole("out")
    for path in Path("out").iterdir():
        if path.name != "validate.json":
            path.unlink()
    assert totals(whole("out")) == totals(first) and len(Path("out/instances.jsonl").read_text().splitlines()) == COUNT


@pytest.mark.slow
def test_another_folder_is_refused(folder: Path) -> None:
    Path("other").mkdir()
    Path("other/letter.txt").write_text("dear reader")
    with pytest.raises(UsageError, match="--out is 'other'; expected an empty folder"):
        whole("other")
    assert [path.name for path in Path("other").iterdir()] == ["letter.txt"]
    whole("out")
    for more in ({"against": "cpsat"}, {"seed": 1}, {"memory": "1MB"}, {"limits": planner.Limits(time_s=7.0)}):
        with pytest.raises(UsageError, match="of this very validation by this very program, or a new one"):
            whole("out", **more)
    Path("slow.py").write_text(SLOW + "# another file\n")
    with pytest.raises(UsageError, match=r"very validation .*what differs: methods ./slow.py:solve \(has changed\)$"):
        whole("out")
    with pytest.raises(UsageError, match="--out is 'slow"):
        whole("slow.py")


@pytest.mark.parametrize(("jobs", "number"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
@pytest.mark.slow
def test_a_signal_ends_it_with_what_is_known_and_it_goes_on(jobs: int, number: int, folder: Path) -> None:
    """Though the method would take minutes for each instance but the first."""
    text = SLOW.replace("time.sleep(0.4)", "time.sleep(600 if open('calls').read().count('\\n') > 3 else 0)")
    Path("slow.py").write_text(text)
    Path("slowly").touch()
    with started("--jobs", str(jobs), "--time-limit", "600") as process:
        while len(calls()) < 4 or lines() < 2:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(number)
        try:
            out, err = process.communicate(timeout=100)
        finally:
            process.kill()
    assert process.returncode == 128 + number, err
    found = json.loads(out)
    assert 2 <= found["instances"] < COUNT and "the same command resumes" in err and "Traceback" not in err
    assert "matplotlib" not in err
    assert found["instances"] == lines()
    assert found["methods"]["piper"]["optimal"] + found["methods"]["piper"]["suboptimal"] == found["instances"]
    Path("slowly").unlink()
    assert whole("out", limits=planner.Limits(600.0)).instances == COUNT


@pytest.mark.slow
def test_a_signal_while_a_source_is_read_ends_it_at_once(folder: Path) -> None:
    given = [sys.executable, "-m", "planner", "validate", "-", "--out", "out"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(given, **pipes) as process:
        try:
            time.sleep(4)  # until it reads
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
    assert not Path("out").exists()
