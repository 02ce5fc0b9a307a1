"""Processes for code that is not the planner's: what they say, until when, and that nothing of them is left."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from load import allowed_s
from processes import living

from planner.process import supervised, supervisor
from planner.process.supervised import Supervised
from planner.training.forked import Deadline, End, run_in_fork

_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers and lists processes")
Start = Callable[[str], Supervised]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a process that runs these lines as the body of ``main(requests, replies)``."""
    monkeypatch.syspath_prepend(tmp_path)
    begun: list[Supervised] = []

    def new(body: str) -> Supervised:
        text = "import os, signal, sys, time\ndef main(requests, replies):\n"
        (tmp_path / "foreign.py").write_text(text + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n")
        begun.append(Supervised("foreign", "it"))
        return begun[-1]

    yield new
    for each in begun:
        each.end()


def within(seconds: float) -> Callable[[], bool]:
    until = time.perf_counter() + seconds
    return lambda: time.perf_counter() > until


def wait_for(happened: Callable[[], object]) -> None:
    is_late = within(20)
    while not happened():
        assert not is_late()
        time.sleep(0.02)


def test_objects_go_there_and_lines_come_back(start: Start) -> None:
    process = start("""
        from planner.process.supervisor import receive
        for _ in range(3):
            os.write(replies, b"%d\\n" % len(receive(requests)))
        os.write(replies, b"not whole")
        print("said")
        sys.exit(7)
    """)
    for size in (0, 1 << 22, 3):  # more than a pipe holds
        process.send(size * "x")
    assert list(process.replies(within(20))) == [b"0", str(1 << 22).encode(), b"3"]
    assert (process.ending(), process.output_tail()) == ("ended with exit code 7", "said")
    process.end()
    process.end()


def test_who_does_not_read_blocks_nobody(start: Start) -> None:
    process = start("time.sleep(60)")
    began = time.perf_counter()
    process.send((1 << 22) * "x")
    assert list(process.replies(within(0.3))) == []
    process.end()
    assert time.perf_counter() - began < allowed_s(2.0) and process.ending() == "ended with exit code 0"


@pytest.mark.parametrize("said", [b"x", (1 << 16) * b"line\\n"])
def test_the_end_comes_whatever_is_said(start: Start, said: bytes) -> None:
    process = start(f"""
        os.set_inheritable(replies, True)
        if os.fork() == 0:
            os.setsid()
            os.fork()
        while True:
            os.write(replies, {said!r}.replace(b"\\\\n", b"\\n"))
    """)
    began = time.perf_counter()
    for _ in process.replies(within(0.5)):
        pass
    assert time.perf_counter() - began < allowed_s(2.0)
    process.end()


def test_what_was_said_at_once_is_not_heard_for_ever(start: Start) -> None:
    process = start("os.write(replies, 10_000 * b'x\\n'); time.sleep(60)")
    began = time.perf_counter()
    for _ in process.replies(within(0.3)):
        time.sleep(0.01)  # to be judged takes its time
    assert time.perf_counter() - began < allowed_s(3.0)


def test_a_reply_without_end_is_none(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "MOST_BYTES", 1 << 20)
    process = start("while True: os.write(replies, 60000 * b'x')")
    assert list(process.replies(within(20))) == []
    assert process.ending() == "sent a reply of more than 1048576 bytes"


#: Ways to leave a process behind that has another session, no mark in its environment, and another parent.
_AWAY = """
    def away(then):
        if os.fork():
            os.wait()
            return
        os.setsid()
        if os.fork():
            os._exit(0)
        os.execve(sys.executable, [sys.executable, "-c", then, MARK], {})
"""
_SLEEP = "import time; time.sleep(60)"
#: Forks and ends again and again, each time in another session.
_HOP = "import os, time\nwhile True:\n if os.fork(): os._exit(0)\n os.setsid(); time.sleep(0.005)"


#: What is left behind, and how it ends; the first five by default, the others end the same processes otherwise.
_ENDS = (
    (_SLEEP, "sys.exit(0)"),
    (_SLEEP, "os.kill(os.getppid(), signal.SIGSTOP); time.sleep(60)"),
    (_SLEEP, "os.kill(SUPERVISOR, signal.SIGSTOP); time.sleep(60)"),
    (_SLEEP, "os.killpg(os.getpgid(SUPERVISOR), signal.SIGKILL); time.sleep(60)"),
    (_HOP, "os.kill(SUPERVISOR, signal.SIGKILL); time.sleep(60)"),
    (_SLEEP, "time.sleep(60)"),
    (_SLEEP, "os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"),
    (_SLEEP, "os.killpg(0, signal.SIGKILL)"),
    (_SLEEP, "os.killpg(0, signal.SIGSTOP)"),
    (_SLEEP, "os.kill(SUPERVISOR, signal.SIGTERM); time.sleep(60)"),
    (_SLEEP, "os.kill(SUPERVISOR, signal.SIGKILL); time.sleep(60)"),
    (_HOP, "time.sleep(60)"),
)


@_LINUX
@pytest.mark.parametrize(
    ("then", "at_last"), [*_ENDS[:5], *(pytest.param(*each, marks=pytest.mark.slow) for each in _ENDS[5:])]
)
def test_nothing_is_left_behind(start: Start, then: str, at_last: str) -> None:
    mark = f"left-behind-{time.monotonic_ns()}"
    process = start(
        f"MARK = {mark!r}\n{textwrap.dedent(_AWAY)}\n"
        f"SUPERVISOR = int(open(f'/proc/{{os.getppid()}}/stat').read().rpartition(')')[2].split()[1])\n"
        f"away({then!r})\nos.write(replies, b'away\\n')\n{at_last}"
    )
    began = time.perf_counter()
    said = list(process.replies(within(allowed_s(0.5))))
    process.end()
    assert said == [b"away"] and time.perf_counter() - began < allowed_s(4.0)
    assert living(mark) == []


@_LINUX
def test_nothing_is_left_of_a_fork_that_ends_the_supervisor() -> None:
    mark = f"left-behind-{time.monotonic_ns()}"

    def work(_begin: Callable[[], None]) -> None:
        subprocess.Popen([sys.executable, "-c", _SLEEP, mark], start_new_session=True, env={})
        above = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(above), signal.SIGKILL)
        time.sleep(60)

    found = run_in_fork(work, "it", Deadline.after(20.0))
    assert (found.end, found.words) == (End.ENDED, "it: process was ended by SIGKILL")
    assert living(mark) == []


