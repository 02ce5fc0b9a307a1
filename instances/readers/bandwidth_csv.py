"""A plain matrix of bandwidths in CSV: a row for each device, numbers in bytes per second or with a unit."""

import csv
from pathlib import Path

from instances.errors import InstanceError
from instances.files import read_lines
from instances.problems.device_mapping import check_matrix
from instances.units import parse_bandwidth


def read(path: str) -> tuple[tuple[float, ...], ...]:
    """The matrix in a file; what stands on its diagonal is ignored (it may be empty).

    `InstanceError` if the file cannot be read, a cell is no bandwidth ("12GB/s", "1.5e9"), or the matrix is not square
    and symmetric.
    """
    try:
        rows = [row for row in csv.reader(read_lines(Path(path)).splitlines()) if row]
    except csv.Error as error:
        raise InstanceError.at(path, "content", str(error), "CSV") from None
    matrix = tuple(
        tuple(0.0 if a == b else _cell(cell, path, a, b) for b, cell in enumerate(row)) for a, row in enumerate(rows)
    )
    check_matrix(matrix, path, "matrix")
    return matrix


def _cell(text: str, path: str, row: int, column: int) -> float:
    try:
        return parse_bandwidth(text)
    except ValueError as broken:
        raise InstanceError.at(path, f"matrix[{row}][{column}]", text, str(broken)) from None
