"""Where a census keeps its chunks and its worst instances."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from formulations.stage_partitioning.questions.studies.subproblems import EDGES, Origin, Subproblems
from formulations.tmpc_knapsack import FAMILY as KNAPSACK
from instances.errors import InstanceError
from instances.files import read_text
from planner.files.read import parse_json
from planner.files.write import as_json, write_atomically
from planner.process.errors import UsageError
from planner.process.versions import versions

#: The worst instances of every variant that are kept.
WORST = 5

#: Packages and files of theirs: the code that the numbers in a chunk depend on.
_CODE = (
    ("formulations.compiled", "*.py"),
    ("formulations.compiled.kernels", "*.py"),
    *((f"formulations.stage_partitioning.{part}", "*.py") for part in ("definition", "kernels", "exact", "paper")),
    ("formulations.stage_partitioning.questions.studies", "*.py"),
    *((f"formulations.tmpc_knapsack{part}", "*.py") for part in ("", ".definition", ".kernels")),
    ("planner.experiments.census", "run.py"),
)


class Folder:
    """Where a census keeps its chunks; only a folder that is new, empty or of the same census will do.

    A file that cannot be written (a full disk) is one of its ``failures`` and does not end the census.
    """

    def __init__(self, text: str, ranges: Sequence[tuple[int, int]], out: str | None, name: str) -> None:
        header = {"instance": json.loads(text), "chunks": ranges, "edges": EDGES, "worst": WORST}
        program = {name: version for name, version in versions().items() if name in ("dnn-planner", "numba")}
        made_by = {"versions": program, "code": _digest_of_code()}
        self._fingerprint = hashlib.sha256(as_json({**header, **made_by}).encode()).hexdigest()
        safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
        self.path = Path(out) if out is not None else Path("census") / f"{safe}-{self._fingerprint[:10]}"
        self._num_chunks = len(ranges)
        self.failures: list[str] = []
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            held = any(self.path.iterdir())
        except OSError as error:
            raise UsageError.at("--out", str(self.path), f"a folder that can be written ({error.strerror})") from None
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            raise UsageError.at("--out", str(self.path), "a folder that can be written")
        own = self.path / "census.json"
        if os.path.isfile(own):
            content = parse_json(read_text(own), str(own))
            if not isinstance(content, dict) or content.get("fingerprint") != self._fingerprint:
                raise UsageError.at(
                    "--out", str(self.path), "a folder of this very census by this very program, or an empty one"
                )
        elif held:
            raise UsageError.at("--out", str(self.path), "an empty folder, or one of this very census")
        self._title = (own, as_json({"fingerprint": self._fingerprint, **header}) + "\n")
        self._titled = self._write(*self._title)

    def records(self, notice: Callable[[str], None]) -> dict[int, dict[str, Any]]:
        """The chunks that are done, by number; a damaged one is reported and left out."""
        found = {}
        for number in range(self._num_chunks):
            path = self._chunk(number)
            if os.path.lexists(path):
                try:
                    found[number] = _record(path)
                except InstanceError as error:
                    notice(f"warning: {error}; it is recomputed")
        return found

    def write(self, number: int, record: dict[str, Any]) -> None:
        """Keep one chunk, in a folder that says whose it is."""
        self._titled = self._titled or self._write(*self._title)
        if self._titled:
            self._write(self._chunk(number), as_json({"digest": _digest(record), **record}) + "\n")

    def write_worst(self, calls: Subproblems, rule: str, worst: Sequence[tuple[float, Origin]]) -> list[str]:
        """The worst instances of one variant as files; the paths of those that could be written."""
        paths = []
        for rank, (_, origin) in enumerate(worst, start=1):
            path = self.path / f"worst-{rule}-{rank}.json"
            if self._write(path, as_json(KNAPSACK.to_json(calls.knapsack(origin))) + "\n"):
                paths.append(str(path))
        return paths

    def _write(self, path: Path, text: str) -> bool:
        """Whether it could be written."""
        try:
            write_atomically(path, text)
        except UsageError as error:
            self.failures.append(str(error))
            return False
        return True

    def _chunk(self, number: int) -> Path:
        return self.path / f"chunk-{number:04}.json"


def code() -> Iterator[tuple[str, Traversable]]:
    """The files of ``_CODE`` with their packages, always in the same order."""
    for package, pattern in _CODE:
        files = (file for file in resources.files(package).iterdir() if fnmatch(file.name, pattern))
        yield from ((package, file) for file in sorted(files, key=lambda file: file.name))


def _digest_of_code() -> str:
    """Chunks of older code must not be mixed with new ones, and a version stays the same while code is worked on."""
    digest = hashlib.sha256()
    for package, file in code():
        digest.update(f"{package} {file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _record(path: Path) -> dict[str, Any]:
    """The chunk in a file as it was written, or `InstanceError`."""
    content = parse_json(read_text(path), str(path))
    digest = content.pop("digest", None) if isinstance(content, dict) else None
    if digest is None or digest != _digest(content):
        raise InstanceError.at(str(path), "digest", digest, "that of a chunk of this census")
    found: dict[str, Any] = content
    return found


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(as_json(record).encode()).hexdigest()
