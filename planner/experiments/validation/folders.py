"""What lies in the folder of a validation beside its journal: its population, and the table of rows."""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from planner.files.rows import is_columnar, pyarrow
from planner.files.write import as_json, draft_file

TABLE = "rows"
#: Fields of an instance that no plan depends on.
_NAMES = ("name", "origin")
#: Rows of the table that are written at once.
_BLOCK = 20_000


class Population:
    """The instances of a validation as lines of JSON in a temporary file, and which of them are identical.

    ``same_as[number]`` is the first instance that is identical to this one but for its name and where it arose,
    ``names[number]`` what it is called, ``origins[number]`` where it comes from, ``drawn[number]`` what was drawn.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.origins: list[str] = []
        self.drawn: list[Mapping[str, Any]] = []
        self.same_as: list[int] = []
        self._first: dict[bytes, int] = {}
        self._places: list[int] = []
        self._digest = hashlib.sha256()
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the population

    def add(self, content: Mapping[str, Any], name: str, origin: str, drawn: Mapping[str, Any]) -> None:
        """One more instance, in its JSON form."""
        line = as_json(content).encode() + b"\n"
        self._digest.update(hashlib.sha256(line).digest())
        own = as_json({name: value for name, value in content.items() if name not in _NAMES})
        key = hashlib.sha256(own.encode()).digest()
        self.same_as.append(self._first.setdefault(key, len(self.same_as)))
        self.names.append(name)
        self.origins.append(origin)
        self.drawn.append(drawn)
        self._places.append(self._file.tell())
        self._file.write(line)

    @property
    def digest(self) -> str:
        """What it consists of."""
        return self._digest.hexdigest()

    @property
    def parameters(self) -> list[str]:
        """The parameters that were drawn for some instance."""
        return list(dict.fromkeys(name for drawn in self.drawn for name in drawn))

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
        with draft_file(path) as draft, draft.open("wb") as file:
            shutil.copyfileobj(self._file, file)
        self._file.seek(0, 2)


def write_table(path: Path, rows: Iterable[Mapping[str, Any]], columns: Mapping[str, type]) -> str:
    """Write the rows of these columns into a folder as parquet, or without pyarrow as JSON lines; returns the file."""
    path = path / f"{TABLE}{'.parquet' if is_columnar() else '.jsonl'}"
    with draft_file(path) as draft, (_parquet if is_columnar() else _json_lines)(draft, columns) as write:
        coming = iter(rows)
        while block := list(islice(coming, _BLOCK)):
            write(block)
    return str(path)


Write = Callable[[Sequence[Mapping[str, Any]]], None]


@contextmanager
def _json_lines(draft: Path, _columns: Mapping[str, type]) -> Iterator[Write]:
    with draft.open("w", encoding="utf-8") as file:
        yield lambda rows: file.writelines(as_json(row) + "\n" for row in rows)


@contextmanager
def _parquet(draft: Path, columns: Mapping[str, type]) -> Iterator[Write]:
    arrow = pyarrow()
    types = {int: arrow.int64(), float: arrow.float64(), str: arrow.string(), bool: arrow.bool_()}
    schema = arrow.schema([(name, types[kind]) for name, kind in columns.items()])

    def write(rows: Sequence[Mapping[str, Any]]) -> None:
        writer.write_table(arrow.table({name: [row[name] for row in rows] for name in columns}, schema=schema))

    with arrow.parquet.ParquetWriter(draft, schema, compression="zstd") as writer:
        yield write
