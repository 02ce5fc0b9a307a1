"""From panels to picture files: the one place that imports matplotlib."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.errors import UsageError
from planner.plots.panel import Panel

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
    """One figure with a panel beside the other, each under its title if they are ``titled``."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(_WIDTH * max(1, len(drawn)), _HEIGHT), layout="constrained")
    for index, panel in enumerate(drawn, start=1):
        axes = made.add_subplot(1, len(drawn), index)
        panel.draw(axes)
        if titled:
            axes.set_title(panel.title, fontsize=10)
    if title:
        made.suptitle(title, parse_math=False)  # names are no formulas
    return made


def save(drawn: Sequence[Panel], path: str, title: str = "") -> None:
    """Write the panels to a picture file.

    Raises
    ------
    UsageError
        If matplotlib is missing or the file cannot be written.
    """
    require(path)
    try:
        figure(drawn, title).savefig(path)
    except (OSError, ValueError) as error:
        raise UsageError.at("--plot", path, f"a picture that can be written ({error})") from None


def svg(panel: Panel) -> str:
    """One panel as SVG text without its title, the same for the same numbers."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "planner", "svg.fonttype": "none"}):
        text = io.StringIO()
        figure([panel], titled=False).savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
