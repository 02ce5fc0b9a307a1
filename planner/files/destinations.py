"""Where a command may write: what is refused before any work, and what is written into rather than replaced."""

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from planner.files.rows import split_row
from planner.process.errors import UsageError
from planner.process.signals import pending

#: Links that are followed on the way to a descriptor, as many as Linux follows.
_MOST_LINKS = 40
#: Seconds in which somebody may begin to read a named pipe that is written into.
READER_S = 2.0
_POLL_S = 0.02


@contextmanager
def writable(path: str | Path, option: str) -> Iterator[None]:
    """Report in one line the system's error for a file that cannot be written."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, option, error) from None


def unwritable(path: str | Path, option: str, error: OSError) -> UsageError:
    """The one line for a file that cannot be written."""
    return UsageError.at(option, os.fspath(path), f"a file that can be written ({error.strerror or error})")


def refuse_overwriting(out: str, *sources: str, option: str = "--out") -> None:
    """`UsageError` if ``out`` cannot be written or is one of the files that were read: before any work is done."""
    with writable(out, option):
        number = _descriptor(out)
        mode = _mode_or_none(out) if number is None else os.fstat(number).st_mode
    if number is not None:
        return
    if mode is not None and stat.S_ISBLK(mode):
        raise UsageError.at(option, out, "a file, not a disk")
    if out.endswith(os.sep) or (mode is not None and stat.S_ISDIR(mode)):
        raise UsageError.at(option, out, "a file, not a folder")
    if mode is not None and not os.access(out, os.W_OK):
        raise UsageError.at(option, out, "a file that can be written")
    if mode is not None and not stat.S_ISREG(mode):
        return
    folder = os.path.dirname(os.path.realpath(out))
    if not out or not os.path.isdir(folder):
        raise UsageError.at(option, out, "a file in a folder that exists")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError.at(option, out, "a file in a folder that can be written")
    for source in (split_row(each)[0] for each in sources):
        if mode is not None and os.path.exists(source) and os.path.samefile(out, source):
            raise UsageError.at(option, out, "a file other than the input, which is never changed")


def refuse_outputs(outputs: Mapping[str, str | None], *sources: str) -> None:
    """`refuse_overwriting` for the file of every option, if it is given; no two of them may be one file."""
    known: dict[str, str] = {}
    for option, out in outputs.items():
        if out is None:
            continue
        refuse_overwriting(out, *sources, option=option)
        if _descriptor(out) is not None or not stat.S_ISREG(_mode_or_none(out) or stat.S_IFREG):
            continue
        first = known.setdefault(os.path.realpath(out), option)
        if first != option:
            raise UsageError.at(option, out, f"a file other than that of {first}")


def sink(path: str) -> BinaryIO | None:
    """What to write into, where a file must not be replaced; ``None``: a regular file, or none yet.

    `OSError` if it cannot be opened, or is a disk.
    """
    number = _descriptor(path)
    if number is not None:
        return os.fdopen(_duplicate(number), "wb")
    mode = _mode_or_none(path)
    if mode is None or stat.S_ISREG(mode):
        return None
    if stat.S_ISBLK(mode):
        raise OSError(errno.EPERM, "a disk is not written over")
    return os.fdopen(_open_for_writing(path), "wb")


def _open_for_writing(path: str) -> int:
    """A device or a pipe to write into; one that nobody reads is waited for, for a limited time."""
    until = time.perf_counter() + READER_S
    while True:
        try:
            number = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if pending() is not None or time.perf_counter() > until:
                raise OSError(errno.ENXIO, "nobody reads it") from None
            time.sleep(_POLL_S)
        else:
            os.set_blocking(number, True)
            return number


def _descriptor(path: str) -> int | None:
    """The process's own descriptor that a path leads to, as ``/dev/stdout`` and ``/dev/fd/63`` do."""
    own = os.path.realpath("/dev/fd")
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(path)
        folder = os.path.realpath(folder or os.curdir)
        if folder == own and name.isdecimal() and len(name) < 10:
            return int(name)
        try:
            path = os.path.join(folder, os.readlink(path))
        except (OSError, ValueError):
            return None
    return None


def _duplicate(number: int) -> int:
    """The descriptor once more; standard output is where results go, whatever else was done to its number."""
    stream = {1: sys.stdout, 2: sys.stderr}.get(number)
    if stream is not None:
        stream.flush()
        with suppress(OSError):  # a stream of a notebook or a test has no descriptor
            number = stream.fileno()
    return os.dup(number)


def _mode_or_none(path: str) -> int | None:
    """What the path leads to, as `os.stat` says it; ``None`` for nothing."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error)) from None
