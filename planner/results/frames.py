"""Rows as data frames of the library that a researcher has: pandas, else polars."""

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from planner.process.errors import UsageError

_LIBRARIES = ("pandas", "polars")


def to_frame(rows: Iterable[Any]) -> Any:
    """A data frame with a row for each: dicts, or what has a ``to_json``, such as the rows of a bench.

    Raises
    ------
    UsageError
        If neither pandas nor polars is installed.
    """
    library = next((name for name in _LIBRARIES if find_spec(name) is not None), None)
    if library is None:
        raise UsageError("a data frame needs pandas or polars: pip install '.[frames]'")
    return import_module(library).DataFrame([row.to_json() if hasattr(row, "to_json") else dict(row) for row in rows])
