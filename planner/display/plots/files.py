"""From charts to picture files: the one place that runs vl-convert, which draws Vega-Lite without a browser."""

import base64
import importlib.util
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any

try:
    import resource
except ImportError:  # only Unix has it
    resource = None  # type: ignore[assignment]

from planner.display.palette import LIGHT, Theme
from planner.display.plots.chart import Chart, cell
from planner.display.plots.theme import TEXT, pattern_elements, scheme
from planner.display.terminal import printable
from planner.files.write import write_atomically
from planner.process.errors import UsageError

#: What can be written, by the end of the name.
SUFFIXES = (".png", ".svg", ".pdf")
#: Pixels of a picture's width where nothing is said, and of a picture that is as high as wide.
WIDTH, _SQUARE = 1200, 460
#: From so many pixels on two charts share a row; pixels between charts and around them.
_TWO, _GAP, _PAD = 800, 16, 8
#: Names of methods have this share of a chart's width: of less than so many pixels, and of more.
_NARROW, _NAMES = 500, (0.46, 0.28)
#: Pixels of a line of text, as a multiple of its size, and of a sign.
_LINE, _SIGN = 1.35, 0.56
#: Bytes of addresses that V8, which runs Vega, has to be able to reserve: with 64 GiB it aborts, with 80 it runs.
_ADDRESSES = 128 * 2**30
#: Dots for each pixel of a PNG file.
_FINE = 2.0
#: Between a number and its unit, where no line ends.
_UNIT = re.compile(r"(?<=\d) (?=([mµn]?s|[KMGT]?i?B|%)(\W|$))")


def can_draw() -> bool:
    """Whether what draws files is installed, and may reserve the addresses that it needs."""
    return importlib.util.find_spec("vl_convert") is not None and not lacks_addresses()


def lacks_addresses() -> str:
    """Why what draws would abort the process: the limit of addresses (``ulimit -v``); empty if it would not."""
    limit = -1 if resource is None else resource.getrlimit(resource.RLIMIT_AS)[0]
    if not 0 <= limit < _ADDRESSES:
        return ""
    return f"ulimit -v is {limit >> 10}; expected unlimited, or at least {_ADDRESSES >> 10}"


def _library() -> ModuleType:
    """What draws; `UsageError` where it would abort this process."""
    if lacks_addresses():
        raise UsageError(f"a picture needs addresses: {lacks_addresses()}")
    import vl_convert

    found: ModuleType = vl_convert
    return found


def require_drawable(path: str | None) -> None:
    """`UsageError` if what draws files is missing, cannot run here, or writes no such file; ``None`` is fine."""
    if path is None:
        return
    if not can_draw():
        missing = "vl-convert-python: pip install '.[plot]'"
        raise UsageError(f"--plot needs {f'addresses: {lacks_addresses()}' if lacks_addresses() else missing}")
    if Path(path).suffix.lower() not in SUFFIXES:
        raise UsageError.at("--plot", path, f"a file that ends in {', '.join(SUFFIXES)}")


def save(charts: Sequence[Chart], path: str, title: str = "", width: int = WIDTH, theme: Theme = LIGHT) -> None:
    """Write the charts to a picture file, whole or not at all; ``width`` is in pixels.

    Raises
    ------
    UsageError
        If vl-convert is missing or the file cannot be written.
    """
    require_drawable(path)
    write_atomically(path, Sheet(charts, title, width, theme).content(Path(path).suffix.lower()), "--plot")


