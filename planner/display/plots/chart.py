"""The small type that pictures are handed around as: a Vega-Lite specification, and its rows apart."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    is_wide
        Whether it has the whole width of a sheet; others share it.
    """

    title: str
    text: str
    spec: Mapping[str, Any]
    datasets: Mapping[str, Sequence[Row]]
    top: float | None = None
    details: tuple[str, Mapping[str, str], str] | None = None
    unit: str = ""
    key: tuple[tuple[str, str, float], ...] = ()
    is_wide: bool = False

    @property
    def is_large(self) -> bool:
        """Whether it is drawn on a canvas."""
        return max(map(len, self.datasets.values()), default=0) > SVG_ROWS


def cell(value: Any) -> Any:
    r"""A cell: names are texts of which everything can be seen, and numbers have as many digits as a picture shows.

    >>> cell(1 / 3), cell("a\u202eb"), cell(None)
    (0.333333, 'a\\u202eb', None)
    """
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return "\n".join(map(printable, value.split("\n"))) if isinstance(value, str) else value
