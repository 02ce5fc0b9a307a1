"""Start the processes of a run, watch them, and leave none behind.

Processes are forked after torch was imported once (importing it in each takes seconds). They end with this one,
whatever ends it, and when one of them dies or a time limit comes, all are ended.
"""

import io
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from planner.process.errors import UsageError
from planner.process.signals import pending
from planner.training.forked import Deadline

_POLL_S = 0.1


class RunError(Exception):
    """A process of the run died, failed or did not come back: one line."""


class InterruptedRunError(Exception):
    """A signal came; all processes were ended."""


@dataclass
class _Child:
    name: str
    process: Any
    pipe: Any
    result: Any = None
    is_done: bool = False


def run_all(work: Callable[[int], Any], names: list[str], deadline: Deadline) -> list[Any]:
    """``work(rank)`` in a forked process for each name; their results, which torch must be able to save.

    `RunError` if one dies, raises, or is not done at the deadline.
    `InterruptedRunError` if a signal was noted.
    `UsageError` if this system cannot fork.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        raise UsageError.at("planner run", sys.platform, "a system that forks processes, such as Linux")
    children = []
    try:
        for rank, name in enumerate(names):
            children.append(_start(work, rank, name))
        _collect(children, deadline)
    finally:
        for child in children:
            if child.process.is_alive():
                child.process.kill()
        for child in children:
            child.process.join()
            child.pipe.close()
    return [child.result for child in children]


def _start(work: Callable[[int], Any], rank: int, name: str) -> _Child:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    process = context.Process(target=_child, args=(work, rank, sender), daemon=True)
    process.start()
    sender.close()
    return _Child(name, process, receiver)


def _child(work: Callable[[int], Any], rank: int, pipe: Any) -> None:
    """The body of a process. This process decides nothing about signals: its parent ends it."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()
    try:
        content = {"result": work(rank)}
    except Exception as error:
        content = {"error": failure_words(error), "when": time.monotonic()}
    buffer = io.BytesIO()
    torch.save(content, buffer)
    pipe.send_bytes(buffer.getvalue())
    pipe.close()
    os._exit(0)


def failure_words(error: Exception) -> str:
    """What an error says, in one line."""
    return " ".join("".join(traceback.format_exception_only(error)).split())[:300]


def _end_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def _collect(children: list[_Child], deadline: Deadline) -> None:
    while not all(child.is_done for child in children):
        if pending() is not None:
            raise InterruptedRunError
        if not deadline.left_s():
            raise RunError(deadline.late_words(next(child.name for child in children if not child.is_done)))
        failures = _receive(children)
        if failures:
            failures += _receive(children)  # those that were connected with one that died fail as well
            raise RunError(min(failures)[1])


def _receive(children: list[_Child]) -> list[tuple[float, str]]:
    """Take what arrives within a moment; failures with their times, first those that died and could say nothing."""
    import torch

    waiting = {child.pipe: child for child in children if not child.is_done}
    failures = []
    for pipe in connection.wait(list(waiting), _POLL_S):
        child = waiting[pipe]
        child.is_done = True
        try:
            content = torch.load(io.BytesIO(child.pipe.recv_bytes()), weights_only=False)
        except EOFError:
            child.process.join()
            failures.append((0.0, f"{child.name} {_ending(child.process.exitcode)}"))
            continue
        if "error" in content:
            failures.append((content["when"], f"{child.name} failed: {content['error']}"))
        child.result = content.get("result")
    return failures


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code}"
