"""The palette: kinds of stages differ whatever one sees of hues, and texts can be read."""

from itertools import combinations, pairwise

import numpy
import pytest

from planner.display import palette
from planner.display.palette import DARK, THEMES, Theme, contrast, stage_colour, text_on

#: Colour-blindness as simulated: at full severity these are the dichromacies.
SEEN = (None, "deuteranomaly", "protanomaly", "tritanomaly")


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: str(theme.name))
@pytest.mark.parametrize("kind", SEEN)
def test_kinds_of_stages_can_be_told_apart(kind: str | None, theme: Theme) -> None:
    """Distances in CAM02-UCS: 2 can just be seen; any two kinds are far above, those that follow each other farther."""
    colorspacious = pytest.importorskip("colorspacious", reason="colorspacious is not installed")

    def seen(colour: str, severity: int) -> object:
        red_green_blue = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        if kind is not None:
            space = {"name": "sRGB1+CVD", "cvd_type": kind, "severity": severity}
            red_green_blue = numpy.clip(colorspacious.cspace_convert(red_green_blue, space, "sRGB1"), 0, 1)
        return colorspacious.cspace_convert(red_green_blue, "sRGB1", "CAM02-UCS")

    for severity in (50, 100):
        colours = [seen(stage_colour(look, theme), severity) for look in range(len(palette.STAGES))]
        assert all(numpy.linalg.norm(a - b) >= 17 for a, b in combinations(colours, 2))
        assert all(numpy.linalg.norm(a - b) >= 30 for a, b in pairwise(colours))


def test_texts_can_be_read() -> None:
    for colour in (*palette.STAGES, *palette.STAGES_ON_DARK, palette.NO_STAGE):
        assert contrast(text_on(colour), colour) >= 4.5
    for theme in THEMES:
        for text in (theme.ink, theme.quiet, theme.alarm):
            assert contrast(text, theme.paper) >= 4.5, theme.name
        for part in range(len(palette.SHARES)):
            for colour in theme.stages:
                mixed = palette.part_colour(colour, part, theme)
                assert contrast(text_on(mixed), mixed) >= 4.5
    for line in palette.LINES:
        assert all(contrast(line, theme.paper) >= 3 for theme in THEMES), line


def test_stages_can_be_seen_on_dark_paper() -> None:
    """A contrast of 3 for graphics, as a library has the luminance; patterns over stages suit both themes."""
    colorspacious = pytest.importorskip("colorspacious", reason="colorspacious is not installed")

    def luminance(colour: str) -> float:
        red_green_blue = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        return float(colorspacious.cspace_convert(red_green_blue, "sRGB1", "XYZ1")[1])

    for colour in (*DARK.stages, DARK.quiet, palette.NO_STAGE):
        ratio = (luminance(colour) + 0.05) / (luminance(DARK.paper) + 0.05)
        assert ratio >= 3 and ratio == pytest.approx(contrast(colour, DARK.paper), rel=1e-3)
    assert [text_on(colour) for colour in DARK.stages] == [text_on(colour) for colour in palette.STAGES]


def test_parts_of_a_bar_differ_in_lightness() -> None:
    """At most three parts are in one bar: they differ from each other and from the paper."""
    for theme in THEMES:
        for colour in theme.stages:
            parts = [palette.part_colour(colour, part, theme) for part in range(3)]
            assert len({*parts, theme.paper}) == 4


def test_patterns_differ() -> None:
    given = palette.patterns(["b", "a", "", "c", "b"])
    assert given[""] == 0 and all(x != y for x, y in combinations(given.values(), 2))
    assert palette.patterns(["b", "a"])["b"] == 0, "where all have a name, the first has no pattern"
