"""The processes of solvers: started, kept for the next task, killed where a run is stopped.

Only this side of `solvers.external` is imported by the program itself; it needs no solver.
"""

import io
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from solvers.callback_bridge import Relay
from solvers.external.messages import (
    FAILURES,
    LENGTH_BYTES,
    OWN,
    Bound,
    CpTask,
    Ended,
    LpTask,
    Outcome,
    Ready,
    Refused,
    Solution,
    Stop,
    Task,
)
from solvers.fork_lock import ForkLock
from solvers.outcome import OPTIMAL_GAP, Limits, Watch, relative_gap
from solvers.outcome import Stop as Why
from solvers.trust.pins import BackendError

#: How often a run checks whether it was stopped, in seconds.
POLL_S = 0.05
#: A solver that knows its time limit may take this much longer before it is killed: it reports at the end.
GRACE_S = 0.5
#: One of ours is requested to stop, and killed after this; a method that does not return within 0.4 s is left behind.
OWN_GRACE_S = 0.25
#: Messages that wait until they are read: a solver that finds more waits as well.
_WAITING = 2
#: So much of what a solver printed last is read for the words with which it aborted.
_LAST_BYTES = 1 << 16
#: A process whose answers have ended gets this long to end as well; one that goes on sent what cannot be read.
_END_S = 1.0
#: A process that was sent a task of more bytes is ended after it: it may keep 20 times as much memory.
LARGE_BYTES = 1 << 22
#: What is read at once.
_PART_BYTES = 1 << 20

#: Everything that is imported here can be imported there, and nothing else.
_COMMAND = "import sys; sys.path[:] = {path}; from solvers.external.__main__ import main; main({name!r}, {number})"

#: All that were started and not killed.
_living: "set[Process]" = set()
#: Processes that wait for a task, by the name of their solver.
_idle: "dict[str, list[Process]]" = {}


class StartError(BackendError):
    """No process of a solver takes tasks: why, in words that follow its name."""


def import_path() -> list[str]:
    """``sys.path`` for other processes: whole paths, without those into a working folder that is gone."""
    found = []
    for each in sys.path:
        with suppress(FileNotFoundError):
            found.append(str(Path(each or ".").absolute()))
    return found


