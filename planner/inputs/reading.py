"""Text and JSON from files that anybody may have written: every error is one line that names the file."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from instances.errors import InstanceError, path
from instances.parameters import vanishes

#: The name of standard input.
STANDARD = "-"
#: Larger files are refused rather than read into memory, also those that are so large when decompressed.
MAX_FILE_BYTES = 256 * 2**20
_PIECE_BYTES = 2**20


def read_text(path: Path) -> str:
    """A file's UTF-8 text, or `InstanceError`."""
    with opened(path) as file:
        return _decoded(file, str(path))


def read_named(name: str) -> tuple[str, str]:
    """The UTF-8 text of a file or (``-``) of standard input, and its name for errors; `InstanceError`."""
    return (read_text(Path(name)), name) if name != STANDARD else (_all_of(sys.stdin), "standard input")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed if its name ends in ``.gz``; `InstanceError` for what cannot be read."""
    try:
        with path.open("rb") as file:
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


@lru_cache(maxsize=1)
def _all_of(stream: TextIO | None) -> str:
    """Standard input, which can be read once, for those who read it more often."""
    if stream is None:
        raise InstanceError.at("standard input", "file", "closed", "a readable file")
    return _decoded(stream.buffer, "standard input")


def _decoded(file: BinaryIO, where: str) -> str:
    data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise InstanceError.at(where, "size", f"over {MAX_FILE_BYTES} bytes", "a smaller file")
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
            raise InstanceError.at(where, "size", f"over {MAX_FILE_BYTES} bytes", "a smaller file")
    return bytes(line)


#: Longer integers are no floats, or close to the largest.
_FLOAT_DIGITS = 308

_STRING = r'"(?:[^"\\]|\\.)*+"'
#: The marks of a JSON text from which the place of a number follows: a key, a bracket or comma, a number that may be
#: beyond floats. All else is passed over, short numbers too.
_MARK = re.compile(
    rf'(?:[^][{{}},"0-9NI-]++|{_STRING}(?!\s*:)|-?\d[\d.]{{0,299}}+(?![\d.eE+-]))*+'
    rf"(?:({_STRING})\s*:|([][{{}},])|(-?(?:\d[\d.eE+-]*|Infinity|NaN)))",
    re.DOTALL,
)


def parse_json(text: str, where: str) -> Any:
    """A JSON value.

    Raises
    ------
    InstanceError
        Duplicate keys, text cut short, too deep a nesting; NaN, infinities and numbers beyond floats, with the field
        and the line they stand in.
    """

    def no_constant(_name: str) -> None:
        raise _bad_number(text, where)

    def number(spelled: str) -> float:
        if not _is_held(spelled):
            raise _bad_number(text, where)
        return float(spelled)

    def integer(spelled: str) -> int:
        if _is_long(spelled):
            raise _bad_number(text, where)
        return int(spelled)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise InstanceError.at(where, "key", twice, "no key twice in one object")
        return found

    try:
        return json.loads(
            text, parse_constant=no_constant, parse_float=number, parse_int=integer, object_pairs_hook=unique
        )
    except InstanceError:
        raise
    except json.JSONDecodeError as error:
        shown = text[error.pos : error.pos + 20] or "the end of the file"
        raise InstanceError.at(
            where, f"line {error.lineno} column {error.colno}", shown, f"valid JSON ({error.msg})"
        ) from None
    except RecursionError:
        raise InstanceError.at(where, "nesting", "too deep", "a few levels") from None


def _is_long(spelled: str) -> bool:
    return len(spelled) > _FLOAT_DIGITS and spelled.removeprefix("-").isdecimal()


def _is_held(spelled: str) -> bool:
    """Whether a float holds a number: it is finite, and 0 only where it is spelled so."""
    return math.isfinite(float(spelled)) and not vanishes(spelled)


def _bad_number(text: str, where: str) -> InstanceError:
    """The error of the first number of a JSON text that no float holds: its field, its line, its spelling."""
    field, start, spelled = _first_bad(text)
    line = text.count("\n", 0, start) + 1
    return InstanceError.at(where, f"line {line}: {field}", spelled, "a number that a 64-bit float can hold")


def _first_bad(text: str) -> tuple[str, int, str]:
    """Field, place and spelling of the first number of a JSON text that no float holds."""
    location: list[int | str] = []  # of the value that comes next; keys as they are spelled
    for mark in _MARK.finditer(text):
        key, sign, number = mark.groups()
        if key:
            location[-1] = key
        elif number:
            if _is_long(number) or not _is_held(number):
                keys = [json.loads(part, strict=False) if isinstance(part, str) else part for part in location]
                return path(keys), mark.start(3), number
        elif sign == "[":
            location.append(0)
        elif sign == "{":
            location.append("")
        elif sign != ",":
            location.pop()
        elif isinstance(location[-1], int):
            location[-1] += 1
    raise AssertionError("called for a text that has such a number")
