"""Files of many instances, one to a row: JSON lines, or parquet with the optional package pyarrow.

A row is addressed as ``FILE#ROW``, counted from 0. JSON lines hold each instance in its family's own JSON; parquet
holds knapsacks in columns (docs/interface/comparisons.md).
"""

import importlib.util
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice, repeat
from pathlib import Path
from typing import Any, BinaryIO

from instances.errors import InstanceError
from instances.files import MAX_FILE_BYTES, MAX_ROWS, MAX_ROWS_BYTES, is_compressed, open_file, read_line, too_large
from planner.files.read import parse_json
from planner.process.errors import UsageError

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")

_ADDRESS = re.compile(r"(.+\.(?:jsonl|jsonl\.gz|parquet))#(\d{1,15})", re.DOTALL)
#: Rows of a parquet file that are read at once.
_BATCH = 1000
#: The columns of a parquet file that are read.
_COLUMNS = (
    "parent", "outer", "inner", "t", "d", "y", "capacity_bytes", "nodes", "options", "tmpcs", "time", "memory_bytes",
)  # fmt: skip
#: What a value of a column takes at most, its text left out: as pyarrow reads it, and as an object.
_ENCODED_BYTES, _OBJECT_BYTES = 8, 64
_MISSING = "pyarrow (pip install '.[columnar]'), or a .jsonl file"


def split_row(name: str) -> tuple[str, int | None]:
    """``FILE#ROW`` as file and row; any other name, or one that a file has, as it is.

    >>> split_row("some.parquet#7"), split_row("bert32")
    (('some.parquet', 7), ('bert32', None))
    """
    match = _ADDRESS.fullmatch(name)
    if match is None or os.path.exists(name):
        return name, None
    return match[1], int(match[2])


def read_row(path: Path, row: int | None) -> Any:
    """The JSON value of one row, as its family reads it.

    `InstanceError` if the file cannot be read or has no such row, or none is named; `UsageError` if the file is parquet
    and pyarrow is absent.
    """
    if row is None:
        raise InstanceError.at(str(path), "row", None, f"one of its rows, such as {path}#0")
    if path.suffix == ".parquet":
        return _parquet_row(path, row)
    with open_file(path) as file:
        return _parse_line(_line(file, row, path), path, row)


def has_rows(path: Path) -> bool:
    """Whether a file's name and content are those of rows; a single JSON line is its only row, which needs no number.

    `InstanceError` if the file cannot be read.
    """
    if path.suffix == ".parquet":
        return True
    return path.name.endswith(SUFFIXES) and path.is_file() and len(list(islice(_lines(path), 2))) > 1


def count_rows(path: Path) -> int:
    """How many rows a file has; errors as of `read_row`."""
    if path.suffix == ".parquet":
        with _parquet(path) as file:
            return _row_count(file, str(path))
    return sum(1 for _ in _lines(path))


def read_rows(path: Path, wanted: Collection[int] | None = None) -> Iterator[tuple[int, Any]]:
    """The numbers and JSON values of the ``wanted`` rows (``None``: of all), one after the other, in one pass.

    A last line without an end is read, whether it is wanted or not: a file that was cut off is no row file.

    `InstanceError` if the file cannot be read, is cut off, or a row is no JSON value; `UsageError` if the file is
    parquet and pyarrow is absent.
    """
    if path.suffix == ".parquet":
        with _parquet(path) as file:
            _row_count(file, str(path))
            records = (each for group in range(file.num_row_groups) for each in _records(file, group, str(path)))
            yield from ((row, _knapsack(each)) for row, each in enumerate(records) if wanted is None or row in wanted)
        return
    for row, line in enumerate(_lines(path)):
        is_wanted = wanted is None or row in wanted
        if is_wanted or not line.endswith(b"\n"):
            content = _parse_line(line, path, row)
            if is_wanted:
                yield row, content


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file but empty ones at its end, each of which is one line end here."""
    where, empty, seen, count = str(path), 0, 0, 0
    with open_file(path) as file:
        while line := read_line(file, where):
            count, seen = count + 1, seen + len(line)
            if count > MAX_ROWS:
                raise too_many_rows(where, f"over {MAX_ROWS}")
            if seen > MAX_ROWS_BYTES:
                raise too_large(where, MAX_ROWS_BYTES)
            if line.strip():
                yield from repeat(b"\n", empty)
                empty = 0
                yield line
            else:
                empty += 1


def is_columnar() -> bool:
    """Whether parquet files can be read and written here."""
    return importlib.util.find_spec("pyarrow") is not None


def pyarrow() -> Any:
    """The package, or a `UsageError` that says how to do without."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError.at("a .parquet file", "unreadable", _MISSING) from None
    return pyarrow


def _parse_line(line: bytes, path: Path, row: int) -> Any:
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InstanceError.at(str(path), "content", "no text", "UTF-8 text") from None
    if not text.strip():
        raise InstanceError.at(str(path), "row", row, "a row of the file, counted from 0")
    return parse_json(text, f"{path}#{row}")