class Process:
    """The process of a solver. Its messages come through `next`, ``None`` stands for its end.

    Its pipes have neither buffers nor locks: in a forked process a buffer would be written once more, and nobody would
    release a lock.
    """

    def __init__(self, name: str) -> None:
        self.name, self.version, self.is_ready = name, name, False
        #: Of the largest message that it was sent.
        self.sent_bytes = 0
        self._owner, self._over = os.getpid(), threading.Event()
        try:
            self._printed = tempfile.TemporaryFile(buffering=0) if name in OWN else None  # noqa: SIM115 - closed by `kill`
            self._running, self._answers = self._start()
        except OSError as error:
            raise StartError(f"its process cannot be started: {error}") from None
        _living.add(self)
        self._messages: queue.Queue[Any] = queue.Queue(_WAITING)
        threading.Thread(target=self._read, name=f"{name}-answers", daemon=True).start()

    def _start(self) -> tuple[subprocess.Popen[bytes], io.FileIO]:
        """It and its answers: not on its stdout, where whatever is imported at its start may print."""
        if os.name != "posix":  # a process is given no other pipe there
            running = self._popen(1, stdout=subprocess.PIPE)
            assert isinstance(running.stdout, io.FileIO)
            return running, running.stdout
        ours, theirs = os.pipe()
        answers = io.FileIO(ours)
        try:
            return self._popen(theirs, stdout=subprocess.DEVNULL, pass_fds=(theirs,)), answers
        except OSError:
            answers.close()
            raise
        finally:
            os.close(theirs)

    def _popen(self, number: int, **streams: Any) -> subprocess.Popen[bytes]:
        command = _COMMAND.format(path=import_path(), name=self.name, number=number)
        return subprocess.Popen(
            [sys.executable, "-P", "-c", command],
            bufsize=0,
            stdin=subprocess.PIPE,
            stderr=self._printed or subprocess.DEVNULL,
            start_new_session=True,
            **streams,
        )

    @property
    def pid(self) -> int:
        """Its number."""
        return self._running.pid

    def _read(self) -> None:
        with suppress(Exception):  # whatever is cut off, the process has ended
            while True:
                self._put(pickle.loads(self._exactly(int.from_bytes(self._exactly(LENGTH_BYTES), "big"))))
        self._put(None)
        self._over.wait()  # it would fail if nobody could read it any more
        self._answers.close()

    def _exactly(self, length: int) -> bytes:
        parts = []
        while length:
            part = self._answers.read(min(length, _PART_BYTES))
            if not part:
                raise EOFError
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _put(self, message: Any) -> None:
        """Hand a message on; while nobody reads, the solver waits."""
        while not self._over.is_set():
            with suppress(queue.Full):
                self._messages.put(message, timeout=1.0)
                return

    def send(self, message: Task | CpTask | LpTask | Stop) -> None:
        """Hand a task over; one that cannot be is answered by the end of the process."""
        assert self._running.stdin is not None
        content = memoryview(pickle.dumps(message))
        self.sent_bytes = max(self.sent_bytes, len(content))
        with suppress(OSError, ValueError):  # it has ended, or is a forked process's no more
            while content:
                content = content[self._running.stdin.write(content) :]

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._running.poll() is None

    def next(self, seconds: float) -> Any:
        """The next message; ``queue.Empty`` if none comes in time."""
        return self._messages.get(timeout=seconds)

    def ending(self) -> str:
        """How it has ended, in words, with its own last ones."""
        if self._owner != os.getpid():
            return "its process is that of the process from which this one was forked"
        try:
            code = self._running.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "its process answered what cannot be read"
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        printed = b""
        if self._printed is not None:
            self._printed.seek(max(0, self._printed.seek(0, os.SEEK_END) - _LAST_BYTES))
            printed = self._printed.read()
        said = next((line for line in printed.decode(errors="replace").splitlines() if line.strip()), "")
        return f"its process {how}" + f" ({said.strip()})" * bool(said)

    def kill(self) -> None:
        """End the process, and what it has started."""
        if self._owner != os.getpid():
            return
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._running.pid, signal.SIGKILL)
            else:
                self._running.kill()
        self._running.wait()
        _living.discard(self)
        self._over.set()
        for pipe in (self._running.stdin, self._printed):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def leave(self) -> None:
        """In a process that was forked: it is the parent's, which ends it, and has no messages here."""
        self._messages = queue.Queue()
        self._messages.put(None)
        self._running.returncode = 0  # or `Popen` would look for it among the children
        assert self._running.stdin is not None
        self._running.stdin.close()
        self._answers.close()


def _leave_all() -> None:
    """A forked process has no part in its parent's processes."""
    for each in _living:
        each.leave()
    _living.clear()
    _idle.clear()


_lock = ForkLock(_leave_all)


def run_task(
    name: str, task: Task | CpTask | LpTask, watch: Watch, relay: Relay, seen: Callable[[Any], Any]
) -> tuple[Ended, str]:
    """How a solver's run on a task ended, and its name and version; stopped where the watch or the relay asks for it.

    ``name``: as ``--solver`` takes it, or of one of ours.
    ``task``: its ``seconds`` are replaced by what the watch leaves.
    ``relay``: receives solutions, as ``seen`` makes them of values by column, and bounds.
    `BackendError` if there is no such solver, or it does not know an option.
    """
    try:
        process = _ready(name, watch)
    except StartError as failed:
        return Ended(Outcome.ABORTED, words=str(failed)), name
    if process is None:
        return Ended(Outcome.LIMIT), ""
    best, is_free = Ended(Outcome.LIMIT), False
    try:
        process.send(replace(task, seconds=watch.remaining_s()))
        grace = None
        while not relay.failed:
            if watch.stopped() and grace is None:
                grace = time.perf_counter() + _grace_s(process, watch)
            try:
                message = process.next(POLL_S)
            except queue.Empty:
                if grace is not None and time.perf_counter() >= grace:
                    return best, process.version
                continue
            match message:
                case Solution(values, objective):
                    best = replace(best, values=values, objective=objective)
                    relay.solution(seen(values))
                case Bound(value):
                    best = replace(best, bound=value)
                    relay.bound(value)
                case Refused(rule):
                    is_free = True
                    raise BackendError(f"solver {name}: expected {rule}")
                case Ended():
                    is_free = True
                    if message.values is not None and best.values is None and name not in OWN:
                        relay.solution(seen(message.values))  # it says nothing before its end
                    return _better(message, best, task), process.version
                case None:
                    return replace(best, outcome=Outcome.ABORTED, words=process.ending()), process.version
        return best, process.version
    finally:
        if is_free:
            _keep(process)
        else:
            process.kill()


