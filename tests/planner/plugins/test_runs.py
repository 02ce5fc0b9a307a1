"""Runs of one function on many instances: copies of one process, each as if it were the first."""

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from counting import Counting
from load import allowed_s
from processes import living

import planner
from planner import Limits
from planner.process import idle, supervisor
from planner.process.supervised import Supervised
from planner.results.result import Result

FOUR = Counting("four", (1, 2, 3, 4), 5)
Bring = Callable[..., str]
Run = Callable[..., tuple[int, str, str]]
slow = partial(pytest.param, marks=pytest.mark.slow)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what a copy would lack")


@pytest.fixture
def bring(tmp_path: Path) -> Bring:
    """Writes a file with the body of ``solve(instance)``, which ends with a plan; returns the method's name."""

    def write(body: str, imports: str = "") -> str:
        lines = f"{textwrap.dedent(body)}\nreturn {{'picked': [1, 2]}}"
        text = f"import os, random, time\n{textwrap.dedent(imports)}\ndef solve(instance):\n"
        (tmp_path / "mine.py").write_text(text + textwrap.indent(lines, "    "))
        return f"{tmp_path}/mine.py:solve"

    return write


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the processes that are started have loaded."""
    found: list[str] = []
    own = Supervised.__init__

    def begin(self: Supervised, module: str, name: str) -> None:
        own(self, module, name)
        found.append(name)

    monkeypatch.setattr(Supervised, "__init__", begin)
    yield found
    assert not idle._Waiting.processes


def runs(method: str, times: int = 3) -> list[Result]:
    with idle.kept():
        return [planner.solve(FOUR, method=method, limits=Limits(time_s=20)) for _ in range(times)]


def printed(method: str, times: int = 3) -> list[str]:
    """What each of several runs of one experiment prints, all of which have the plan."""
    found = runs(method, times)
    assert [each.objective for each in found] == times * [2.0], found[0].reason
    return [each.stats["printed"] for each in found]


@pytest.mark.slow
def test_a_process_is_started_once_and_no_run_knows_of_another(
    bring: Bring, started: list[str], tmp_path: Path
) -> None:
    body = """
        global calls
        calls += 1
        print(calls, os.getcwd() == folder, os.getppid(), "os.fork" in os.environ)
        os.environ["os.fork"] = "1"
        os.mkdir(f"{os.path.dirname(__file__)}/{os.getpid()}")
        os.chdir(f"{os.path.dirname(__file__)}/{os.getpid()}")
    """
    found = printed(bring(body, "import numpy\ncalls, folder = 0, os.getcwd()"))
    assert len(set(found)) == 1 and found[0].startswith("1 True ") and found[0].endswith(" False")
    assert len(started) == 1
    assert len(list(tmp_path.glob("[0-9]*"))) == 3  # each was a process of its own


@pytest.mark.slow
def test_what_many_runs_may_import_is_imported_once(bring: Bring) -> None:
    body = "import sys; print(*(name in sys.modules for name in ('networkx', 'formulations.device_mapping')))"
    assert set(printed(bring(body), 2)) == {"True True"}
    assert planner.solve(FOUR, method=bring(body)).stats["printed"] == "False False"


def test_outside_of_an_experiment_none_waits(bring: Bring, started: list[str]) -> None:
    method = bring("print(os.getppid())")
    assert len({planner.solve(FOUR, method=method).stats["printed"] for _ in range(2)}) == 2
    assert len(started) == 2  # what says what the function takes runs it
    assert not idle._Waiting.processes and not idle.serves_many()


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports",
    [
        "import threading\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        slow("held = open(__file__)"),
        slow("import subprocess\nheld = subprocess.Popen(['sleep', '60'])"),
        slow("if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(60)\n    os._exit(0)\nos.wait()"),
        slow(
            "import ctypes\nctypes.CDLL(None).pthread_create("
            "ctypes.byref(ctypes.c_ulong()), None, ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p), None)"
        ),
    ],
    ids=["thread", "file", "child", "daemon", "thread of C"],
)
def test_what_a_copy_would_lack_or_share_is_not_copied(bring: Bring, started: list[str], imports: str) -> None:
    """Such a file is imported for each run, as if there were only one."""
    assert len(set(printed(bring("print(os.getppid())", imports), 2))) == 2
    assert len(started) == 2


@pytest.mark.slow
def test_threads_of_openblas_are_no_hindrance(bring: Bring, started: list[str]) -> None:
    """It ends and starts them itself when a process forks; numpy has one, scipy another."""
    imports = """
        import ctypes, glob, shutil, numpy
        library = glob.glob(f"{numpy.__path__[0]}/../numpy.libs/*openblas*")[0]
        shutil.copy(library, os.path.dirname(__file__) + "/openblas_again.so")
        ctypes.CDLL(os.path.dirname(__file__) + "/openblas_again.so")
    """
    body = "many = numpy.ones((300, 300)); print((many @ many)[0, 0], len(os.listdir('/proc/self/task')) >= 1)"
    assert printed(bring(body, imports), 2) == ["300.0 True", "300.0 True"] and len(started) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "different"), [("random.seed(1)", [1, 3]), slow("numpy.random.seed(1)", [3, 1])])
def test_random_numbers_are_those_of_a_new_process(bring: Bring, seeds: str, different: list[int]) -> None:
    """The same in each run where the file has a seed for them, and others in each where it has none."""
    method = bring("print(random.random()); print(numpy.random.random())", f"import numpy.random\n{seeds}")
    lines = [line.splitlines() for line in printed(method)]
    assert [len(set(column)) for column in zip(*lines, strict=True)] == different


@pytest.mark.parametrize(
    ("body", "failures", "processes"),
    [
        ("os._exit(3)", ["error", "error"], 2),
        slow("raise ValueError", ["error", "error"], 1),
        slow("return None", ["no_plan", "no_plan"], 1),
        slow("os.kill(os.getpid(), 40)", ["error", "error"], 2),
        slow("os.kill(os.getppid(), 9); time.sleep(60)", ["error", "error"], 2),
        slow("os.write(int(__import__('sys').argv[-1]), b'x')", ["error", "error"], 2),
    ],
)
def test_a_process_that_misbehaves_is_replaced(
    bring: Bring, started: list[str], body: str, failures: list[str | None], processes: int
) -> None:
    found = runs(bring(body), 2)
    assert [each.stats.get("failure") for each in found] == failures
    assert len({each.reason for each in found}) == 1 and len(started) == processes


def test_nothing_that_a_run_leaves_lives_in_the_next(bring: Bring, started: list[str]) -> None:
    mark = f"left-behind-{time.monotonic_ns()}"
    method = bring(f"""
        import subprocess, sys, threading
        threading.Thread(target=time.sleep, args=(60,)).start()
        sleeps = [sys.executable, "-c", "import time; time.sleep(60)", {mark!r}]
        if os.fork() == 0:
            os.setsid()
            subprocess.Popen(sleeps, start_new_session=True, env={{}})
            os._exit(0)
        os.wait()
    """)
    with idle.kept():
        for _ in range(2):
            assert planner.solve(FOUR, method=method, limits=Limits(time_s=20)).objective == 2.0
            assert living(mark) == []
    assert len(started) == 1


@pytest.mark.slow
def test_a_run_that_reaches_its_limit_takes_nothing_from_the_next(bring: Bring, started: list[str]) -> None:
    method = bring("while instance.name == 'hangs': time.sleep(1)")
    with idle.kept():
        for name in ("four", "hangs", "four"):
            limits = Limits(time_s=0.5 if name == "hangs" else 20.0)
            found = planner.solve(Counting(name, (1, 2, 3, 4), 5), method=method, limits=limits)
            assert (found.objective is None) == (name == "hangs")
    assert len(started) == 2


@pytest.mark.slow
def test_imports_are_not_in_the_seconds(bring: Bring) -> None:
    """Neither those of the file nor those of the toolkit that a function first uses."""
    wait_s = allowed_s(0.5)
    body = "import planner\nplanner.check, planner.to_networkx, planner.Result"
    assert all(each.seconds < wait_s for each in runs(bring(body, f"time.sleep({1.1 * wait_s})")))


def test_where_no_process_can_begin_that_is_said_and_no_method_is_blamed(
    bring: Bring, run: Run, problem: Any, started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = bring("")
    assert planner.solve(FOUR, method=method).objective == 2.0  # what it takes is known from now on
    (tmp_path / "elsewhere.py").write_text("import sys; sys.exit('no more processes')")
    started.clear()
    with monkeypatch.context() as patched:
        patched.setattr(supervisor, "__file__", str(tmp_path / "elsewhere.py"))
        code, out, err = run("validate", problem(), "--methods", method, "--out", str(tmp_path / "out"), "--quiet")
    assert (code, out, err.count("\n"), len(started)) == (2, "", 1, 3)
    assert "3 processes for it could not begin; the last one ended with exit code 1, and printed last: no more" in err
    assert not (tmp_path / "out" / "rows.jsonl").exists() and "expected more (ulimit -a)" in err
