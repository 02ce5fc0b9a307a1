"""Random command lines of every command end as docs/interface/exit-codes.md says; and what does not is noticed."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import random_command_lines
from command_lines import Maker
from random_command_lines import Ran, wrong

from planner.cli.app import main

PROGRAM = [sys.executable, random_command_lines.__file__]


def ran(*words: str, code: int = 0, out: str = "", err: str = "", cpu_s: float = 0.1, left: int = 0) -> Ran:
    return Ran(words, code, out, err, cpu_s, 0.1, left)


TRACEBACK = "Traceback (most recent call last):\nKeyError: 3\n"
NOT_ALLOWED = (
    *(ran("solve", "x", code=code) for code in (70, 1, 5, -6, -11, 2)),
    *(ran("solve", "x", "--json", out=out) for out in ("{}\n{}\n", "", '{"bound": NaN}\n', "[]\n")),
    ran("solve", "x", code=70, err=TRACEBACK),
    ran("solve", "x", err=TRACEBACK),
    ran("solve", "x", "--quiet", code=2, err="one line\nanother\n"),
    ran("solve", "x", err="numpy/core.py:385: RuntimeWarning: overflow\n"),
    ran("solve", "x", out="\x1b[31m"),
    ran("solve", "x", left=1),
    ran("model", "x", code=2, err="--out is 'x'; expected a file that can be written\n"),
    ran("solve", "x", "--time-limit", "0.1", code=-9),
    ran("solve", "x", "--time-limit=0.1", cpu_s=100.0),
)


def test_what_is_not_allowed_is_noticed() -> None:
    assert [bad for bad in NOT_ALLOWED if not wrong(bad)] == []


def test_random_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    """In this process: cheap, and only of commands that need neither processes nor pictures."""
    drawn = ("solve", "check", "verify", "export", "list", "explain", "model", "frontier", "diff", "census")
    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        words = Maker(0, number, Path(), drawn).line()
        capfd.readouterr()
        began = time.process_time()
        code = main(words)
        shown = capfd.readouterr()
        found = ran(*words, code=code, out=shown.out, err=shown.err, cpu_s=time.process_time() - began)
        assert wrong(found) == [], (number, words, shown)


@pytest.mark.slow
def test_many_random_command_lines(tmp_path: Path, cases: int) -> None:
    command = [*PROGRAM, "--count", str(cases), "--seed", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("nothing was wrong")
