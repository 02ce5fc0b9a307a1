"""From panels to picture files: the one place that imports matplotlib."""

from __future__ import annotations

import base64
import importlib.util
import io
import re
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.display.palette import LIGHT, Theme
from planner.display.plots.marks import SMALL, TEXT, label_of, theme_of, width_of
from planner.display.plots.panel import Panel
from planner.display.terminal import printable
from planner.files.write import write_atomically
from planner.process.errors import UsageError

#: What matplotlib writes, by the end of the name.
SUFFIXES = (".png", ".svg", ".pdf")
#: Pixels of a picture's width where nothing is said, and pixels of an inch.
WIDTH, _DPI = 1200, 100
#: Dots of an inch where a picture is shown on a screen.
_FINE = 160
#: From so many pixels on two panels share a row; inches of a panel's titles.
_TWO, _TITLE = 800, 0.5
#: Between a number and its unit, where no line ends.
_UNIT = re.compile(r"(?<=\d) (?=([mµn]?s|[KMGT]?i?B|%)(\W|$))")


def require(path: str) -> None:
    """`UsageError` if matplotlib is missing, or writes no such file."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib: pip install 'dnn-planner[plot]'")
    if Path(path).suffix.lower() not in SUFFIXES:
        raise UsageError.at("--plot", path, f"a file that ends in {', '.join(SUFFIXES)}")


def figure(
    drawn: Sequence[Panel], title: str = "", titled: bool = True, width: int = WIDTH, theme: Theme = LIGHT
) -> Any:
    """One figure with the panels in rows, each under its title if they are ``titled``.

    Parameters
    ----------
    width
        In pixels: from 400 (a telephone) to 1600. Wide panels take a row; of the others two share one from 800 on.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = _rows(drawn, 1 if width < _TWO else 2)
    heights = [max(_height(panel, width / _DPI / len(row)) for panel in row) for row in rows]
    with matplotlib.rc_context(_settings(theme)):
        made = Figure(
            figsize=(width / _DPI, max(2.0, sum(heights)) + (_TITLE if title else 0.0)),
            dpi=_DPI,
            layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08),
        )
        made.set_facecolor(theme.paper)
        grid = made.add_gridspec(max(1, len(rows)), 1, height_ratios=heights or None)
        for number, row in enumerate(rows):
            cells = grid[number].subgridspec(1, len(row))
            for place, panel in enumerate(row):
                axes = made.add_subplot(cells[place])
                panel.draw(axes)
                if titled:
                    _entitle(axes, panel, width / len(row))
                _literal(axes)
        if title:
            made.suptitle(label_of(title), parse_math=False, x=0.01, ha="left", fontsize=11)
    return made


def _height(panel: Panel, width: float) -> float:
    """Inches of a panel with its titles: a line of what it says, and what more lines take."""
    lines = len(textwrap.wrap(panel.says, max(20, int((width - 0.6) * 72 / TEXT / 0.56))))
    return panel.height_at(width) + _TITLE + max(0, lines - 1) * 12.5 / 72


def _rows(drawn: Sequence[Panel], together: int) -> list[list[Panel]]:
    """The panels in rows, in their order."""
    rows: list[list[Panel]] = []
    for panel in drawn:
        if rows and not panel.is_wide and not rows[-1][0].is_wide and len(rows[-1]) < together:
            rows[-1].append(panel)
        else:
            rows.append([panel])
    return rows


def _entitle(axes: Any, panel: Panel, width: float) -> None:
    """The title in bold, and what the panel says below it, over whatever stands above the axes."""
    theme, legend = theme_of(axes), axes.get_legend()
    over = legend is not None and legend.get_bbox_to_anchor().y1 > axes.bbox.y0 + axes.bbox.height / 2
    lines = -(-len(legend.get_texts()) // legend._ncols) if over and legend else 0
    signs = max(20, int((width - _beside(axes)) * 72 / _DPI / TEXT / 0.56))
    said = textwrap.wrap(_UNIT.sub("\N{NO-BREAK SPACE}", panel.says), signs)
    low = 5 + 12 * lines
    place = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "left", "va": "bottom"}
    axes.annotate("\n".join(said), (0, 1), (0, low), fontsize=TEXT, color=theme.quiet, **place)
    title = "\n".join(textwrap.wrap(label_of_title(panel.title), int(0.83 * signs)))
    axes.annotate(title, (0, 1), (0, low + 12.5 * len(said)), fontsize=TEXT + 1, fontweight="bold", **place)


