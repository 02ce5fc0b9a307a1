"""What everything looks like: colours of kinds of stages, patterns of TMPCs, one mark for the bottleneck, themes.

Files, pages, terminals and notebooks take their colours from here alone; docs/visual-language.md says what
they mean. Dark and light colours take turns, so that kinds that follow each other differ in lightness whatever hues one
can tell apart, also in print without colours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

#: Colours of kinds of stages; found by search over candidates, checked under simulated colour-blindness by the tests.
#: With a seventh, two of them would look the same to some, or on dark paper.
STAGES = ("#003f88", "#8ecae6", "#8c2d04", "#ffd9a0", "#4a4a4a", "#a0b21d")
#: The same on dark paper: dark ones lightened until their contrast to it is 3, and light ones a little.
STAGES_ON_DARK = ("#3667a1", "#9ed1ea", "#9e4f2c", "#ffdead", "#656565", "#adbd3d")
#: What belongs to no stage.
NO_STAGE = "#9a9a9a"
#: Patterns of TMPCs or roles in the order in which they first occur, as paths in a square of 8; the first is none.
PATTERNS = (
    "",
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
#: Stands at the bottleneck, which also has a thick edge in the ink of the theme.
BOTTLENECK = "▼"
#: How much of a stage's colour each part of a stacked bar keeps, from the bottom up; the rest is the paper's.
SHARES = (1.0, 0.6, 0.3, 0.8, 0.45)
#: And its pattern, a place in `PATTERNS`, by which parts differ in print.
PART_PATTERNS = (0, 1, 2, 3, 8)
#: Colours of lines (methods, frontiers) in turn, for both papers; lines also differ in their dashes.
LINES = ("#2a78c8", "#c95f14", "#7d7f1f", "#a65bc4", "#0f8f76", "#d0457f", "#7a7a7a", "#a0692c")
#: Pixels of dashes and of the gaps between them.
DASHES = ((1, 0), (6, 3), (6, 3, 1, 3), (1, 3))


@dataclass(frozen=True)
class Theme:
    """Colours that are not data.

    ``paper`` is behind everything, ``ink`` for texts and edges, ``quiet`` for texts and lines that step back, ``faint``
    for grids and what is not there (slack, bubbles), ``alarm`` for limits that are met, ``stages`` for kinds of stages;
    ``font`` is the family of all texts, which a paper may want its own of (``dataclasses.replace``).
    """

    name: str
    paper: str
    ink: str
    quiet: str
    faint: str
    alarm: str
    stages: tuple[str, ...] = STAGES
    font: str = "system-ui, DejaVu Sans, sans-serif"


LIGHT = Theme("light", "#ffffff", "#1a1a1a", "#5c5c5c", "#d9d9d9", "#b3261e")
DARK = Theme("dark", "#14171c", "#f0f0f0", "#a9afb8", "#3b424d", "#ff8a80", STAGES_ON_DARK)
#: Print is light on white with black ink: patterns and lightness carry what hues do on a screen.
PRINT = Theme("print", "#ffffff", "#000000", "#404040", "#cccccc", "#000000")
THEMES = (LIGHT, DARK, PRINT)


def stage_colour(look: int | None, theme: Theme = LIGHT) -> str:
    """The colour of a stage by its number (`planner.display.kinds.looks`), the same in every picture of a plan.

    >>> stage_colour(0), stage_colour(None)
    ('#003f88', '#9a9a9a')
    """
    return NO_STAGE if look is None else theme.stages[look]


def text_on(colour: str) -> str:
    """Black or white, whichever is easier to read on a colour: a contrast of 4.58 at least.

    >>> text_on("#003f88"), text_on("#ffd9a0")
    ('#ffffff', '#000000')
    """
    return max("#000000", "#ffffff", key=lambda text: contrast(text, colour))


def part_colour(colour: str, part: int, theme: Theme = LIGHT) -> str:
    """A stage's colour for a part of its stacked bar: paler from part to part."""
    return mix(colour, theme.paper, SHARES[part % len(SHARES)])


def patterns(names: Sequence[str]) -> dict[str, int]:
    """A place in `PATTERNS` for each TMPC or role, in the order in which they first occur; an empty name has none.

    The first name has none, too, unless there are empty ones.

    >>> patterns(["a", "b", "a"]), patterns(["", "a"])
    ({'': 0, 'a': 0, 'b': 1}, {'': 0, 'a': 1})
    """
    distinct = [name for name in dict.fromkeys(names) if name]
    first = 1 if "" in names else 0
    return {"": 0} | {name: position % len(PATTERNS) for position, name in enumerate(distinct, first)}


def line_colour(index: int) -> str:
    """The colour of a line: a method's, in the order in which methods are shown."""
    return LINES[index % len(LINES)]


def dashes(index: int) -> tuple[int, ...]:
    """The dashes of a line: they change where the colours begin again, and sooner."""
    return DASHES[(index + index // len(LINES)) % len(DASHES)]


def mix(colour: str, other: str, share: float) -> str:
    """So much of the first colour, and the rest of the other.

    >>> mix("#000000", "#ffffff", 0.8)
    '#333333'
    """
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(255 * (share * a + (1 - share) * b)):02x}" for a, b in pairs)


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours, from 1 to 21.

    Source: Web Content Accessibility Guidelines 2.2, "contrast ratio" and "relative luminance".

    >>> contrast("#ffffff", "#000000")
    21.0
    """
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(colour)]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _channels(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue
