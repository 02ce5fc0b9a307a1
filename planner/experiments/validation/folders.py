"""The folder of a validation: its population, a journal that grows as instances are done, and what comes of them."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any

from instances.errors import InstanceError
from instances.files import read_text
from planner.experiments.validation.sources import HEADER, POPULATION
from planner.experiments.validation.tally import COLUMNS
from planner.files.destinations import writable
from planner.files.read import parse_json
from planner.files.rows import is_columnar, pyarrow
from planner.files.write import append, as_json, drafted, write_atomically
from planner.process.errors import UsageError
from planner.process.versions import versions

JOURNAL, TABLE = "journal.jsonl", "rows"
#: The packages whose code decides what a record is.
_CODE = ("formulations", "instances", "solvers", "planner")
#: Fields of an instance that no plan depends on.
_NAMES = ("name", "origin")
#: Rows of the table that are written at once.
_BLOCK = 20_000


class Population:
    """The instances of a validation as lines of JSON in a temporary file, and which of them are identical.

    ``same_as[number]`` is the first instance that is identical to this one but for its name and where it arose,
    ``names[number]`` what it is called, ``origins[number]`` where it comes from.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.origins: list[str] = []
        self.same_as: list[int] = []
        self._first: dict[bytes, int] = {}
        self._places: list[int] = []
        self._digest = hashlib.sha256()
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the population

    def add(self, content: Mapping[str, Any], name: str, origin: str) -> None:
        """One more instance, in its JSON form."""
        line = as_json(content).encode() + b"\n"
        self._digest.update(hashlib.sha256(line).digest())
        own = as_json({name: value for name, value in content.items() if name not in _NAMES})
        key = hashlib.sha256(own.encode()).digest()
        self.same_as.append(self._first.setdefault(key, len(self.same_as)))
        self.names.append(name)
        self.origins.append(origin)
        self._places.append(self._file.tell())
        self._file.write(line)

    @property
    def digest(self) -> str:
        """What it consists of."""
        return self._digest.hexdigest()

    @property
    def distinct(self) -> list[int]:
        """The numbers of the instances that are not identical to an earlier one."""
        return [number for number, first in enumerate(self.same_as) if number == first]

    def text(self, number: int) -> str:
        """The JSON text of an instance."""
        self._file.seek(self._places[number])
        return self._file.readline().decode().rstrip("\n")

    def write(self, path: Path) -> None:
        """Write them to a file of rows."""
        self._file.seek(0)
        with drafted(path) as draft, draft.open("wb") as file:
            shutil.copyfileobj(self._file, file)
        self._file.seek(0, 2)


