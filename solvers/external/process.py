"""The processes of solvers: started, kept for the next task, killed where a run is stopped.

Only this side of `solvers.external` is imported by the program itself; it needs no solver.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from solvers.external.messages import Bound, Ended, Outcome, Ready, Refused, Solution, Task
from solvers.outcome import Stop, Watch
from solvers.pinned import BackendError
from solvers.relay import Relay

#: How often a run checks whether it was stopped, in seconds.
POLL_S = 0.05
#: A solver that knows its time limit may take this much longer before it is killed: it reports at the end.
GRACE_S = 0.5

#: All that were started and may still run.
_running: set[subprocess.Popen[bytes]] = set()
#: Processes that wait for a task, by the name of their solver.
_idle: dict[str, list[Process]] = {}
_lock = threading.Lock()


class Process:
    """The process of a solver. Its messages come through `next`, ``None`` stands for its end."""

    def __init__(self, name: str) -> None:
        self.name, self.version = name, name
        self._running = subprocess.Popen(
            [sys.executable, "-P", "-m", "solvers.external", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _running.add(self._running)
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._read, name=f"{name}-answers", daemon=True).start()

    def _read(self) -> None:
        assert self._running.stdout is not None
        with suppress(Exception):  # whatever is cut off, the process has ended
            while True:
                self._messages.put(pickle.load(self._running.stdout))
        self._messages.put(None)

    def send(self, task: Task) -> None:
        """Hand a task over; one that cannot be is answered by the end of the process."""
        assert self._running.stdin is not None
        with suppress(OSError):
            pickle.dump(task, self._running.stdin)
            self._running.stdin.flush()

    def next(self, seconds: float) -> Any:
        """The next message; ``queue.Empty`` if none comes in time."""
        return self._messages.get(timeout=seconds)

    def kill(self) -> None:
        """End the process, and what it has started."""
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._running.pid, signal.SIGKILL)
            else:
                self._running.kill()
        self._running.wait()
        _running.discard(self._running)
        for pipe in (self._running.stdin, self._running.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def ended(name: str, task: Task, watch: Watch, relay: Relay, seen: Callable[[Any], Any]) -> tuple[Ended, str]:
    """How a solver's run on a task ended, and its name and version; stopped where the watch or the relay asks for it.

    Parameters
    ----------
    name
        As ``--solver`` takes it.
    task
        Its ``seconds`` are replaced by what the watch leaves.
    relay
        Receives solutions, as ``seen`` makes them of values by column, and bounds.

    Raises
    ------
    BackendError
        If there is no such solver, or it does not know an option.
    """
    process = _ready(name, watch)
    if process is None:
        return Ended(Outcome.LIMIT), ""
    best, is_free = Ended(Outcome.LIMIT), False
    try:
        process.send(replace(task, seconds=watch.remaining_s()))
        grace = GRACE_S
        while True:
            try:
                message = process.next(POLL_S)
            except queue.Empty:
                stopped = watch.stopped()
                grace -= POLL_S if stopped else 0.0
                if relay.failed or (stopped and (grace <= 0 or watch.why() is not Stop.TIME_LIMIT)):
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
                    if message.values is not None and best.values is None:  # it says nothing before its end
                        relay.solution(seen(message.values))
                    return _better(message, best, task), process.version
                case None:
                    return replace(best, outcome=Outcome.FAILED, words="its process ended"), process.version
    finally:
        if is_free:
            with _lock:
                _idle.setdefault(name, []).append(process)
        else:
            process.kill()


def _better(message: Ended, best: Ended, task: Task) -> Ended:
    """What a solver states at its end, with the best solution that it reported before: that may be a better one."""
    if best.objective is None:
        return message
    if message.objective is not None:
        improved = best.objective < message.objective
        if improved is not task.matrix.is_minimum or best.objective == message.objective:
            return message
    return replace(message, values=best.values, objective=best.objective)


def prepared_version(name: str) -> str:
    """Name and version of a solver, whose process waits afterwards; `BackendError` if there is no such solver."""
    process = _ready(name, Watch())
    assert process is not None  # this watch is never stopped
    with _lock:
        _idle.setdefault(name, []).append(process)
    return process.version


def _ready(name: str, watch: Watch) -> Process | None:
    """A process that takes a task; ``None`` if the watch was stopped first."""
    with _lock:
        waiting = _idle.get(name)
        if waiting:
            return waiting.pop()
    process = Process(name)
    while True:
        try:
            message = process.next(POLL_S)
        except queue.Empty:
            if not watch.stopped():
                continue
            message = None
        except BaseException:
            process.kill()
            raise
        if isinstance(message, Ready):
            process.version = message.version
            return process
        process.kill()
        if watch.stopped():
            return None
        raise BackendError(_missing(name, message))


def _missing(name: str, message: Any) -> str:
    """What is wrong with a solver that takes no tasks: it is not there, or its library does not load."""
    from solvers.external.names import installed

    if isinstance(message, Refused) and message.rule:
        return f"solver is {name!r}; expected {message.rule}"
    return f"solver is {name!r}; expected one of those that are installed: {', '.join(installed())}"
