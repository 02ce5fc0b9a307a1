"""Work with a user's code in a fork of this process: what was imported once (PyTorch takes seconds) is there.

`run_in_fork` waits for it until a deadline and says what came of it. `planner.process.supervised` ends what it started.
"""

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from instances.errors import InstanceError
from planner.process import supervisor
from planner.process.errors import UsageError
from planner.process.signals import defer, pending
from planner.process.supervised import Supervised
from planner.process.target import words

#: Seconds that the work has after its deadline, once it has begun to keep the deadline itself.
_GRACE_S = 2.0
_POLL_S = 0.005
_LONGEST_S = 1e9

#: Tells this process that the work keeps its deadline itself from now on.
Begin = Callable[[], None]


@dataclass(frozen=True)
class Deadline:
    """The moment ``until``, by a clock that forks share, ``limit_s`` seconds after work began."""

    limit_s: float
    until: float

    @classmethod
    def after(cls, limit_s: float) -> "Deadline":
        """So many seconds from now on."""
        return cls(limit_s, time.monotonic() + min(limit_s, _LONGEST_S))

    def left_s(self) -> float:
        """Seconds that are left."""
        return max(0.0, self.until - time.monotonic())

    def late_words(self, name: str) -> str:
        """In words, that what is called so is late."""
        return f"{name} is not done after {self.limit_s:g} s; expected an end within --time-limit"


def expect_limit(limit_s: float) -> None:
    """`UsageError` unless it is seconds: 0 or more, infinitely many as well."""
    if math.isnan(limit_s) or limit_s < 0:
        raise UsageError.at("--time-limit", limit_s, "seconds, 0 or more")


class End(StrEnum):
    """How work in a fork ended."""

    RETURNED = "returned"
    REFUSED = "refused"
    BROKEN = "broken"
    ENDED = "ended"
    LATE = "late"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Outcome:
    """What came of work in a fork: a value in JSON types if it returned, else words in one line.

    ``has_begun``: it had called its `Begin`; ``printed`` is the end of what it printed, after what its
    supervisors cannot do here.
    """

    end: End
    value: Any = None
    words: str = ""
    has_begun: bool = False
    printed: str = ""


def run_in_fork(work: Callable[[Begin], Any], name: str, deadline: Deadline, file: str = "") -> Outcome:
    """What comes of ``work(begin)`` in a fork of this process; none of its processes is left.

    ``work``: returns JSON types. Its `UsageError` and `InstanceError` are ``REFUSED``, and so is every error that comes
    from the user's code.
    ``name``, ``file``: what the user calls the code, and the file that it is in.
    ``deadline``: it is ended then, a moment later if it has begun to keep the deadline itself.
    `RuntimeError`: another error, with its traceback: a bug of ours.
    """
    with defer(briefly=True):
        found = _follow(Forked(partial(_serve, work, name, file), name), deadline)
    if found.end is End.BROKEN:
        raise RuntimeError(found.words)
    return found


def _follow(process: Supervised, deadline: Deadline) -> Outcome:
    has_begun, last = False, None

    def over() -> bool:
        return pending() is not None or time.monotonic() > deadline.until + _GRACE_S * has_begun

    try:
        for line in process.replies(over):
            reply = _parse_reply(line)
            if reply is None:
                continue
            if reply["kind"] == "began":
                has_begun = True
                continue
            last = reply
            break
        is_over = over()
    finally:
        process.end()
    printed = "\n".join(filter(None, [process.note, process.output_tail()]))
    if pending() is not None:
        return Outcome(End.INTERRUPTED, has_begun=has_begun)
    if last is not None:
        return Outcome(End(last["kind"]), last.get("value"), last.get("words", ""), has_begun, printed)
    if is_over:
        return Outcome(End.LATE, words=deadline.late_words(process.name), has_begun=has_begun, printed=printed)
    return Outcome(End.ENDED, words=f"{process.name}: process {process.ending()}", has_begun=has_begun, printed=printed)


def _parse_reply(line: bytes) -> dict[str, Any] | None:
    """A reply; ``None`` for anything else, as the user's code may write into the pipe."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    kinds = ("began", End.RETURNED, End.REFUSED, End.BROKEN)
    if not isinstance(content, dict) or content.get("kind") not in kinds:
        return None
    return content if isinstance(content.get("words", ""), str) else None


class Forked(Supervised):
    """A fork of this process that calls ``main(replies)``, with its own standard streams, and ends."""

    def __init__(self, main: Callable[[int], None], name: str) -> None:
        self._main = main
        super().__init__("", name)

    def _start(self, _module: str, _requests: int, replies: int, output: int) -> Any:
        def main() -> None:
            _lead_nowhere(replies)
            supervisor.stand_between([replies], partial(_in_fork, self._main, replies))

        return _Fork(main, output)


def _in_fork(main: Callable[[int], None], replies: int) -> None:
    owner = os.getpid()
    sys.stdout = sys.stderr = io.TextIOWrapper(
        io.FileIO(2, "w", closefd=False), encoding="utf-8", errors="backslashreplace", write_through=True
    )
    with suppress(BaseException):  # it has said what there is to be said
        main(replies)
    os._exit(0 if os.getpid() == owner else 1)


def _lead_nowhere(kept: int) -> None:
    """Let all descriptors but the standard streams and one lead nowhere; none is closed, as objects may own it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/dev/fd")):
        if number > 2 and number not in (kept, nothing):
            with suppress(OSError):  # the one by which they were listed
                os.fstat(number)
                os.dup2(nothing, number, inheritable=False)


class _Fork:
    """As much of `subprocess.Popen` as `Supervised` needs, of a fork that calls ``main``."""

    def __init__(self, main: Callable[[], None], output: int) -> None:
        ours = os.getpid()
        for each in (sys.stdout, sys.stderr):
            if each is not None:
                each.flush()
        theirs, mine = os.pipe()
        self.stdin = io.FileIO(mine, "w")
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid:
            os.close(theirs)
            return
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # not those of the command line
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            os.close(mine)
            for number, stream in ((theirs, 0), (output, 1), (output, 2)):
                os.dup2(number, stream)
            main()
        finally:
            if os.getpid() != ours:
                os._exit(1)

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; ``None``: it has not ended."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The same, when it has ended; `subprocess.TimeoutExpired`."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("a fork", timeout or 0.0)
            time.sleep(_POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def _serve(work: Callable[[Begin], Any], name: str, file: str, replies: int) -> None:
    """Do the work and say what came of it; a process that the user's code forked has nothing to say."""
    owner = os.getpid()

    def say(kind: str, **more: Any) -> None:
        if os.getpid() != owner:
            os._exit(0)
        line = json.dumps({"kind": kind, **more}).encode() + b"\n"
        while line:
            line = line[os.write(replies, line) :]

    try:
        say(End.RETURNED, value=work(partial(say, "began")))
    except (UsageError, InstanceError) as error:
        say(End.REFUSED, words=" ".join(str(error).split()))
    except BaseException as error:  # SystemExit as well
        if not isinstance(error, Exception) or isinstance(error, MemoryError) or _comes_from(error, file):
            rule = "a function, and a model, that return"
            say(End.REFUSED, words=f"{name}: call is {words(error, file)!r}; expected {rule}")
        else:
            say(End.BROKEN, words="".join(traceback.format_exception(error)))


def _comes_from(error: BaseException, file: str) -> bool:
    """Whether an error was raised below a line of a file."""
    return bool(file) and any(frame.filename == file for frame in traceback.extract_tb(error.__traceback__))
