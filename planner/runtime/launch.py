"""Start the processes of a run, watch them, and leave none behind.

Processes are forked after torch was imported once (importing it in each takes seconds). They end with this one,
whatever ends it, and when one of them dies or a time limit comes, all are ended.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from planner.errors import UsageError
from planner.signals import noted

_POLL_S = 0.1
_FOLDER, _YOUNG_S = "planner-run-", 60.0


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


def run_all(work: Callable[[int], Any], names: list[str], time_limit: float) -> list[Any]:
    """``work(rank)`` in a forked process for each name; their results, which torch must be able to save.

    Raises
    ------
    RunError
        If one dies, raises, or is not done after ``time_limit`` seconds.
    InterruptedRunError
        If a signal was noted.
    UsageError
        If this system cannot fork.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        raise UsageError.at("planner run", sys.platform, "a system that forks processes, such as Linux")
    children = []
    try:
        for rank, name in enumerate(names):
            children.append(_start(work, rank, name))
        _collect(children, time_limit)
    finally:
        for child in children:
            if child.process.is_alive():
                child.process.kill()
        for child in children:
            child.process.join()
            child.pipe.close()
    return [child.result for child in children]


@contextmanager
def rendezvous() -> Iterator[str]:
    """The name of a file, not there yet, by which processes of this machine find each other.

    Its folder is locked by this process and those that it forks. A run that is killed leaves a folder without a lock,
    which the next run removes.
    """
    import fcntl

    _remove_left()
    with tempfile.TemporaryDirectory(prefix=_FOLDER) as folder:
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield os.path.join(folder, "store")
        finally:
            os.close(lock)


def _remove_left() -> None:
    """Remove the folders of runs that were killed: those of this user that no process has locked.

    Between making a folder and locking it, a run may be slow: young folders stay.
    """
    import fcntl

    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        try:
            found = folder.lstat()
            if (
                not stat.S_ISDIR(found.st_mode)
                or found.st_uid != os.getuid()
                or time.time() - found.st_mtime < _YOUNG_S
            ):
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:  # another run has just removed it, or it cannot be read
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its run is there
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


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
        said = " ".join("".join(traceback.format_exception_only(error)).split())[:300]
        content = {"error": said, "when": time.monotonic()}
    buffer = io.BytesIO()
    torch.save(content, buffer)
    pipe.send_bytes(buffer.getvalue())
    pipe.close()
    os._exit(0)


def _end_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def _collect(children: list[_Child], time_limit: float) -> None:
    until = time.monotonic() + time_limit
    while not all(child.is_done for child in children):
        if noted() is not None:
            raise InterruptedRunError
        if time.monotonic() > until:
            late = next(child.name for child in children if not child.is_done)
            raise RunError(f"{late} is not done after {time_limit:g} s; expected an end within --time-limit")
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
