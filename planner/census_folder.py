"""Where a census keeps its chunks and its worst instances."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from formulations.stage_partitioning.calls import EDGES, Calls, Origin
from formulations.tmpc_knapsack import FAMILY as KNAPSACK
from instances.errors import InstanceError
from planner.errors import UsageError
from planner.files import write_atomically
from planner.reading import parse_json, read_text
from planner.report import as_json
from planner.versions import versions

#: The worst instances of every variant that are kept.
WORST = 5

#: Packages and files of theirs: the code that the numbers in a chunk depend on.
_CODE = (
    ("formulations.stage_partitioning", "*.py"),
    ("formulations.tmpc_knapsack", "*.py"),
    ("planner", "census.py"),
)


class Folder:
    """Where a census keeps its chunks; only a folder that is new, empty or of the same census will do."""

    def __init__(self, text: str, ranges: Sequence[tuple[int, int]], out: str | None, name: str) -> None:
        header = {"instance": json.loads(text), "chunks": ranges, "edges": EDGES, "worst": WORST}
        program = {name: version for name, version in versions().items() if name in ("dnn-planner", "numba")}
        made_by = {"versions": program, "code": _digest_of_code()}
        self._fingerprint = hashlib.sha256(as_json({**header, **made_by}).encode()).hexdigest()
        safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
        self.path = Path(out) if out is not None else Path("census") / f"{safe}-{self._fingerprint[:10]}"
        self._num_chunks = len(ranges)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            held = any(self.path.iterdir())
        except OSError as error:
            raise UsageError.at("--out", str(self.path), f"a folder that can be written ({error.strerror})") from None
        own = self.path / "census.json"
        if own.is_file():
            content = parse_json(read_text(own), str(own))
            if not isinstance(content, dict) or content.get("fingerprint") != self._fingerprint:
                raise UsageError.at(
                    "--out", str(self.path), "a folder of this very census by this very program, or an empty one"
                )
        elif held:
            raise UsageError.at("--out", str(self.path), "an empty folder, or one of this very census")
        write_atomically(own, as_json({"fingerprint": self._fingerprint, **header}) + "\n")

    def records(self) -> dict[int, dict[str, Any]]:
        """The chunks that are done, by number; `InstanceError` if a file is no chunk."""
        paths = ((number, self._chunk(number)) for number in range(self._num_chunks))
        return {number: _record(path) for number, path in paths if path.is_file()}

    def write(self, number: int, record: dict[str, Any]) -> None:
        """Keep one chunk."""
        write_atomically(self._chunk(number), as_json(record) + "\n")

    def write_worst(self, calls: Calls, rule: str, worst: Sequence[tuple[float, Origin]]) -> list[str]:
        """The worst instances of one variant as files; their paths."""
        paths = []
        for rank, (_, origin) in enumerate(worst, start=1):
            paths.append(self.path / f"worst-{rule}-{rank}.json")
            write_atomically(paths[-1], as_json(KNAPSACK.to_json(calls.knapsack(origin))) + "\n")
        return [str(path) for path in paths]

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
    content = parse_json(read_text(path), str(path))
    survey = content.get("survey") if isinstance(content, dict) else None
    if not isinstance(survey, dict) or not {"rules", "nontrivial"} <= set(survey) or "seconds" not in content:
        raise InstanceError.at(str(path), "content", str(content)[:40], "a chunk of this census; remove it to redo it")
    found: dict[str, Any] = content
    return found