def vega_lite(chart: Chart, width: int = WIDTH, theme: Theme = LIGHT) -> dict[str, Any]:
    """The chart as one Vega-Lite specification with its data, which other programs can draw.

    >>> vega_lite(Chart("", "", {"mark": {"type": "bar", "color": "@ink"}}, {}), 300)["mark"]["color"]
    '#1a1a1a'
    """
    own = scheme(theme)
    config, square = own["config"], min(width, _SQUARE)
    values = {**own["colours"], "top": chart.top, "square": square, "inside": square - 2 * config["padding"]}
    names = _NAMES[0] if width < _NARROW else _NAMES[1]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": width,
        **fill_names(chart.spec, values),
        "datasets": {
            name: [{column: cell(value) for column, value in row.items()} for row in rows]
            for name, rows in chart.datasets.items()
        },
        "config": {**config, "axisY": {"labelLimit": names * width}},
    }


def fill_names(spec: Any, values: Mapping[str, Any]) -> Any:
    """A specification with colours, and other values, in the place of their ``@names``.

    >>> fill_names({"fill": "@ink", "of": ["@else"]}, {"ink": "#000"})
    {'fill': '#000', 'of': ['@else']}
    """
    if isinstance(spec, str):
        return values.get(spec[1:], spec) if spec.startswith("@") else cell(spec)
    if isinstance(spec, Mapping):
        return {key: fill_names(part, values) for key, part in spec.items()}
    return [fill_names(part, values) for part in spec] if isinstance(spec, list | tuple) else spec


@dataclass(frozen=True)
class Sheet:
    """Charts on one sheet, each under its title and what it says, which a notebook shows as a picture.

    Parameters
    ----------
    width
        In pixels: from 400 (a telephone) to 1600. Wide charts take a row; of the others two share one from 800 on.
    theme
        One of `planner.plots.LIGHT`, ``DARK`` and ``PRINT``, or one with another ``font``.
    shown
        How wide it is shown, if that differs: in pixels, and points of a PDF file.
    """

    charts: Sequence[Chart]
    title: str = ""
    width: int = WIDTH
    theme: Theme = LIGHT
    shown: float | None = None

    def content(self, suffix: str) -> str | bytes:
        """The content of a file that ends in one of `SUFFIXES`."""
        text = self.svg()
        if suffix == ".svg":
            return text
        vl_convert = _library()
        made: bytes = vl_convert.svg_to_pdf(text) if suffix == ".pdf" else vl_convert.svg_to_png(text, scale=_FINE)
        return made

    def svg(self) -> str:
        """The sheet as SVG, the same for the same numbers."""
        whole = self.width - 2 * _PAD
        parts, high = self._words(self.title, 0, 0, whole, TEXT + 2, "bold")
        for row in self._rows():
            wide = (whole - _GAP * (len(row) - 1)) // len(row)
            placed = [self._place(chart, place * (wide + _GAP), high, wide) for place, chart in row]
            parts += [part for own, _ in placed for part in own]
            high = max(end for _, end in placed) + _GAP
        return _document(parts, self.width, high, self.theme, str(self), (self.shown or self.width) / self.width)

    def _rows(self) -> list[list[tuple[int, Chart]]]:
        """The charts in rows, in their order, each with its place in its row."""
        rows: list[list[tuple[int, Chart]]] = []
        for chart in self.charts:
            is_free = bool(rows) and self.width >= _TWO and len(rows[-1]) == 1
            if is_free and not chart.is_wide and not rows[-1][0][1].is_wide:
                rows[-1].append((1, chart))
            else:
                rows.append([(0, chart)])
        return rows

    def _place(self, chart: Chart, left: float, top: float, wide: int) -> tuple[list[str], float]:
        """A chart under its title, what it says and its key; and where it ends."""
        title, top = self._words(chart.title, left, top, wide, TEXT + 1, "bold")
        says, top = self._words(chart.text, left, top, wide, TEXT, "normal")
        key, top = _key(chart, left, top, wide, self.theme)
        drawn, high = _draw(chart, wide, self.theme, f"c{left:g}-{top:g}-")
        return [*title, *says, *key, f'<g transform="translate({left:g},{top:g})">{drawn}</g>'], top + high

    def _words(
        self, text: str, left: float, top: float, wide: float, size: int, weight: str
    ) -> tuple[list[str], float]:
        """Text in lines that are so wide, and where the last one ends."""
        whole = _UNIT.sub("\N{NO-BREAK SPACE}", printable(text.replace("\n", " ")))
        sign = size * (_SIGN if weight == "normal" else 1.1 * _SIGN)
        lines = textwrap.wrap(whole, max(20, int(wide / sign)))
        fill = self.theme.quiet if weight == "normal" else self.theme.ink
        look = f'font-size="{size}" font-weight="{weight}" fill="{fill}"'
        found = [
            f'<text x="{left:g}" y="{top + size + _LINE * size * place:g}" {look}>{escape(line)}</text>'
            for place, line in enumerate(lines)
        ]
        return found, top + _LINE * size * len(lines)

    def png(self) -> bytes:
        """The sheet as the content of a PNG file."""
        made = self.content(".png")
        assert isinstance(made, bytes)
        return made

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        content = base64.b64encode(self.png()).decode()
        return {"image/png": content, "text/plain": str(self)}, {"image/png": {"width": self.width}}

    def __str__(self) -> str:
        """What the sheet shows, for those who do not see it."""
        return "; ".join(f"{each.title}: {each.text}" if each.text else each.title for each in self.charts)


