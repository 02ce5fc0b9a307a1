"""A folder of measurements: rows as they come, a table with dates and versions, and two folders compared."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from instances.errors import InstanceError
from instances.files import read_lines
from planner.experiments.bench.measure import MeasuredRow
from planner.files.destinations import writable
from planner.files.read import parse_json
from planner.files.write import append, as_json, write_atomically
from planner.process.errors import UsageError

ROWS, TABLE = "rows.jsonl", "table.md"
#: Objectives closer than this are the same; times closer than this factor are noise.
SAME_OBJECTIVE, SAME_TIME = 1e-6, 1.5


def rows_of(place: str | Path) -> list[MeasuredRow]:
    """The rows of a folder, or of a file of JSON lines; a last line that was cut off is left out.

    `UsageError` if there is no such file, or a line is no row.
    """
    path = Path(place)
    try:
        path = path / ROWS if os.path.isdir(path) else path
        lines = read_lines(path).split("\n")
    except (InstanceError, ValueError) as error:  # a name with a NUL byte is no path
        raise UsageError.at("rows", str(path), f"a file that bench wrote ({error})") from None
    found = []
    for count, line in enumerate(lines, start=1):
        where = f"{path}: line {count}"
        try:
            content = parse_json(line, where)
        except InstanceError as error:
            if count == len(lines):
                break  # the end of the file, or no end of the line: the process died while writing it
            raise UsageError(str(error)) from None
        try:
            found.append(MeasuredRow.from_json(content))
        except ValueError as error:
            raise UsageError.at(where, line[:60], f"a row that bench wrote ({error})") from None
    return found


def read_rows(folder: Path) -> list[MeasuredRow]:
    """The rows that are there already; a last line without an end is taken away, so that it does not spoil the next.

    `UsageError` if the file does not hold rows, or cannot be written.
    """
    path = folder / ROWS
    found = rows_of(path) if os.path.lexists(path) else []
    with writable(path, "--out"), path.open("ab") as file:
        whole = not file.tell() or path.read_bytes().endswith(b"\n")
    if not whole:
        write_atomically(path, "".join(as_json(row.to_json()) + "\n" for row in found))
    return found


def keep(folder: Path, row: MeasuredRow) -> None:
    """Add a finished row, all of it or nothing; `UsageError` if it cannot be written."""
    append(folder / ROWS, as_json(row.to_json()) + "\n")


def write_table(folder: Path, rows: Sequence[MeasuredRow], table: str) -> None:
    """Write the rows with their losses, and the table of all of them."""
    write_atomically(folder / ROWS, "".join(as_json(row.to_json()) + "\n" for row in rows))
    write_atomically(folder / TABLE, table)


def compare(first: Sequence[MeasuredRow], second: Sequence[MeasuredRow]) -> dict[str, Any]:
    """What changed between two measurements, row by row.

    Returns: ``rows`` (``case``, ``settings``, ``method``, ``seed``, ``objective``, ``seconds`` and ``gap`` as pairs,
    ``speedup``, and ``verdict``: better, worse, faster, slower or same), ``only_first``, ``only_second``, ``counts`` of
    the verdicts, and ``mean_speedup``, the geometric mean of first seconds over second.
    """
    before, after = {row.key: row for row in first}, {row.key: row for row in second}
    both = [(before[key], after[key]) for key in before if key in after]
    rows = [_comparison(*pair) for pair in both]
    ratios = [row["speedup"] for row in rows if row["speedup"]]
    verdicts = [row["verdict"] for row in rows]
    return {
        "rows": rows,
        "only_first": sorted(set(before) - set(after)),
        "only_second": sorted(set(after) - set(before)),
        "counts": {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)},
        "mean_speedup": math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else None,
    }


def _comparison(before: MeasuredRow, after: MeasuredRow) -> dict[str, Any]:
    speedup = before.seconds / after.seconds if before.seconds and after.seconds else None
    return {
        "case": before.case,
        "settings": before.settings,
        "method": before.method,
        "seed": before.seed,
        "objective": [before.objective, after.objective],
        "seconds": [before.seconds, after.seconds],
        "gap": [before.gap, after.gap],
        "speedup": speedup,
        "verdict": _verdict(before, after, speedup),
    }


def _verdict(before: MeasuredRow, after: MeasuredRow, speedup: float | None) -> str:
    """The plan decides, then the gap, then the time."""
    for old, new in ((before.objective, after.objective), (before.gap, after.gap)):
        if (old is None) != (new is None):
            return "better" if old is None else "worse"
        if old is not None and new is not None and abs(old - new) > SAME_OBJECTIVE * max(abs(old), abs(new), 1e-300):
            if max(abs(old), abs(new)) <= SAME_OBJECTIVE and old is before.gap:
                continue  # both are proved
            return "better" if new < old else "worse"
    if speedup is None or 1 / SAME_TIME <= speedup <= SAME_TIME:
        return "same"
    return "faster" if speedup > 1 else "slower"
