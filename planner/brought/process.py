"""Start the process of a brought function, talk to it, and end it with all that it started."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from planner.brought.runner import LENGTH_BYTES
from planner.brought.target import Target

_POLL_S = 0.02
#: Replies longer than this are no plans.
MOST_BYTES = 1 << 28
_RUNNER = Path(__file__).with_name("runner.py")
#: Looks for processes that were started meanwhile.
_SWEEPS = 50

Reply = Mapping[str, Any]


class Process:
    """The process of one run; ``end`` has to be called.

    It has a session of its own, so that no Ctrl-C reaches it, no standard input, and prints to standard error.
    """

    def __init__(self, target: Target) -> None:
        self._mark = f"PLANNER_METHOD_{uuid.uuid4().hex}"
        self.name, self._fault, self._is_over = target.name, "", False
        theirs, self._requests = os.pipe()
        self._replies, answers = os.pipe()
        self._rest = b""  # a line that is not whole yet
        try:
            self._process = subprocess.Popen(
                # unbuffered; nothing of the working folder is imported; no bytecode, which may be older than the file
                [sys.executable, "-u", "-P", "-B", str(_RUNNER), str(theirs), str(answers)],
                stdin=subprocess.DEVNULL,
                stdout=_errors(),
                stderr=_errors(),
                pass_fds=(theirs, answers),
                start_new_session=True,
                env={**os.environ, self._mark: "1"},
            )
        except BaseException:
            for number in (self._requests, self._replies):
                os.close(number)
            raise
        finally:
            os.close(theirs)
            os.close(answers)
        self.send([str(Path(each or ".").absolute()) for each in sys.path])
        self.send(target)

    def send(self, request: Any) -> None:
        """Send an object; a process that has ended takes nothing, and `replies` shows it."""
        content = pickle.dumps(request)
        self._write(len(content).to_bytes(LENGTH_BYTES, "big") + content)

    def request_stop(self) -> None:
        """Stop the watch of a function that has one."""
        self._write(b"s")

    def replies(self, over: Callable[[], bool]) -> Iterator[Reply]:
        """What the process says, until it has ended; it is ended when ``over()``."""
        try:
            while True:
                if over():
                    self._kill()
                has_ended = self._process.poll() is not None
                ready, _, _ = select.select([self._replies], [], [], 0.0 if has_ended else _POLL_S)
                part = os.read(self._replies, 1 << 16) if ready else b""
                *lines, self._rest = (self._rest + part).split(b"\n")
                for line in lines:
                    yield dict(json.loads(line))
                if not part and has_ended:
                    return
                if ready and not part:
                    time.sleep(_POLL_S)  # it has closed its end, and goes on
                if len(self._rest) > MOST_BYTES:
                    self._fault = f"sent more than {MOST_BYTES} bytes"
                    return
        except (OSError, ValueError):
            self._fault = "wrote into the planner's pipes what is no plan"

    def ending(self) -> str:
        """How the process ended by itself, in words."""
        code = self._process.poll()
        if self._fault or code is None:
            return self._fault
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def end(self) -> None:
        """End it and all processes that it started; can be called twice."""
        if self._is_over:
            return
        self._is_over = True
        self._kill()
        for _ in range(_SWEEPS):
            if not _end_marked(self._mark):
                break
            time.sleep(_POLL_S)
        os.close(self._requests)
        os.close(self._replies)

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _write(self, content: bytes) -> None:
        left = memoryview(content)
        with suppress(BrokenPipeError):
            while left:
                left = left[os.write(self._requests, left) :]


def _errors() -> int:
    """Standard error, by its number; nothing where it is closed."""
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2


def _end_marked(mark: str) -> int:
    """End the processes that left the group, by the mark in their environment, where the system shows it; how many."""
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)
                found += 1
        except OSError:  # it has ended, or is another user's
            continue
    return found