def _draw(chart: Chart, width: int, theme: Theme, prefix: str) -> tuple[str, float]:
    """A chart as an SVG element, whose names begin with a prefix, and its height."""
    vl_convert = _library()
    text: str = vl_convert.vegalite_to_svg(
        vega_lite(chart, width, theme), vl_version=vl_convert.get_vegalite_versions()[-1]
    )
    size = re.search(r'<svg[^>]* height="([\d.]+)"', text)
    assert size is not None
    own = re.sub(r'(\bid="|url\(#)(?!hatch-)', rf"\g<1>{prefix}", text)
    return own, float(size[1])


def _key(chart: Chart, left: float, top: float, wide: float, theme: Theme) -> tuple[list[str], float]:
    """What patterns and colours stand for, in lines; and where the last one ends."""
    found, across, high = [], left, 1.5 * TEXT
    for name, pattern, share in chart.key:
        room = 48 + _SIGN * TEXT * len(name)
        if across > left and across + room > left + wide:
            across, top = left, top + high
        box = f'x="{across:g}" y="{top + 2:g}" width="28" height="{TEXT + 2}"'
        if pattern.startswith("@"):
            found.append(f'<rect {box} fill="{scheme(theme)["colours"][pattern[1:]]}"/>')
        else:
            ink = "ffffff" if (theme.name == "dark") == (share < 0.5) else "000000"
            found.append(f'<rect {box} fill="{theme.ink}" fill-opacity="{share:g}" stroke="{theme.ink}"/>')
            found += [f'<rect {box} fill="url(#{pattern}-{ink})"/>'] if pattern else []
        look = f'font-size="{TEXT}" fill="{theme.ink}"'
        found.append(f'<text x="{across + 34:g}" y="{top + TEXT + 1:g}" {look}>{escape(printable(name))}</text>')
        across += room
    return found, top + high + 4 if chart.key else top + 4


def _document(parts: Sequence[str], width: int, height: float, theme: Theme, says: str, scale: float) -> str:
    """The parts as an SVG document on the theme's paper."""
    height += 2 * _PAD
    size = f'width="{scale * width:g}" height="{scale * height:g}" viewBox="{-_PAD} {-_PAD} {width} {height:g}"'
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    head = (
        f'<svg {names} {size} role="img" font-family="{escape(theme.font)}">',
        f"<title>{escape(printable(says))}</title>",
        f"<defs>{pattern_elements()}</defs>",
        f'<rect x="{-_PAD}" y="{-_PAD}" width="100%" height="100%" fill="{theme.paper}"/>',
    )
    return "\n".join([*head, *parts, "</svg>", ""])
