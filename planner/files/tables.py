"""Chains of layers as a table, CSV (also with semicolons) or TSV with a heading, as the JSON of stage partitioning."""

import csv
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from instances.errors import InstanceError, closest
from instances.memory_schemes import SCHEME, missing_rule
from instances.parameters import MAX_COUNT
from instances.units import parse_bytes, parse_time

#: How a number is read, and what a line has without it (``None``: what is read of an empty cell), by column.
Numbers = Mapping[str, tuple[Callable[[Any], float | None], float | None]]


_NUMBERS: Numbers = {
    "time": (parse_time, None),
    "weight_bytes": (parse_bytes, 0.0),
    "activation_bytes": (parse_bytes, 0.0),
    "static_bytes": (lambda cell: parse_bytes(cell) if cell else None, None),
    "output_bytes": (parse_bytes, 0.0),
}
_NOTES = ("name", "module", "role")
#: What a table does not have: settings, each with an example.
_MACHINE = {"devices": "8", "memory": "16GiB", "bandwidth": "25GB/s", "microbatches": "32"}


def is_table(content: Any) -> bool:
    """Whether the content of a file is a table of layers: text whose first line names a column ``time``."""
    if not isinstance(content, str):
        return False
    heading = content.lstrip().partition("\n")[0]
    return "time" in [cell.strip() for cell in heading.split(_separator(heading))]


def expect_times(content: str, where: str) -> None:
    """`InstanceError`, with the columns that there are and a heading to copy, for a table without a column ``time``."""
    heading, *rows = content.strip().splitlines() or [""]
    separator = _separator(heading)
    has_columns = bool(rows) and 0 < heading.count(separator) == rows[0].count(separator)
    if has_columns or Path(where.removesuffix(".gz")).suffix.lower() in (".csv", ".tsv"):
        rule = "a column time, as in name,time,weight_bytes,activation_bytes,output_bytes"
        raise InstanceError.at(where, "line 1", heading, rule)


def read_table(content: str, where: str, machine: Mapping[str, Any]) -> dict[str, Any]:
    """The instance of stage partitioning that a table declares: a chain of its lines, each layer on one device.

    ``content``: one line a layer, from the input side on. Columns are ``time`` (forward and backward, such as 1.3ms),
    ``weight_bytes``, ``activation_bytes``, ``output_bytes`` (to the next line; all 0 if absent), ``static_bytes`` (left
    out if absent), and ``name``, ``module`` and ``role``.
    ``machine``: settings by name, for what a table does not have.
    `InstanceError` if a column is unknown or a cell breaks its rule; what is missing of the machine is named at once.
    """
    absent = [option for option in _MACHINE if machine.get(option) is None]
    if absent:
        options = ", ".join(f"--{option} {_MACHINE[option]}" for option in absent)
        raise InstanceError.missing(where, ", ".join(absent), f"{options}: a table has layers alone")
    lines = rows_of(content, where, _NUMBERS, _NOTES)
    if machine.get(SCHEME) is None and machine.get(SCHEME.replace("-", "_")) is None:
        for line, layer in lines.items():
            if layer["static_bytes"] is None and layer["weight_bytes"]:
                raise InstanceError.missing(
                    f"{where}: line {line}", "static_bytes", missing_rule(layer["weight_bytes"])
                )
    layers = list(lines.values())
    edges = [
        {"source": number, "target": number + 1, "bytes": layer.pop("output_bytes")}
        for number, layer in enumerate(layers)
    ]
    return {
        "problem": "stage_partitioning",
        "schema_version": 1,
        "name": Path(where.removesuffix(".gz")).stem or "table",
        "layers": [_layer_json(number, layer) for number, layer in enumerate(layers)],
        "edges": edges[:-1],
    }


def rows_of(content: str, where: str, numbers: Numbers, notes: Collection[str]) -> dict[int, dict[str, Any]]:
    """The lines of a table below its heading by their numbers, and each by column.

    An absent or empty cell is its column's default.

    ``numbers``: columns of numbers: how each is read, and the default (``None``: what is read of an empty cell, or a
    refusal).
    ``notes``: columns of text.
    `InstanceError` if a column is unknown or there twice, a line has another number of cells, or a cell breaks its
    rule.
    """
    heading = content.lstrip().partition("\n")[0]
    lines = content.strip().splitlines()
    try:
        rows = list(csv.reader(lines[: MAX_COUNT + 2], delimiter=_separator(heading), skipinitialspace=True))
    except csv.Error as error:
        raise InstanceError.at(where, "content", str(error), "CSV or TSV") from None
    if len(lines) > MAX_COUNT + 1:
        raise InstanceError.at(where, "lines below the heading", len(lines) - 1, f"at most {MAX_COUNT}")
    columns = [cell.strip() for cell in rows[0]] if rows else []
    known = (*notes, *numbers)
    for number, column in enumerate(columns):
        if column not in known or column in columns[:number]:
            rule = f"columns, each once, of {', '.join(known)}{closest(column, known)}"
            raise InstanceError.at(where, "line 1", column, rule)
    return {
        line: _row(columns, row, f"{where}: line {line}", numbers, notes)
        for line, row in enumerate(rows[1:], start=2)
        if row
    }


def _separator(heading: str) -> str:
    return "\t" if "\t" in heading else ";" if ";" in heading and "," not in heading else ","


def _row(columns: list[str], row: list[str], where: str, numbers: Numbers, notes: Collection[str]) -> dict[str, Any]:
    if len(row) != len(columns):
        raise InstanceError.at(where, "cells", len(row), f"{len(columns)}, one for each column")
    cells = {column: cell.strip() for column, cell in zip(columns, row, strict=True)}
    found: dict[str, Any] = {note: cells.get(note, "") for note in notes}
    for column, (parse, default) in numbers.items():
        cell = cells.get(column, "")
        if not cell and default is not None:
            found[column] = default
            continue
        try:
            found[column] = parse(cell)
        except ValueError as error:
            raise InstanceError.at(where, column, cell, str(error)) from None
    return found


def _layer_json(number: int, layer: Mapping[str, Any]) -> dict[str, Any]:
    """A layer in the JSON of the problem."""
    numbers = {column: layer[column] for column in _NUMBERS if column != "output_bytes"}
    only = {"id": "only", **numbers}
    return {"id": number, **{note: layer[note] for note in _NOTES}, "tmpcs": {"1": [only]}}