@_LINUX
def test_a_supervisor_that_cannot_adopt_says_so(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Path(supervisor.__file__).read_text()
    (tmp_path / "elsewhere.py").write_text(text.replace("SUBREAPER = 36", "SUBREAPER = -1"))
    monkeypatch.setattr(supervisor, "__file__", str(tmp_path / "elsewhere.py"))
    process = start("os.write(replies, b'line\\n')")
    assert list(process.replies(within(20))) == [b"line"]
    assert process.note == "no process is adopted (prctl: Invalid argument), and one may be left"
    monkeypatch.setattr(supervisor, "_PR_SET_CHILD_SUBREAPER", -1)
    found = run_in_fork(lambda _: print("said"), "it", Deadline.after(20.0))
    assert (found.end, found.printed) == (End.RETURNED, f"{process.note}\nsaid")


def test_other_children_are_left_alone(start: Start) -> None:
    mark = f"not-its-own-{time.monotonic_ns()}"
    with subprocess.Popen([sys.executable, "-c", _SLEEP, mark], start_new_session=True) as other:
        process = start("sys.exit(0)")
        assert list(process.replies(within(20))) == []
        process.end()
        second = start("time.sleep(60)")
        process = start("time.sleep(60)")
        process.end()
        assert other.poll() is None and second.ending() == ""
        other.kill()


@_LINUX
def test_a_stopped_supervisor_is_ended_with_all_below_it(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "_END_S", 0.3)
    mark = f"left-behind-{time.monotonic_ns()}"
    stops = "import os, signal, sys\nwhile True: os.kill(int(sys.argv[2]), signal.SIGSTOP)"
    process = start(f"""
        import subprocess
        supervisor = open(f'/proc/{{os.getppid()}}/stat').read().rpartition(')')[2].split()[1]
        subprocess.Popen([sys.executable, "-c", {stops!r}, {mark!r}, supervisor], start_new_session=True, env={{}})
        time.sleep(0.3)
        os.write(replies, b"stopped\\n")
        time.sleep(60)
    """)
    assert list(process.replies(within(1.0))) == [b"stopped"]
    process.end()
    assert living(mark) == []


@_LINUX
def test_it_ends_with_the_planner(tmp_path: Path) -> None:
    mark = f"left-behind-{time.monotonic_ns()}"
    (tmp_path / "foreign.py").write_text(
        "import os, sys, time\n"
        f"def main(requests, replies):\n MARK = {mark!r}\n{textwrap.indent(textwrap.dedent(_AWAY), ' ')}\n"
        f" away({_SLEEP!r})\n os.write(replies, b'away\\n')\n time.sleep(60)\n"
    )
    code = (
        f"import os, sys; sys.path.insert(0, {str(tmp_path)!r}); from planner.process.supervised import Supervised\n"
        "process = Supervised('foreign', 'it'); next(process.replies(lambda: False)); print(os.getpid(), flush=True)\n"
        "import time; time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as planner:
        assert planner.stdout is not None and planner.stdout.readline()
        wait_for(lambda: living(mark))
        planner.kill()
    wait_for(lambda: not living(mark))


@_LINUX
def test_the_supervisor_knows_its_descendants_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", _SLEEP]) as child:
        assert child.pid in [number for number, _, _ in supervisor._descendants(os.getpid())]
        assert supervisor.end_descendants(child.pid) == 0 and child.poll() is None
        child.send_signal(signal.SIGKILL)