class Folder:
    """Where a validation keeps what it finds; only a folder that is new, empty or of this very validation will do.

    ``title`` is what makes it this one.

    Raises
    ------
    UsageError
        If the folder cannot be written, or holds something else.
    """

    def __init__(self, out: str, title: Mapping[str, Any], population: Population) -> None:
        made_by = {"versions": versions(), "code": _digest_of_code()}
        text = as_json({**title, "population": population.digest, **made_by})
        fingerprint = hashlib.sha256(text.encode()).hexdigest()
        self.path = Path(out)
        with writable(out, "--out"):
            self.path.mkdir(parents=True, exist_ok=True)
            held = any(not each.name.startswith(".planner-") for each in self.path.iterdir())
        header = self.path / HEADER
        if header.is_file():
            content = parse_json(read_text(header), str(header))
            if not isinstance(content, dict) or content.get("fingerprint") != fingerprint:
                raise UsageError.at("--out", out, "a folder of this very validation by this very program, or a new one")
        elif held:
            raise UsageError.at("--out", out, "an empty folder, or one of this very validation")
        else:
            write_atomically(header, as_json({"fingerprint": fingerprint, **title, "versions": versions()}) + "\n")
        if not (self.path / POPULATION).exists():
            population.write(self.path / POPULATION)

    def records(self, notice: Callable[[str], None]) -> dict[int, dict[str, Any]]:
        """The records that are there already, by the number of their instance; damaged lines are reported and removed.

        A last line without an end is what kill -9 leaves: it is removed without a word.
        """
        path = self.path / JOURNAL
        if not path.exists():
            return {}
        with writable(path, "--out"):
            *lines, rest = path.read_bytes().split(b"\n")
        found = [_record(line) for line in lines]
        whole = {record["number"]: record for record in found if record is not None}
        damaged = found.count(None)
        if damaged:
            notice(f"warning: {path}: {damaged} of its lines are damaged; their instances are solved again")
        if rest or damaged:
            write_atomically(path, "".join(map(_line, whole.values())))
        return whole

    def keep(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add finished records to the journal, all of them or none; `UsageError` if it cannot be written."""
        append(self.path / JOURNAL, "".join(map(_line, records)))

    def write_table(self, rows: Iterable[Mapping[str, Any]]) -> str:
        """Write the rows as parquet, or without pyarrow as JSON lines; returns the file."""
        path = self.path / f"{TABLE}{'.parquet' if is_columnar() else '.jsonl'}"
        with drafted(path) as draft, (_parquet if is_columnar() else _json_lines)(draft) as write:
            block: list[Mapping[str, Any]] = []
            for row in rows:
                block.append(row)
                if len(block) == _BLOCK:
                    write(block)
                    block = []
            write(block)
        return str(path)

    def write_worst(self, population: Population, worst: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
        """The worst instances of each method, by their numbers, as files of their own; earlier ones are removed."""
        for old in self.path.glob("worst-*.json"):
            old.unlink()
        files: dict[str, list[str]] = {}
        stems: set[str] = set()
        for method, numbers in worst.items():
            stem = re.sub(r"[^\w.-]+", "_", method).strip("._")
            while stem in stems:
                stem += "_"
            stems.add(stem)
            paths = [self.path / f"worst-{stem}-{rank}.json" for rank in range(1, len(numbers) + 1)]
            for path, number in zip(paths, numbers, strict=True):
                write_atomically(path, population.text(number) + "\n")
            files[method] = list(map(str, paths))
        return files


def _line(record: Mapping[str, Any]) -> str:
    return as_json({"digest": _digest(record), **record}) + "\n"


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(as_json(record).encode()).hexdigest()[:16]


def _record(line: bytes) -> dict[str, Any] | None:
    """The record in a line of the journal; ``None`` if it is damaged."""
    try:
        content = parse_json(line.decode(), "journal")
    except (InstanceError, UnicodeDecodeError):
        return None
    if not isinstance(content, dict) or content.pop("digest", None) != _digest(content):
        return None
    return content


Write = Callable[[Sequence[Mapping[str, Any]]], None]


@contextmanager
def _json_lines(draft: Path) -> Iterator[Write]:
    with draft.open("w", encoding="utf-8") as file:
        yield lambda rows: file.writelines(as_json(row) + "\n" for row in rows)


@contextmanager
def _parquet(draft: Path) -> Iterator[Write]:
    arrow = pyarrow()
    types = {int: arrow.int64(), float: arrow.float64(), str: arrow.string(), bool: arrow.bool_()}
    schema = arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])

    def write(rows: Sequence[Mapping[str, Any]]) -> None:
        columns = {name: [row[name] for row in rows] for name in COLUMNS}
        writer.write_table(arrow.table(columns, schema=schema))

    with arrow.parquet.ParquetWriter(draft, schema, compression="zstd") as writer:
        yield write


def _digest_of_code() -> str:
    """Records of older code must not be mixed with new ones, and a version stays the same while code is worked on."""
    digest = hashlib.sha256()
    for package in _CODE:
        for name, file in sorted(_modules(resources.files(package), package)):
            digest.update(f"{name}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _modules(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _modules(each, f"{name}.{each.name}")
        elif each.name.endswith(".py"):
            yield f"{name}.{each.name}", each
