"""The palette as the page's pictures take it: colours by name, and Vega's settings, for each theme of the reader."""

from __future__ import annotations

from typing import Any

from planner.display.palette import (
    DARK,
    LIGHT,
    NO_STAGE,
    PART_PATTERNS,
    Theme,
    line_colour,
    mixed,
    part_colour,
    text_on,
)
from planner.display.palette import PATTERNS as HATCHES

#: Patterns as paths in a square of 8, in the order of `palette.PATTERNS` without the first, which is none.
PATTERNS = (
    "M0 8L8 0M-2 2L2 -2M6 10L10 6",
    "M2 2h.1M6 6h.1",
    "M0 0L8 8M0 8L8 0",
    "M0 0L8 8M6 -2L10 2M-2 6L2 10",
    "M4 2a2 2 0 1 0 .01 0",
    "M4 0V8",
    "M4 0V8M0 4H8",
    "M0 4H8",
    "M4 1V7M1.4 2.5L6.6 5.5M6.6 2.5L1.4 5.5",
)
_FONT = "system-ui, sans-serif"
#: How much of a colour each step of a ramp keeps, from the strongest on.
_RAMP = (1.0, 0.72, 0.5, 0.3)


def schemes() -> dict[str, Any]:
    """For ``light`` and ``dark`` what the ``@names`` of specifications mean, and Vega's settings."""
    return {theme.name: {"colours": _colours(theme), "config": _config(theme)} for theme in (LIGHT, DARK)}


def _colours(theme: Theme) -> dict[str, Any]:
    line = line_colour(0)
    return {
        **{name: getattr(theme, name) for name in ("paper", "ink", "quiet", "faint", "alarm")},
        "line": line,
        "stages": theme.stages,
        "on_stages": [text_on(colour) for colour in theme.stages],
        "on_pale_stages": [text_on(part_colour(colour, 1, theme)) for colour in theme.stages],
        **{f"part{part}": _hatches(part, theme) for part in range(len(PART_PATTERNS))},
        "no_stage": NO_STAGE,
        "edge": theme.quiet,
        "hatching": f"url(#hatch-1-{text_on(theme.paper).removeprefix('#')})",
        **{f"ramp{place}": mixed(line, theme.paper, share) for place, share in enumerate(_RAMP)},
        f"ramp{len(_RAMP)}": theme.faint,
    }


def part_pattern(part: int) -> str:
    """The page's pattern over a part of a stacked bar; empty for parts that have none.

    >>> part_pattern(0), part_pattern(1)
    ('', 'hatch-1')
    """
    hatch = PART_PATTERNS[part % len(PART_PATTERNS)][:3]
    return f"hatch-{HATCHES.index(hatch)}" if hatch else ""


def _hatches(part: int, theme: Theme) -> list[str]:
    """The same for each stage, with lines in black or white, as the part's colour needs."""
    lines = [text_on(part_colour(colour, part, theme)).removeprefix("#") for colour in theme.stages]
    return [f"url(#{part_pattern(part)}-{line})" if part_pattern(part) else "transparent" for line in lines]


def _config(theme: Theme) -> dict[str, Any]:
    words = {"labelFont": _FONT, "titleFont": _FONT, "labelColor": theme.ink, "titleColor": theme.ink}
    axis = {"gridColor": theme.faint, "domainColor": theme.quiet, "tickColor": theme.quiet, "titleFontWeight": "normal"}
    return {
        "background": theme.paper,
        "font": _FONT,
        "aria": False,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": 4,
        "view": {"stroke": None},
        "axis": {**words, **axis, "labelFontSize": 12, "titleFontSize": 12, "labelLimit": 150, "labelSeparation": 8},
        "legend": {**words, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelLimit": 150},
        "text": {"color": theme.ink, "font": _FONT, "fontSize": 12},
        "mark": {"tooltip": None},
    }
