"""The small type that pictures of the page are handed around as: a Vega-Lite specification, and its rows apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.display.terminal import printable

#: More rows than this are drawn on a canvas: quicker than as many elements of a document.
SVG_ROWS = 1500
#: Significant digits of numbers that are drawn.
_DIGITS = 6
#: A row of what is drawn.
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Chart:
    """A picture.

    Parameters
    ----------
    title
        What it says, above it.
    text
        The same for those who do not see it.
    spec
        Vega-Lite without data. The strings ``@ink``, ``@paper``, ``@quiet``, ``@faint``, ``@alarm`` are colours of the
        reader's theme, ``@square`` and ``@inside`` are the width and height of a picture that is as high as wide, and
        ``@top`` is ``top`` of the highest of the charts that stand side by side.
    datasets
        What ``{"data": {"name": ...}}`` of the specification means: rows, all with the same names.
    top
        Where the axis that is shared by plans side by side ends; ``None``: there is none.
    details
        Of the rows of which data a reader may see more, by column what it is called there, and what a row is called.
    unit
        Of ``top``: only charts with the same one share it.
    key
        Names, and for each the pattern or ``@colour`` that stands for it, and the share of a stage's colour below it.
    """

    title: str
    text: str
    spec: Mapping[str, Any]
    datasets: Mapping[str, Sequence[Row]]
    top: float | None = None
    details: tuple[str, Mapping[str, str], str] | None = None
    unit: str = ""
    key: tuple[tuple[str, str, float], ...] = ()

    @property
    def is_large(self) -> bool:
        """Whether it is drawn on a canvas."""
        return max(map(len, self.datasets.values()), default=0) > SVG_ROWS


@dataclass
class Columns:
    """The columns of all charts, each kept once: plans of one instance share most of them."""

    kept: list[Sequence[Any] | dict[str, Sequence[Any]]] = field(default_factory=list)
    _places: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def of(self, chart: Chart) -> dict[str, Any]:
        """The chart as the page's script reads it."""
        return {
            "title": printable(chart.title),
            "text": printable(chart.text),
            "spec": chart.spec,
            "data": {name: self._split(rows) for name, rows in chart.datasets.items()},
            "top": chart.top,
            "details": chart.details,
            "unit": chart.unit,
            "key": [[printable(name), pattern, share] for name, pattern, share in chart.key],
            "canvas": chart.is_large,
        }

    def _split(self, rows: Sequence[Row]) -> dict[str, int]:
        names = rows[0] if rows else ()
        return {name: self._place(tuple(_plain(row[name]) for row in rows)) for name in names}

    def _place(self, column: tuple[Any, ...]) -> int:
        key = tuple((type(value), value) for value in column)
        if key not in self._places:
            self._places[key] = len(self.kept)
            self.kept.append(_short(column))
        return self._places[key]


def _short(column: Sequence[Any]) -> Sequence[Any] | dict[str, Sequence[Any]]:
    """A column, or where texts come again and again its distinct values and their places.

    >>> _short(["stage 0"] * 3), _short(["a", "b"])
    ({'of': ['stage 0'], 'at': [0, 0, 0]}, ['a', 'b'])
    """
    if 2 * len(set(column)) >= len(column) or not any(isinstance(value, str) for value in column):
        return column
    places = {value: place for place, value in enumerate(dict.fromkeys(column))}
    return {"of": list(places), "at": [places[value] for value in column]}


def _plain(value: Any) -> Any:
    r"""A cell: names are texts of which everything can be seen, and numbers have as many digits as a picture shows.

    >>> _plain(1 / 3), _plain("a\u202eb"), _plain(None)
    (0.333333, 'a\\u202eb', None)
    """
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return "\n".join(map(printable, value.split("\n"))) if isinstance(value, str) else value