def _beside(axes: Any) -> float:
    """Pixels of a panel's width that its axes do not have: names of rows take more than numbers, and so does a key."""
    from matplotlib.ticker import FixedLocator

    has_names = isinstance(axes.yaxis.get_major_locator(), FixedLocator)
    names = [text.get_text() for text in axes.get_yticklabels()] if has_names else []
    widest = max((width_of(axes, name) for name in names), default=0.0)
    has_key = any(each.colorbar is not None for each in (*axes.images, *axes.collections))
    return max(60.0, widest + 32.0) + (90.0 if has_key else 0.0)


def label_of_title(text: str) -> str:
    """A title on one line, every sign of it printable."""
    return printable(text.replace("\n", " "))


def _settings(theme: Theme) -> dict[str, Any]:
    """What matplotlib is to use for everything that no drawing decides."""
    return {
        "font.size": TEXT,
        "axes.labelsize": TEXT,
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "legend.fontsize": SMALL,
        "figure.facecolor": theme.paper,
        "axes.facecolor": "none",
        "savefig.facecolor": theme.paper,
        "text.color": theme.ink,
        "axes.labelcolor": theme.ink,
        "axes.edgecolor": theme.quiet,
        "xtick.color": theme.quiet,
        "ytick.color": theme.quiet,
        "xtick.labelcolor": theme.ink,
        "ytick.labelcolor": theme.ink,
        "hatch.linewidth": 0.7,
    }


def _literal(axes: Any) -> None:
    """Names and units are no formulas: a ``$`` is a ``$``. (The ticks of numbers are formulas.)"""
    legend = axes.get_legend()
    labels = [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts, *(legend.get_texts() if legend else ())]
    for label in labels:
        label.set_parse_math(False)


def _drawn(made: Any, kind: str, **settings: Any) -> bytes:
    """The figure as the content of a file; no warnings about signs that the font lacks or names that are too long."""
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph|constrained_layout", UserWarning)
        made.savefig(content, format=kind, **settings)
    return content.getvalue()


def save(drawn: Sequence[Panel], path: str, title: str = "", width: int = WIDTH, theme: Theme = LIGHT) -> None:
    """Write the panels to a picture file, whole or not at all; ``width`` is in pixels.

    Raises
    ------
    UsageError
        If matplotlib is missing or the file cannot be written.
    """
    require(path)
    try:
        picture = _drawn(figure(drawn, title, width=width, theme=theme), Path(path).suffix.lower().removeprefix("."))
    except ValueError as error:
        raise UsageError.at("--plot", path, f"a plan that can be drawn ({error})") from None
    write_atomically(path, picture, "--plot")


@dataclass(frozen=True)
class Sheet:
    """Panels on one sheet, which a notebook shows as a picture.

    Parameters
    ----------
    panels, title, width, theme
        As `figure` takes them.
    """

    panels: Sequence[Panel]
    title: str = ""
    width: int = WIDTH
    theme: Theme = LIGHT

    def figure(self) -> Any:
        """The sheet as matplotlib has it."""
        return figure(self.panels, self.title, width=self.width, theme=self.theme)

    def png(self) -> bytes:
        """The sheet as the content of a PNG file."""
        return _drawn(self.figure(), "png", dpi=_FINE)

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """What IPython asks an object for."""
        made = self.figure()
        wide, high = (round(inches * _DPI) for inches in made.get_size_inches())
        content = base64.b64encode(_drawn(made, "png", dpi=_FINE)).decode()
        return {"image/png": content, "text/plain": repr(self)}, {"image/png": {"width": wide, "height": high}}

    def __repr__(self) -> str:
        return f"Sheet({', '.join(panel.title for panel in self.panels)})"


def svg(panel: Panel) -> str:
    """One panel as SVG text without its title, the same for the same numbers."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "planner", "svg.fonttype": "none"}):
        return _drawn(
            figure([panel], titled=False, width=WIDTH if panel.is_wide else WIDTH // 2), "svg", metadata={"Date": None}
        ).decode()
