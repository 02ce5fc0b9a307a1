"""Code that is not the planner's, in a process of its own: it has until a moment, replies, and leaves nothing behind.

The one way to run what a user wrote. The process runs ``main(requests, replies)`` of a module, with the numbers of two
pipes; `Supervised.send` and `Supervised.replies` are this side of them. On that side `supervisor.receive` takes what
was sent, and a reply is a line of bytes. What comes back is foreign: parse it by a schema.

::

    process = Supervised("planner.plugins.runner", "./mine.py:solve")
    try:
        process.send(anything_that_pickles)
        for line in process.replies(over=lambda: time.perf_counter() > until):
            ...  # judge the line; leaving the loop is fine
    finally:
        process.end()  # whatever happened: nothing that it started is left
    process.ending(), process.output_tail()  # in words, if it ended by itself; and the last of what it printed

No Ctrl-C reaches the process, as it has a session of its own. It ends with the planner, whatever ends that.
"""

import json
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from planner.process import supervisor
from solvers.external.process import import_path

_POLL_S = 0.02
#: Seconds for what was said until then; no more of it is judged.
_REST_S = 0.1
#: Seconds for the supervisor to end all processes, before this process does it.
_END_S = supervisor.END_S + 2.0
#: Longer replies are none.
MOST_BYTES = 1 << 26
#: What is kept of what is printed: the end.
_PRINTED_BYTES = 1 << 12
_PART_BYTES = 1 << 16
#: And of the last line of it, in words about its end.
_LAST_WORDS = 200
_NOTE_BYTES = 1 << 8


def how_ended(code: int) -> str:
    """An exit code, negative for a signal, in words that continue the name of a process."""
    if code >= 0:
        return f"ended with exit code {code}"
    named = {int(each): each.name for each in signal.Signals}  # not those between SIGRTMIN and SIGRTMAX
    return f"was ended by {named.get(-code, f'signal {-code}')}"


