"""From panels to picture files: the one place that imports matplotlib."""

from __future__ import annotations

import importlib.util
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.errors import UsageError
from planner.inputs.files import write_atomically
from planner.show.plots.charts import label_of
from planner.show.plots.panel import Panel

#: What matplotlib writes, by the end of the name.
SUFFIXES = (".png", ".svg", ".pdf")
_WIDTH, _HEIGHT = 6.0, 4.0


def require(path: str) -> None:
    """`UsageError` if matplotlib is missing, or writes no such file."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib: pip install 'dnn-planner[plot]'")
    if Path(path).suffix.lower() not in SUFFIXES:
        raise UsageError.at("--plot", path, f"a file that ends in {', '.join(SUFFIXES)}")


def figure(drawn: Sequence[Panel], title: str = "", titled: bool = True) -> Any:
    """One figure with the panels side by side, each under its title if they are ``titled``."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(_WIDTH * max(1, len(drawn)), _HEIGHT), layout="constrained")
    for index, panel in enumerate(drawn, start=1):
        axes = made.add_subplot(1, len(drawn), index)
        panel.draw(axes)
        if titled:
            axes.set_title(panel.title, fontsize=10)
        _literal(axes)
    if title:
        made.suptitle(label_of(title), parse_math=False)
    return made


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


def save(drawn: Sequence[Panel], path: str, title: str = "") -> None:
    """Write the panels to a picture file, whole or not at all.

    Raises
    ------
    UsageError
        If matplotlib is missing or the file cannot be written.
    """
    require(path)
    try:
        picture = _drawn(figure(drawn, title), Path(path).suffix.lower().removeprefix("."))
    except ValueError as error:
        raise UsageError.at("--plot", path, f"a plan that can be drawn ({error})") from None
    write_atomically(path, picture, "--plot")


def svg(panel: Panel) -> str:
    """One panel as SVG text without its title, the same for the same numbers."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "planner", "svg.fonttype": "none"}):
        return _drawn(figure([panel], titled=False), "svg", metadata={"Date": None}).decode()