def _line(file: BinaryIO, row: int, path: Path) -> bytes:
    """The line of that number, or nothing; a line or a stream without an end is an `InstanceError`."""
    where, line, seen = str(path), b"", 0
    endless = is_compressed(path) or not stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    for _ in range(row + 1):
        line = read_line(file, where)
        seen += len(line)
        if not line:
            break
        if endless and seen > MAX_FILE_BYTES:
            raise too_large(where, MAX_FILE_BYTES)
    return line


def _parquet_row(path: Path, row: int) -> Any:
    with _parquet(path) as file:
        before = 0
        for group in range(file.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            if row < before + size:
                return _knapsack(next(islice(_records(file, group, str(path)), row - before, None)))
            before += size
    raise InstanceError.at(str(path), "row", row, f"at most {before - 1}" if before else "nothing: it has no rows")


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """A parquet file; `InstanceError` for what is none, is damaged, or lacks a column."""
    arrow = pyarrow()
    try:
        if path.exists() and not path.is_file():
            raise InstanceError.at(str(path), "file", "a folder, pipe or device", "a parquet file")
        schema = arrow.parquet.read_metadata(path).schema
        leaves = [schema.column(place) for place in range(len(schema))]
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        with arrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
            _expect_columns(file.schema_arrow, str(path))
            yield file
    except (OSError, arrow.ArrowException) as error:
        raise InstanceError.at(str(path), "file", " ".join(str(error).split())[:80], "a parquet file") from None
    except InstanceError:
        raise
    except (ValueError, TypeError):  # no text, nothing or too little, where extract writes something
        raise InstanceError.at(str(path), "file", "damaged", "rows as planner extract writes them") from None
    except KeyError as missing:
        raise InstanceError.missing(str(path), f"column {missing.args[0]}", "as planner extract writes it") from None


def _row_count(file: Any, where: str) -> int:
    """The rows of a parquet file; `InstanceError` if there are too many."""
    if (rows := int(file.metadata.num_rows)) > MAX_ROWS:
        raise too_many_rows(where, rows)
    return rows


def too_many_rows(where: str, rows: int | str) -> InstanceError:
    """The error of a file of more rows than are read."""
    return InstanceError.at(where, "rows", rows, f"at most {MAX_ROWS} in a file")


def _records(file: Any, group: int, where: str) -> Iterator[dict[str, Any]]:
    """The rows of a row group of a parquet file, some at a time; `InstanceError` for what would fill the memory.

    Compressed and encoded, many equal values take no room: the file says how many there are before any is read. Texts
    stay in the dictionaries that encode them until they are counted.
    """
    metadata = file.metadata.row_group(group)
    parts = [metadata.column(place) for place in range(metadata.num_columns)]
    read = [part for part in parts if part.path_in_schema.partition(".")[0] in _COLUMNS]
    if sum(_ENCODED_BYTES * part.num_values + part.total_uncompressed_size for part in read) > MAX_FILE_BYTES:
        raise too_large(f"{where}: row group {group}", MAX_FILE_BYTES)
    for batch in file.iter_batches(_BATCH, [group], list(_COLUMNS)):
        few = [batch] if _weight(batch) <= MAX_FILE_BYTES else [batch.slice(row, 1) for row in range(batch.num_rows)]
        for rows in few:
            if _weight(rows) > MAX_FILE_BYTES:
                raise too_large(f"{where}: a row", MAX_FILE_BYTES)
            yield from rows.to_pylist()


def _expect_columns(schema: Any, where: str) -> None:
    """`InstanceError` unless all columns are there, of texts and numbers."""
    types = pyarrow().types
    for name in _COLUMNS:
        if name not in schema.names:
            raise InstanceError.missing(where, f"column {name}", "as planner extract writes it")
        kind = schema.field(name).type
        while types.is_list(kind) or types.is_large_list(kind) or types.is_dictionary(kind):
            kind = kind.value_type
        if not (
            types.is_integer(kind) or types.is_floating(kind) or types.is_string(kind) or types.is_large_string(kind)
        ):
            raise InstanceError.at(where, f"column {name}", str(kind), "of texts or numbers, or of lists of them")


def _weight(batch: Any) -> int:
    """About the bytes that rows take as Python's objects."""
    import pyarrow.compute as compute

    types, found = pyarrow().types, 0
    for column in batch.columns:
        while types.is_list(column.type) or types.is_large_list(column.type):
            column = column.flatten()
        found += _OBJECT_BYTES * len(column)
        if types.is_dictionary(column.type):
            found += compute.sum(compute.take(compute.binary_length(column.dictionary), column.indices)).as_py() or 0
    return int(found)


def _knapsack(record: Mapping[str, Any]) -> dict[str, Any]:
    """A row of columns as the knapsack family's JSON."""
    from formulations.stage_partitioning.questions.studies.subproblems import name_of

    facts = {name: record[name] for name in ("parent", "outer", "inner", "t", "d", "y")}
    options = zip(record["tmpcs"], record["time"], record["memory_bytes"], strict=True)
    return {
        "problem": "tmpc_knapsack",
        "schema_version": 1,
        "name": name_of(facts),
        "capacity_bytes": record["capacity_bytes"],
        "nodes": [
            {
                "id": node,
                "options": [
                    {"id": name, "time": time, "memory_bytes": memory} for name, time, memory in islice(options, count)
                ],
            }
            for node, count in zip(record["nodes"], record["options"], strict=True)
        ],
        "origin": facts,
    }
