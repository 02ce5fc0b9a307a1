"""The process of a solver (`solvers.external.process`): it takes pickled tasks on stdin and answers on a descriptor."""

import ctypes
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from solvers.external.engine import RefusedError
from solvers.external.engines import engine_of
from solvers.external.messages import LENGTH_BYTES, Ended, Outcome, Ready, Refused, Stop, Task


def main(name: str, number: int) -> None:
    """Serve tasks until stdin ends, with answers on the descriptor ``number``.

    What solvers print goes nowhere, or to a task's log.
    """
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this decides
    send = _sender(number)
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    busy, stopped = threading.Event(), threading.Event()
    threading.Thread(target=_receive, args=(tasks, busy, stopped), daemon=True).start()
    try:
        engine = engine_of(name, stopped)
        send(Ready(engine.version()))
    except RefusedError as refused:
        send(Refused(str(refused)))
        return
    except Exception as error:  # a library that is broken is no solver either
        send(Refused(f"a solver that can be loaded ({type(error).__name__}: {error})"))
        return
    while (task := tasks.get()) is not None:
        busy.set()
        with _printing_to(task.log if isinstance(task, Task) else None):
            try:
                send(engine.solve(task, send))
            except RefusedError as refused:
                send(Refused(str(refused)))
            except Exception as error:  # the solver's own failure is an answer, not one of this process
                send(Ended(Outcome.FAILED, words=f"{type(error).__name__}: {error}"))
        busy.clear()


def _sender(number: int) -> Callable[[Any], None]:
    """What sends an answer; afterwards nobody else writes to the descriptor, which may be stdout's."""
    answers, one = os.fdopen(os.dup(number), "wb"), threading.Lock()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)

    def send(message: Any) -> None:
        content = pickle.dumps(message)
        with one:  # solvers call from threads of their own
            answers.write(len(content).to_bytes(LENGTH_BYTES, "big") + content)
            answers.flush()

    return send


def _receive(tasks: queue.SimpleQueue[Any], busy: threading.Event, stopped: threading.Event) -> None:
    """Hand on what comes in; when whoever started this has gone, end it with all that it started.

    A request to stop is for the task before it: it may come when that one has ended.
    """
    with suppress(EOFError, OSError):
        while True:
            message = pickle.load(sys.stdin.buffer)
            if isinstance(message, Stop):
                stopped.set()
                continue
            stopped.clear()
            tasks.put(message)
    if busy.is_set() and hasattr(os, "killpg"):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    tasks.put(None)


@contextmanager
def _printing_to(log: str | None) -> Iterator[None]:
    """Add what is printed, by Python and by C, to a file."""
    if log is None:
        yield
        return
    nowhere = os.dup(1)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)
        os.close(file)