def stop_of(
    outcome: Outcome,
    objective: float | None,
    bound: float | None,
    limits: Limits,
    watch: Watch,
    has_objective: bool,
    is_minimum: bool,
) -> Why:
    """Why a run stopped whose solver ended like this, with an objective and a bound in the model's own sense."""
    if outcome is Outcome.INFEASIBLE or (outcome is Outcome.SOLVED and not has_objective):
        return Why.PROVED
    if outcome is Outcome.SOLVED:  # also said where the caller's gap was reached; without a bound nothing is proved
        if objective is None or bound is None:
            return Why.COMPLETED
        gap = relative_gap(*((objective, bound) if is_minimum else (-objective, -bound)))
        return Why.PROVED if gap is None or gap <= OPTIMAL_GAP else Why.COMPLETED
    is_limited = outcome not in FAILURES and limits.time_s is not None
    return watch.why(Why.TIME_LIMIT if is_limited else Why.COMPLETED)


def _keep(process: Process) -> None:
    """Let a process wait for its next task; end it where another one waits, or its last one was large."""
    with _lock.own:
        waiting = _idle.setdefault(process.name, [])
        is_kept = not waiting and process.sent_bytes <= LARGE_BYTES
        if is_kept:
            waiting.append(process)
    if not is_kept:
        process.kill()


def _grace_s(process: Process, watch: Watch) -> float:
    """What a solver gets to end by itself; one of ours is requested to."""
    if process.name in OWN:
        process.send(Stop())
        return OWN_GRACE_S
    return GRACE_S if watch.why() is Why.TIME_LIMIT else 0.0


def _better(message: Ended, best: Ended, task: Task | CpTask | LpTask) -> Ended:
    """What a solver states at its end, with the best solution that it reported before: that may be a better one."""
    if best.objective is None or (message.values is not None and not isinstance(task, Task)):
        return message
    if message.objective is not None:
        improved = best.objective < message.objective
        if improved is not task.is_minimum or best.objective == message.objective:
            return message
    return replace(message, values=best.values, objective=best.objective)


def prepared_version(name: str) -> str:
    """Name and version of a solver, whose process waits afterwards; `BackendError` if there is no such solver."""
    process = _ready(name, Watch())
    assert process is not None  # this watch is never stopped
    with _lock.own:
        _idle.setdefault(name, []).append(process)
    return process.version


def start(name: str) -> None:
    """Let a process begin to start, if none waits: whoever calls this before a clock starts does not pay for it."""
    with _lock.own, suppress(StartError):  # whoever needs it says so
        waiting = _idle.setdefault(name, [])
        if not waiting:
            waiting.append(Process(name))


def prepare(name: str) -> None:
    """Wait until a process takes tasks, if one can: as `start`."""
    with suppress(BackendError):
        prepared_version(name)


def _take_process(name: str) -> Process:
    """A process that waits, or a new one."""
    while True:
        with _lock.own:
            waiting = _idle.get(name)
            process = waiting.pop() if waiting else Process(name)
        if process.is_alive:
            return process
        process.kill()


def _ready(name: str, watch: Watch) -> Process | None:
    """A process that takes a task; ``None`` if the watch was stopped first."""
    process = _take_process(name)
    while not process.is_ready:
        try:
            message = process.next(POLL_S)
        except queue.Empty:
            if not watch.stopped():
                continue
            process.kill()
            return None
        except BaseException:
            process.kill()
            raise
        if isinstance(message, Ready):
            process.version, process.is_ready = message.version, True
            break
        words = process.ending() if message is None and process.name in OWN else ""
        process.kill()
        if watch.stopped():
            return None
        if name in OWN:
            raise StartError(words or f"its process needs {message.rule}")
        raise BackendError(_why_unusable(name, message))
    return process


def _why_unusable(name: str, message: Any) -> str:
    """What is wrong with a solver that takes no tasks: it is not there, or its library does not load."""
    from solvers.external.names import installed_solvers

    if isinstance(message, Refused) and message.rule:
        return f"solver is {name!r}; expected {message.rule}"
    return f"solver is {name!r}; expected one of those that are installed: {', '.join(installed_solvers())}"
