"""Files that anybody may have written: how much of them is read, how long one is waited for, and in which words.

The only place of these limits; docs/inputs.md lists them ("Limits of what is read").
"""

import errno
import gzip
import io
import os
import select
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from instances.errors import InstanceError

#: Larger files are refused rather than read into memory, also those that are so large when decompressed; so is a row of
#: a file of rows, and what a row group of a parquet file holds.
MAX_FILE_BYTES = 256 * 2**20
#: Rows of one file, and lines of a text that is taken apart by lines.
MAX_ROWS = 10**7
#: Bytes of all rows of one file, when decompressed.
MAX_ROWS_BYTES = 64 * MAX_FILE_BYTES
#: Seconds in which somebody may begin to write into a named pipe, and in which one who holds it open may be silent.
WRITER_S, SILENCE_S = 2.0, 60.0
_PIECE_BYTES = 2**20
_POLL_S = 0.02
#: Windows has neither of the first two, and opens files as text by default.
_AT_ONCE = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"))


def read_text(path: Path) -> str:
    """A file's UTF-8 text, or `InstanceError`."""
    with open_file(path) as file:
        return read_utf8(file, str(path))


def read_lines(path: Path) -> str:
    """The same of a file that is taken apart line by line, and may not have too many."""
    return expect_few_lines(read_text(path), str(path))


def expect_few_lines(text: str, where: str) -> str:
    """The text; `InstanceError` if it has too many lines to be taken apart."""
    if (lines := text.count("\n")) > MAX_ROWS:
        raise InstanceError.at(where, "lines", lines, f"at most {MAX_ROWS}")
    return text


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed if its name ends in ``.gz``; `InstanceError` for what cannot be read."""
    try:
        with _open_at_once(path) as file:
            if not is_compressed(path):
                yield file
                return
            with gzip.GzipFile(fileobj=file) as content:
                yield content  # type: ignore[misc]  # it is one in all but name
    except (EOFError, zlib.error) as error:
        raise InstanceError.at(str(path), "file", str(error), "a whole gzip file") from None
    except OSError as error:
        raise InstanceError.at(str(path), "file", error.strerror or str(error), "a readable file") from None


def is_compressed(path: str | Path) -> bool:
    """Whether a file's name says that it is compressed."""
    return os.fspath(path).endswith(".gz")


def read_utf8(file: BinaryIO, where: str) -> str:
    """The UTF-8 text of an open file; `InstanceError` if it is too large or no text."""
    data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise too_large(where, MAX_FILE_BYTES)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InstanceError.at(where, f"byte {error.start}", data[error.start], "UTF-8 text") from None


def read_line(file: BinaryIO, where: str) -> bytes:
    """The next line of a file, with its end; `InstanceError` if it is too long or holds a NUL, as no text does."""
    line = bytearray()
    while not line.endswith(b"\n") and (piece := file.readline(_PIECE_BYTES)):
        line += piece
        if 0 in piece:  # as an endless device gives them: no need to read on
            raise InstanceError.at(where, f"byte {line.index(0)} of a line", 0, "UTF-8 text")
        if len(line) > MAX_FILE_BYTES:
            raise too_large(where, MAX_FILE_BYTES)
    return bytes(line)


def too_large(where: str, most: int) -> InstanceError:
    """The error of a file, or a part of one, of more bytes."""
    return InstanceError.at(where, "size", f"over {most} bytes", "a smaller file")


@contextmanager
def _open_at_once(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file; a named pipe is not waited for without limit, as ``open`` would."""
    try:
        number = os.open(path, os.O_RDONLY | _AT_ONCE)
    except ValueError as error:  # a NUL in its name
        raise OSError(str(error)) from None
    try:
        os.set_blocking(number, not (is_pipe := stat.S_ISFIFO(os.fstat(number).st_mode)))
        with io.BufferedReader(_Pipe(number)) if is_pipe else open(number, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(number)


class _Pipe(io.RawIOBase):
    """A pipe that is read without blocking: whoever does not come, or is silent for too long, is an ``OSError``."""

    def __init__(self, number: int) -> None:
        self._number, self._is_held = number, False

    def readable(self) -> bool:
        """It is."""
        return True

    def fileno(self) -> int:
        """Its descriptor."""
        return self._number

    def readinto(self, buffer: Any) -> int:
        """Wait for bytes and read them; 0 at the end."""
        until = time.monotonic() + WRITER_S
        while True:
            try:
                data = os.read(self._number, len(buffer))
            except BlockingIOError:  # somebody holds it open
                self._is_held = True
                if not select.select((self._number,), (), (), SILENCE_S)[0]:
                    raise OSError(errno.ETIMEDOUT, f"nothing was written into it for {SILENCE_S:g} s") from None
                continue
            if data or self._is_held:
                buffer[: len(data)] = data
                self._is_held = True
                return len(data)
            if time.monotonic() > until:
                raise OSError(errno.ENXIO, f"nobody wrote into it for {WRITER_S:g} s; cat FILE | planner solve - waits")
            time.sleep(_POLL_S)
