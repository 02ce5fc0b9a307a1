"""What leaves the process: values in JSON types, and atomic file writes."""

import gzip
import io
import json
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from instances.files import is_compressed
from planner.files.destinations import sink, writable
from planner.process.errors import UsageError
from planner.process.streams import drafts


def plain(value: Any) -> Any:
    """The value in JSON types: absent for what is not finite, lists for tuples, text for anything unknown."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, str) or value is None:
        return value if value is None else str(value)
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if hasattr(value, "item"):  # a numpy scalar
        return plain(value.item())
    if isinstance(value, Sequence | set | frozenset):
        return [plain(part) for part in value]
    return str(value)


def write_atomically(path: str | Path, content: str | bytes, option: str = "--out") -> None:
    """Write text (as UTF-8) or bytes whole or not at all, as `draft_file` does; ``.gz`` files are compressed."""
    data = content.encode() if isinstance(content, str) else content
    with draft_file(path, option) as draft:
        draft.write_bytes(gzip.compress(data, mtime=0) if is_compressed(path) else data)


@contextmanager
def draft_file(path: str | Path, option: str = "--out") -> Iterator[Path]:
    """An empty file to write to; what is in it gets to ``path`` when nothing went wrong.

    Links are followed, and the file at their end is replaced. A device, a pipe or one of the process's own descriptors
    (such as ``/dev/stdout``) is never replaced: the draft is written into it.

    `UsageError` if the file cannot be written; ``option`` names it.
    """
    with writable(path, option):
        real = os.path.realpath(path)
        into = sink(os.fspath(path))
        handle, name = tempfile.mkstemp(dir=os.path.dirname(real) if into is None else None, prefix=".planner-")
        os.close(handle)
        drafts.add(name)
        try:
            yield Path(name)
            if into is None:
                os.chmod(name, _mode(real))  # mkstemp makes it private
                os.replace(name, real)
            else:
                with open(name, "rb") as draft, into:
                    shutil.copyfileobj(draft, into)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name)
            drafts.discard(name)


def append(path: Path, text: str) -> None:
    """Add text to a file, all of it or nothing; `UsageError` if it cannot be written."""
    content = text.encode()
    with writable(path, "--out"), path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            while content:
                content = content[file.write(content) :]
        except OSError:
            file.truncate(before)
            raise


def open_to_append(path: str, option: str) -> TextIO:
    """A text file to write to line by line, emptied if it was there; devices and pipes are written into.

    `UsageError` if the file cannot be written; ``option`` names it.
    """
    with writable(path, option):
        into = sink(path)
        return open(path, "w", encoding="utf-8") if into is None else io.TextIOWrapper(into, encoding="utf-8")


def write_all(*writes: Callable[[], None]) -> None:
    """Try every one of the writes; one `UsageError` for all that failed."""
    failed = []
    for write in writes:
        try:
            write()
        except UsageError as error:
            failed.append(str(error))
    if failed:
        raise UsageError("; ".join(dict.fromkeys(failed)))


def _mode(real: str) -> int:
    """The permissions of the file that is replaced, or those of any new file."""
    if os.path.exists(real):
        return stat.S_IMODE(os.stat(real).st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def as_json(value: Any) -> str:
    """One JSON object on one line."""
    return json.dumps(plain(value), allow_nan=False)
