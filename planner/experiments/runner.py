"""The folder of an experiment, from whose journal a killed run goes on; tasks run as `executors.run_tasks` has it.

Two experiments keep their own files. The rows of a benchmark stay plain JSON lines of many dates and versions, which
``bench --compare`` reads. A search for counter-examples (``mine``) has no tasks: each instance depends on the last.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from instances.errors import InstanceError
from instances.files import read_text
from planner.files.destinations import writable
from planner.files.read import parse_json
from planner.files.write import append, as_json, write_atomically
from planner.process.errors import UsageError
from planner.process.versions import versions

Record = dict[str, Any]

#: Two values of so many letters together are shown.
_SHORT = 40
#: The packages whose code decides what a record is.
_CODE = ("formulations", "instances", "solvers", "planner")


def fingerprint(title: Mapping[str, Any]) -> str:
    """The digest of what makes an experiment this one, with the versions and the code that it runs with."""
    made_by = {"versions": versions(), "code": _digest_of_code()}
    return hashlib.sha256(as_json({**title, **made_by}).encode()).hexdigest()


class Journal:
    """Records as signed lines of a file that only grows, each under what its field ``key`` holds.

    ``again`` says what happens to what damaged lines were about.
    """

    def __init__(self, path: Path, key: str, again: str) -> None:
        self.path, self._key, self._again = path, key, again

    def records(self, notice: Callable[[str], None]) -> dict[Any, Record]:
        """The records that are there already; damaged lines are reported and removed.

        A last line without an end is what kill -9 leaves: it is removed without a word.
        """
        if not os.path.lexists(self.path):
            return {}
        with writable(self.path, "--out"):
            *lines, rest = self.path.read_bytes().split(b"\n")
        found = [self._record(line) for line in lines]
        whole = {record[self._key]: record for record in found if record is not None}
        damaged = found.count(None)
        if damaged:
            notice(f"warning: {self.path}: {damaged} of its lines are damaged, or of another version; {self._again}")
        if rest or damaged:
            write_atomically(self.path, "".join(map(_line, whole.values())))
        return whole

    def keep(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add finished records, all of them or none; `UsageError` if they cannot be written."""
        append(self.path, "".join(map(_line, records)))

    def _record(self, line: bytes) -> Record | None:
        """The record in a line; ``None`` if it is damaged."""
        try:
            content = parse_json(line.decode(), "journal")
        except (InstanceError, UnicodeDecodeError):
            return None
        if not isinstance(content, dict) or content.pop("digest", None) != _digest(content) or self._key not in content:
            return None
        return content


