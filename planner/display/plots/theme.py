"""The palette as pictures take it: colours by name, patterns, and Vega's settings, for each theme."""

from typing import Any

from planner.display.palette import (
    DARK,
    LIGHT,
    NO_STAGE,
    PART_PATTERNS,
    PATTERNS,
    Theme,
    line_colour,
    mix,
    part_colour,
    text_on,
)

#: Pixels of text.
TEXT = 12
#: The ink of patterns: black or white, whichever can be seen on a colour.
_INKS = ("000000", "ffffff")
#: How much of a colour each step of a ramp keeps, from the strongest on.
_RAMP = (1.0, 0.72, 0.5, 0.3)


def schemes() -> dict[str, Any]:
    """For ``light`` and ``dark`` what the ``@names`` of specifications mean, and Vega's settings."""
    return {theme.name: scheme(theme) for theme in (LIGHT, DARK)}


def scheme(theme: Theme) -> dict[str, Any]:
    """The same for one theme."""
    return {"colours": _colours(theme), "config": _config(theme)}


def pattern_elements() -> str:
    """The patterns as SVG, for the ``<defs>`` of whatever the pictures are part of."""
    square = 'width="8" height="8" patternUnits="userSpaceOnUse"'
    look = 'stroke-opacity=".65" stroke-width="1.3" stroke-linecap="round" fill="none"'
    return "".join(
        f'<pattern id="hatch-{place}-{ink}" {square}><path d="{path}" stroke="#{ink}" {look}/></pattern>\n'
        for ink in _INKS
        for place, path in enumerate(PATTERNS)
        if place
    )


def _colours(theme: Theme) -> dict[str, Any]:
    line = line_colour(0)
    return {
        **{name: getattr(theme, name) for name in ("paper", "ink", "quiet", "faint", "alarm")},
        "line": line,
        **{f"stage{look}": colour for look, colour in enumerate(theme.stages)},
        **{f"on_stage{look}": text_on(colour) for look, colour in enumerate(theme.stages)},
        **{f"on_pale_stage{look}": text_on(part_colour(colour, 1, theme)) for look, colour in enumerate(theme.stages)},
        **{
            f"part{part}_{look}": _hatch(part, colour, theme)
            for part in range(len(PART_PATTERNS))
            for look, colour in enumerate(theme.stages)
        },
        "no_stage": NO_STAGE,
        "edge": theme.quiet,
        "hatching": f"url(#hatch-1-{text_on(theme.paper).removeprefix('#')})",
        **{f"ramp{place}": mix(line, theme.paper, share) for place, share in enumerate(_RAMP)},
        f"ramp{len(_RAMP)}": theme.faint,
    }


def part_pattern(part: int) -> str:
    """The pattern over a part of a stacked bar; empty for parts that have none.

    >>> part_pattern(0), part_pattern(1)
    ('', 'hatch-1')
    """
    place = PART_PATTERNS[part % len(PART_PATTERNS)]
    return f"hatch-{place}" if place else ""


def _hatch(part: int, colour: str, theme: Theme) -> str:
    """The same for a stage's colour, with lines in black or white, as the part's colour needs."""
    line = text_on(part_colour(colour, part, theme)).removeprefix("#")
    return f"url(#{part_pattern(part)}-{line})" if part_pattern(part) else "transparent"


def _config(theme: Theme) -> dict[str, Any]:
    words = {"labelFont": theme.font, "titleFont": theme.font, "labelColor": theme.ink, "titleColor": theme.ink}
    axis = {"gridColor": theme.faint, "domainColor": theme.quiet, "tickColor": theme.quiet, "titleFontWeight": "normal"}
    return {
        "background": theme.paper,
        "font": theme.font,
        "aria": False,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": 4,
        "view": {"stroke": None},
        "axis": {
            **words,
            **axis,
            "labelFontSize": TEXT,
            "titleFontSize": TEXT,
            "labelLimit": 150,
            "labelSeparation": 8,
        },
        "legend": {
            **words,
            "labelFontSize": TEXT,
            "titleFontSize": TEXT,
            "titleFontWeight": "normal",
            "labelLimit": 150,
        },
        "text": {"color": theme.ink, "font": theme.font, "fontSize": TEXT},
        "mark": {"tooltip": None},
    }
