"""What leaves the process: values in JSON types, and files of which a reader never sees half."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.errors import UsageError
from planner.rows import split_row


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


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` whole or not at all.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    try:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(draft, 0o666 & ~_umask())  # mkstemp makes it private
            os.replace(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
    except OSError as error:
        raise UsageError.at("--out", str(path), f"a file that can be written ({error.strerror or error})") from None


def refuse_overwriting(out: str, *sources: str, option: str = "--out") -> None:
    """`UsageError` if ``out`` is one of the files that were read, or lies in no folder: before any work is done."""
    path = Path(out)
    if not path.parent.is_dir():
        raise UsageError.at(option, out, "a file in a folder that exists")
    if path.is_dir():
        raise UsageError.at(option, out, "a file, not a folder")
    for source in (split_row(each)[0] for each in sources):
        if path.exists() and os.path.exists(source) and path.samefile(source):
            raise UsageError.at(option, out, "a file other than the input, which is never changed")


def refuse_outputs(outputs: Mapping[str, str | None], *sources: str) -> None:
    """`refuse_overwriting` for the file of every option, if it is given; no two of them may be one file."""
    known: dict[Path, str] = {}
    for option, out in outputs.items():
        if out is None:
            continue
        refuse_overwriting(out, *sources, option=option)
        first = known.setdefault(Path(out).resolve(), option)
        if first != option:
            raise UsageError.at(option, out, f"a file other than that of {first}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