class Folder:
    """Where an experiment keeps what it finds; only a folder that is new, empty or of this very one will do.

    ``out``: the folder, made if it is not there.
    ``noun``, ``header``: what the experiment is called, and the file that says which one it is.
    ``title``, ``own``: what makes it this one, and its `fingerprint`.
    ``again``: as of `Journal`.
    ``is_strict``: whether a file that cannot be written ends the run; else that is one of the ``failures``.
    `UsageError` if the folder cannot be written, or holds something else.
    """

    def __init__(
        self,
        out: str,
        noun: str,
        header: str,
        title: Mapping[str, Any],
        own: str,
        again: str,
        *,
        is_strict: bool = True,
    ) -> None:
        self.path, self._is_strict = Path(out), is_strict
        self.failures: list[str] = []
        self._journal = Journal(self.path / "journal.jsonl", "number", again)
        self._header = (self.path / header, as_json({"fingerprint": own, **title, "versions": versions()}) + "\n")
        is_held = open_folder(out)
        path = self._header[0]
        if path.is_file():
            content = parse_json(read_text(path), str(path))
            if not isinstance(content, dict) or content.get("fingerprint") != own:
                why = _differences(content if isinstance(content, dict) else {}, json.loads(self._header[1]))
                rule = f"a folder of this very {noun} by this very program, or a new one"
                raise UsageError.at(
                    "--out", out, f"{rule}; what differs: {', '.join(why) or 'the code of the program'}"
                )
        elif is_held:
            raise UsageError.at("--out", out, f"an empty folder, or one of this very {noun}")

    def records(self, notice: Callable[[str], None]) -> dict[int, Record]:
        """What is done already, by number (`Journal.records`)."""
        return self._journal.records(notice)

    def head(self) -> None:
        """Say whose folder it is."""
        if not self._header[0].exists():
            self._try(lambda: write_atomically(*self._header))

    def keep(self, records: Sequence[Mapping[str, Any]]) -> dict[int, Record]:
        """Add finished records to the journal; returns them as they would be read back."""
        self.head()
        if self._header[0].exists():
            self._try(lambda: self._journal.keep(records))
        return {record["number"]: json.loads(as_json(record)) for record in records}

    def write_worst(self, worst: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """`write_worst` into this folder, without the files that could not be written."""
        found = write_worst(self.path, worst, self._try)
        return {name: [path for path in paths if path] for name, paths in found.items()}

    def _try(self, write: Callable[[], None]) -> bool:
        if not self._is_strict:
            return write_or_note(self.failures, write)
        write()
        return True


def write_worst(
    folder: Path, worst: Mapping[str, Sequence[str]], tried: Callable[[Callable[[], None]], bool]
) -> dict[str, list[str | None]]:
    """Write the worst instances by whose they are, the worst first, each to a file of its own; remove earlier ones.

    Returns the files; ``None`` for those that could not be written.
    """
    for old in folder.glob("worst-*.json"):
        old.unlink()
    stems: set[str] = set()
    found: dict[str, list[str | None]] = {}
    for name, texts in worst.items():
        stem = re.sub(r"[^\w.-]+", "_", name).strip("._")
        while stem in stems:
            stem += "_"
        stems.add(stem)
        files = [(folder / f"worst-{stem}-{rank}.json", text + "\n") for rank, text in enumerate(texts, 1)]
        found[name] = [str(file) if tried(partial(write_atomically, file, text)) else None for file, text in files]
    return found


def write_or_note(failures: list[str], write: Callable[[], None]) -> bool:
    """Whether it could be written; what could not (a full disk) is one of the failures, and ends nothing."""
    try:
        write()
    except UsageError as error:
        failures.append(str(error))
        return False
    return True


def open_folder(out: str) -> bool:
    """Make a folder if it is not there; whether it holds anything but drafts. `UsageError` if it cannot be written."""
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
        is_held = any(not each.name.startswith(".planner-") for each in Path(out).iterdir())
    except OSError as error:
        raise UsageError.at("--out", out, f"a folder that can be written ({error.strerror or error})") from None
    if not os.access(out, os.R_OK | os.W_OK | os.X_OK):
        raise UsageError.at("--out", out, "a folder that can be written")
    return is_held


def safe_name(name: str) -> str:
    """A name as a part of a path.

    >>> safe_name("../a [b]/c")
    '.._a__b__c'
    """
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """What a folder says of its experiment that is otherwise in this one; short values are shown."""
    found = []
    for name in dict.fromkeys([*there, *here]):
        old, new = there.get(name), here.get(name)
        if old == new or name == "fingerprint":
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            found += [f"{name} {each}" for each in _differences(old, new)]
        elif old is None or new is None:
            found.append(f"{name} (only {'here' if old is None else 'there'})")
        elif len(f"{old}{new}") <= _SHORT:
            found.append(f"{name} ({old} there, {new} here)")
        else:
            found.append(f"{name} (has changed)")
    return found


def _line(record: Mapping[str, Any]) -> str:
    return as_json({"digest": _digest(record), **record}) + "\n"


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(as_json(record).encode()).hexdigest()[:16]


def _digest_of_code() -> str:
    """Records of older code must not be mixed with new ones, and a version stays the same while code is worked on."""
    digest = hashlib.sha256()
    for package in _CODE:
        folder = Path(str(resources.files(package)))
        for file in sorted(folder.rglob("*.py")):
            digest.update(f"{package}/{file.relative_to(folder).as_posix()}\n".encode() + file.read_bytes())
    return digest.hexdigest()
