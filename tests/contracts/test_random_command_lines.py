"""Random command lines of every command end as docs/interface/exit-codes.md says; and what does not is noticed."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import random_command_lines
from command_lines import Maker, commands
from paths import SUPPORT
from random_command_lines import Ran, wrong

from planner.cli.app import main

PROGRAM = [sys.executable, random_command_lines.__file__]


def ran(*words: str, code: int = 0, out: str = "", err: str = "", cpu_s: float = 0.1, left: int = 0) -> Ran:
    return Ran(words, code, out, err, cpu_s, 0.1, left)


@pytest.mark.parametrize(
    "bad",
    [
        ran("solve", "x", code=70, err="Traceback (most recent call last):\nKeyError: 3\n"),
        ran("solve", "x", err="Traceback (most recent call last):\nKeyError: 3\n"),
        ran("solve", "x", code=70),
        ran("solve", "x", code=1),
        ran("solve", "x", code=5),
        ran("solve", "x", code=-6),
        ran("solve", "x", code=-11),
        ran("solve", "x", code=2),
        ran("solve", "x", "--quiet", code=2, err="one line\nanother\n"),
        ran("solve", "x", err="numpy/core.py:385: RuntimeWarning: overflow\n"),
        ran("solve", "x", "--json", out="{}\n{}\n"),
        ran("solve", "x", "--json", out=""),
        ran("solve", "x", "--json", out='{"bound": NaN}\n'),
        ran("solve", "x", "--json", out="[]\n"),
        ran("solve", "x", out="\x1b[31m"),
        ran("solve", "x", left=1),
        ran("model", "x", code=2, err="--out is 'x'; expected a file that can be written\n"),
        ran("solve", "x", "--time-limit", "0.1", code=-9),
        ran("solve", "x", "--time-limit=0.1", cpu_s=100.0),
    ],
)
def test_what_is_not_allowed_is_noticed(bad: Ran) -> None:
    assert len(wrong(bad)) >= 1


@pytest.mark.parametrize(
    "good",
    [
        ran("check", "x", code=1),
        ran("solve", "x", "--json", out="{}\n"),
        ran("solve", "x", "--json", code=2, err="--json is missing\n"),
        ran("solve", "x", "--time-limit", "1e9", code=-9),
        ran("solve", "x", "--help", "--json", out="Usage\n"),
        ran("solve", "x", "--colour=1", code=2, err="unknown option --colour for solve; expected one of --problem\n"),
        ran("solve", "x", code=2, err="x is missing (planner make NAME --out x --no-such)\n"),
    ],
)
def test_what_is_allowed_is_not_wrong(good: Ran) -> None:
    assert wrong(good) == []


def test_every_command_is_drawn() -> None:
    assert {"solve", "model", "fidelity"} <= set(commands()) and len(commands()) == len(set(commands()))


def test_a_line_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    for number in (3, 8):
        lines = [Maker(0, number, tmp_path / folder, ["list", "explain"]).line() for folder in ("a", "b")]
        assert lines[0] == lines[1]
    made = [{path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()} for folder in ("a", "b")]
    assert made[0] == made[1]


def test_random_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    """In this process: cheap, and only of commands that need neither processes nor pictures."""
    drawn = ("solve", "check", "verify", "export", "list", "explain", "model", "frontier", "diff", "census")
    for number in range(20):
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("os.abort()", "exit code -6"),
        ("os.kill(os.getpid(), 11)", "exit code -11"),
        ("time.sleep(600)", "was still there"),
        ("subprocess.Popen(['sleep', '600'])", "processes are left"),
    ],
)
def test_a_line_that_dies_or_hangs_or_leaves_processes_is_named_and_the_others_go_on(
    body: str, said: str, tmp_path: Path
) -> None:
    """In a process of its own, as it starts copies of itself."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, subprocess, sys, time\n"
        f"sys.path[:0] = {[str(SUPPORT), str(SUPPORT.parent)]!r}\n"
        "import planner.__main__\n"
        "import random_command_lines as lines\n"
        "class Maker(lines.Maker):\n"
        "    def line(self):\n"
        "        return ['solve', '--time-limit=0.1']\n"
        "def main():\n"
        "    if os.getcwd().endswith('/1/work'):\n"
        f"        {body}\n"
        "    os._exit(0)\n"
        "lines.Maker, lines.warmed, lines.PATIENCE_S, planner.__main__.main = Maker, lambda: None, 2.0, main\n"
        f"sys.exit(lines.main(['--count', '3', '--jobs', '2', '--out', {str(tmp_path / 'out')!r}]))\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 5 and said in done.stdout and done.stdout.count("--only 1") == 1, (
        done.stdout + done.stderr
    )
    assert "--only 0" not in done.stdout and "--only 2" not in done.stdout
