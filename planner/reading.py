"""Text and JSON from files that anybody may have written: every fault is one line that names the file."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from instances.errors import InstanceError

#: Larger files are refused rather than read into memory.
MAX_FILE_BYTES = 256 * 2**20
_PIECE_BYTES = 2**20


@contextmanager
def no_collection() -> Iterator[None]:
    """Meanwhile no search for cycles of garbage: the content of a large file has none, and searching takes longer."""
    ours = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if ours:
            gc.enable()


def read_text(path: Path) -> str:
    """A file's UTF-8 text, or `InstanceError`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise InstanceError.at(str(path), "size", f"over {MAX_FILE_BYTES} bytes", "a smaller file")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InstanceError.at(str(path), "file", error.strerror or str(error), "a readable file") from None
    except UnicodeDecodeError as error:
        raise InstanceError.at(str(path), f"byte {error.start}", data[error.start], "UTF-8 text") from None


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


def parse_json(text: str, where: str) -> Any:
    """A JSON value; NaN, infinities, duplicate keys and text cut short are an `InstanceError`."""

    def no_constant(name: str) -> None:
        raise InstanceError.at(where, "a number", name, "a finite number")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InstanceError.at(where, "key", twice, "no key twice in one object")
        return found

    try:
        return json.loads(text, parse_constant=no_constant, object_pairs_hook=unique)
    except InstanceError:
        raise
    except json.JSONDecodeError as error:
        shown = text[error.pos : error.pos + 20] or "the end of the file"
        raise InstanceError.at(
            where, f"line {error.lineno} column {error.colno}", shown, f"valid JSON ({error.msg})"
        ) from None
    except RecursionError:
        raise InstanceError.at(where, "nesting", "too deep", "a few levels") from None
    except ValueError:
        raise InstanceError.at(where, "a number", "too long", "a number of at most a few hundred digits") from None
