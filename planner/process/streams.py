"""Standard output and error, which may be closed or full: no write fails, and what was lost is reported at the end."""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from planner.process import signals

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: What a command prints with ``--json`` if it is interrupted before it has anything: a result that holds nothing.
INTERRUPTED = (
    '{"problem": "", "instance": "", "method": "", "claim": "", "status": "unknown", "stop": "interrupted", '
    '"objective": null, "bound": null, "gap": null, "unit": "", "seconds": 0.0, "proved_by": null, '
    '"reason": "interrupted before anything was known", "solver": "", "seed": 0, "threads": 1, "options": {}, '
    '"stats": {}, "verified": false, "plan": null, "certificate": null, "loss": null, "clock": null, '
    '"fingerprint": null}\n'
)
BAD_INPUT = 2
BROKEN_PIPE = 128 + 13
_SHOW_CURSOR = b"\x1b[?25h"
#: Drafts of files: they are removed when the process is ended.
drafts: set[str] = set()


class Lasting(io.FileIO):
    """A stream that takes all that is written; ``failure`` is the first that was met, ``size`` the bytes so far."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w")
        self.failure: OSError | None = None
        self.size = 0

    def write(self, data: Buffer) -> int:
        """Write all of it; a signal does not cut it in two."""
        left = memoryview(data).cast("B")
        whole = len(left)
        with signals.defer(briefly=True):
            self.size += whole
            while left and self.failure is None:
                try:
                    written = super().write(left)
                except OSError as error:
                    self.failure = error
                    break
                if written is None:  # a stream that does not block, and takes nothing now
                    select.select((), (self,), ())
                left = left[written or 0 :]
        return whole


def lasting_streams() -> Lasting:
    """Replace the standard streams by lasting ones; returns standard output.

    Its number is given to standard error: HiGHS 1.12 sometimes prints a line from C, which ``--json`` forbids.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed; the next file that is opened must not take its place
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    out = Lasting(os.dup(1))
    sys.stdout = _text(out, sys.stdout)
    sys.stderr = _text(Lasting(os.dup(2)), sys.stderr)
    os.dup2(2, 1)
    return out


def exit_code_after_flush(code: int, out: Lasting) -> int:
    """The exit code, when all is printed: another one if standard output did not take it all."""
    sys.stdout.flush()
    sys.stderr.flush()
    if out.failure is None or code > BROKEN_PIPE:
        return code
    if isinstance(out.failure, BrokenPipeError):
        return BROKEN_PIPE
    print(f"standard output cannot be written: {out.failure.strerror}", file=sys.stderr, flush=True)
    return BAD_INPUT


def end(number: int, out: Lasting) -> None:
    """End the process for a signal: no draft stays behind, and with ``--json`` there is one object."""
    for draft in list(drafts):
        with suppress(OSError):
            os.unlink(draft)
    if "--json" in sys.argv[1:] and not out.size:
        out.write(INTERRUPTED.encode())
    if os.isatty(2):
        with suppress(OSError):
            os.write(2, _SHOW_CURSOR)  # a progress line hides it
    os._exit(128 + number)


def _text(stream: Lasting, before: object) -> io.TextIOWrapper:
    """The stream as text that takes every name, in the encoding of the one before (``None``: it was closed)."""
    encoding = getattr(before, "encoding", None) or "utf-8"
    return io.TextIOWrapper(stream, encoding=encoding, errors="backslashreplace", write_through=True)
