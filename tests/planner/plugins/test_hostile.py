"""Methods of users that are broken or hostile (`hostile.TABLE`): no other row is lost, and nothing of them is left."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hostile import ERROR, INVALID, PLAN, STOPPED, TABLE, Hostile
from load import allowed_s

import planner
from planner import Limits
from planner.process import idle

#: Runs a command, and sends it a signal when a file is there; all orphans become children of this. Its exit code, and
#: how many processes it left, when they had a moment to end if it could not wait for that.
ORPHANS = """
import ctypes, os, subprocess, sys, time
from planner.process.supervisor import end_descendants
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
number, awaited = int(sys.argv[1]), sys.argv[2]
with subprocess.Popen(sys.argv[3:]) as process:
    while number and not os.path.exists(awaited):
        time.sleep(0.05)
    process.send_signal(number)
time.sleep(3.0 if number == 9 else 0.0)
print(f"{process.returncode} {end_descendants(os.getpid())}", file=sys.stderr)
"""
_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers and lists processes")
FAILURES = {PLAN: None, ERROR: "error", STOPPED: "stopped", INVALID: "invalid_plan"}


def judge(tried: Hostile, status: str, failure: str | None, reason: str, seconds: float) -> None:
    assert (status == "feasible") == (tried.comes == PLAN), reason
    assert failure == FAILURES[tried.comes] or (tried.comes == PLAN and failure in (None, "stopped")), reason
    assert tried.words in reason and "\n" not in reason and len(reason) < 1000
    assert seconds <= tried.time_s + allowed_s(3.0)


@pytest.mark.slow
@_LINUX
@pytest.mark.parametrize("tried", TABLE, ids=lambda tried: tried.tries)
def test_whatever_a_method_tries_the_other_rows_are_there_and_no_process_is_left(
    tried: Hostile, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(tried.text)
    command = [sys.executable, "-m", "planner", "crosscheck", "chain8", "--memory", "1GB", "--json", "--quiet"]
    command += ["--events", f"{tmp_path}/events", "--time-limit", str(tried.time_s)]
    command += ["--methods", f"{tmp_path}/mine.py:solve,exact"]
    began = time.perf_counter()
    wrapped = [sys.executable, "-c", ORPHANS, "0", "", *command]
    done = subprocess.run(wrapped, capture_output=True, text=True, timeout=120)
    assert time.perf_counter() - began < tried.time_s + allowed_s(30.0)
    *said, last = done.stderr.splitlines()
    assert (last, said) == ("0 0", [])
    mine, exact = json.loads(done.stdout)["results"]
    assert (exact["status"], exact["verified"]) == ("optimal", True)
    judge(tried, mine["status"], mine["stats"].get("failure"), mine["reason"], mine["seconds"])
    if tried.comes == PLAN:
        assert mine["verified"] and mine["objective"] >= exact["objective"]


@pytest.mark.slow
@_LINUX
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_process_is_left_when_the_planner_is_ended(number: int, code: int, tmp_path: Path) -> None:
    tried = Hostile("", STOPPED, f"away(); open({str(tmp_path / 'begun')!r}, 'w'); time.sleep(600)")
    (tmp_path / "mine.py").write_text(tried.text)
    command = [sys.executable, "-m", "planner", "solve", "chain8", "--method", f"{tmp_path}/mine.py:solve", "--json"]
    wrapped = [sys.executable, "-c", ORPHANS, str(int(number)), str(tmp_path / "begun"), *command]
    done = subprocess.run(wrapped, capture_output=True, text=True, timeout=120)
    assert done.stderr.splitlines() == [f"{code} 0"]
    if number != signal.SIGKILL:
        assert json.loads(done.stdout)["stop"] == "interrupted"


@pytest.mark.slow  # each is run once in the one before
def test_what_they_do_they_do_again(tmp_path: Path) -> None:
    """In one experiment, whose processes serve run after run: a second run is what the first was."""
    instance = planner.load("chain8", memory="1GB")
    with idle.kept():
        for number, tried in enumerate(tried for tried in TABLE if tried.is_cheap):
            (tmp_path / f"mine{number}.py").write_text(tried.text)
            for _ in range(2):
                found = planner.solve(instance, method=f"{tmp_path}/mine{number}.py:solve", limits=Limits(time_s=20.0))
                judge(tried, found.status, found.stats.get("failure"), found.reason, found.seconds)