class Supervised:
    """A process that runs ``main(requests, replies)`` of ``module``; ``end`` has to be called.

    ``name`` is what the user calls the code. It has no standard input, and what it prints is kept, the end of it.
    ``note`` says what its supervisors cannot do on this system; empty: nothing.
    """

    def __init__(self, module: str, name: str) -> None:
        self.name, self.note = name, ""
        self._fault, self._is_ended = "", False
        self._unsent: list[memoryview] = []
        self._lines: deque[bytes] = deque()
        self._line: list[bytes] = []  # parts of one that is not whole yet
        self._line_bytes = 0
        self._output = b""
        theirs, self._requests = os.pipe()
        self._replies, answers = os.pipe()
        self._prints, output = os.pipe()
        try:
            self._process = self._start(module, theirs, answers, output)
        except BaseException:
            self._close()
            raise
        finally:
            for number in (theirs, answers, output):
                os.close(number)
        self._poll = select.poll()
        for number in (self._replies, self._prints):
            self._poll.register(number, select.POLLIN)
        for number in (self._requests, self._replies, self._prints):
            os.set_blocking(number, False)

    def _start(self, module: str, requests: int, replies: int, output: int) -> subprocess.Popen[bytes]:
        paths = json.dumps(import_path())
        return subprocess.Popen(
            # unbuffered; nothing of the working folder is imported; no bytecode, which may be older than the file
            [sys.executable, "-u", "-P", "-B", supervisor.__file__, paths, module, str(requests), str(replies)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=(requests, replies),
            start_new_session=True,
        )

    def send(self, request: Any) -> None:
        """Send an object, which `supervisor.receive` takes. It leaves while `replies` waits: nothing blocks here."""
        content = pickle.dumps(request)
        self.send_bytes(len(content).to_bytes(supervisor.LENGTH_BYTES, "big") + content)

    def send_bytes(self, content: bytes) -> None:
        """Send bytes as they are; a process that has ended takes none, and `replies` shows it."""
        self._unsent.append(memoryview(content))
        self._poll.register(self._requests, select.POLLOUT)
        self._move(0.0)

    def replies(self, over: Callable[[], bool]) -> Iterator[bytes]:
        """The lines that the process says until it has ended, or until ``over()``, whatever it says: then `end` it."""
        while not over():
            if self._lines:
                yield self._lines.popleft()
                continue
            has_ended = self._process.poll() is not None
            is_moving = self._move(0.0 if has_ended else _POLL_S)
            if self._fault or (has_ended and not is_moving):
                break
        until = time.perf_counter() + _REST_S
        while (self._lines or (not self._fault and self._move(0.0))) and time.perf_counter() < until:
            if self._lines:
                yield self._lines.popleft()

    def ending(self) -> str:
        """How the process ended by itself, in words that continue its name; empty: it did not."""
        code = self._process.poll()
        return self._fault if self._fault or code is None else how_ended(code)

    def last_words(self, code: int | None = None) -> str:
        """The same, or how a run in it ended with that exit code, with the last line that was printed."""
        ended = self.ending() if code is None else how_ended(code)
        lines = self.output_tail().splitlines()
        return f"{ended}, and printed last: {lines[-1][:_LAST_WORDS]}" if lines else ended

    def forget_output(self) -> None:
        """Forget what was printed until now, which its pipe holds at most."""
        self._move(0.0)
        self._output = b""

    def output_tail(self) -> str:
        """The end of what it printed, in lines without control characters."""
        text = self._output.decode(errors="replace")
        lines = ("".join(sign if sign.isprintable() else " " for sign in line).rstrip() for line in text.splitlines())
        return "\n".join(line for line in lines if line)

    def end(self) -> None:
        """End it and all processes that it started; can be called twice."""
        if not self._is_ended:
            self._is_ended = True
            self._end()
            self._close()

    def _end(self) -> None:
        process = self._process
        with suppress(OSError):
            process.send_signal(signal.SIGCONT)  # somebody may have stopped it
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            until = time.monotonic() + _END_S
            while supervisor.end_descendants(process.pid) and time.monotonic() < until:
                time.sleep(_POLL_S)
            process.kill()
        if process.wait() < 0:  # perhaps somebody has ended this supervisor
            self._wait_for_the_other()

    def _wait_for_the_other(self) -> None:
        """Wait until no supervisor lives: the second one holds the pipe of what is printed until it has ended all."""
        until = time.monotonic() + _END_S
        while time.monotonic() < until:
            try:
                part = os.read(self._prints, _PART_BYTES)
            except BlockingIOError:
                time.sleep(_POLL_S)
                continue
            if not part:
                return
            self._printed_more(part)

    def _move(self, seconds: float) -> bool:
        """Write and read what can be, after waiting for it; whether anything was read."""
        is_moving = False
        for number, _ in self._poll.poll(seconds * 1000):
            if number == self._requests:
                self._write()
                continue
            part = self._read(number)
            is_moving |= bool(part)
            if number == self._prints:
                self._printed_more(part)
            else:
                self._take(part)
        return is_moving

    def _printed_more(self, part: bytes) -> None:
        self._output = (self._output + part)[-_PRINTED_BYTES:]

    def _write(self) -> None:
        try:
            while self._unsent:
                written = os.write(self._requests, self._unsent[0])
                self._unsent[0] = self._unsent[0][written:]
                if not self._unsent[0]:
                    del self._unsent[0]
        except BlockingIOError:
            return
        except OSError:  # nobody reads
            self._unsent.clear()
        self._poll.unregister(self._requests)

    def _read(self, number: int) -> bytes:
        try:
            part = os.read(number, _PART_BYTES)
        except BlockingIOError:
            return b""
        if not part:
            self._poll.unregister(number)
        return part

    def _take(self, part: bytes) -> None:
        """Keep the lines that end in a part, and the beginning of the next one."""
        *lines, rest = part.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._line, lines[0]])
            self._line, self._line_bytes = [], 0
            self._lines.extend(line for line in lines if not self._note(line))
        self._line.append(rest)
        self._line_bytes += len(rest)
        if self._line_bytes > MOST_BYTES:
            self._fault = f"sent a reply of more than {MOST_BYTES} bytes"

    def _note(self, line: bytes) -> bool:
        """Keep what a supervisor itself says, cut off as anybody may write it."""
        is_note = line.startswith(supervisor.NOTE)
        if is_note:
            self.note = line.removeprefix(supervisor.NOTE)[:_NOTE_BYTES].decode(errors="replace")
        return is_note

    def _close(self) -> None:
        for number in (self._requests, self._replies, self._prints):
            os.close(number)
