"""Pictures in the terminal: the strip of layers by stage, and how a gap closed, no wider than the terminal."""

from collections.abc import Sequence
from itertools import groupby

from rich.text import Text

from formulations.contract.figures.plan_figures import Stage, Strip
from planner.display.headlines import bottleneck
from planner.display.kinds import looks
from planner.display.palette import BOTTLENECK, stage_colour, text_on
from planner.display.terminal import printable
from planner.results.events import Event

_LEVELS = "▁▂▃▄▅▆▇█"


def strip_lines(picture: Strip, width: int) -> list[Text]:
    """The stages as blocks as wide as their layers, with a mark above the bottleneck; empty if they do not fit.

    In colour each block has that of its stage's kind; without, a bar stands before it.

    ``width``: columns of the terminal.
    """
    sizes = [0.0] * len(picture.stages)
    for item in picture.items:
        if item.stage is not None:
            sizes[item.stage] += item.size
    order = [stage for stage, _ in groupby(item.stage for item in picture.items) if stage is not None]
    own, columns = looks(picture.stages), cells([sizes[stage] for stage in order], width - 1)
    if not columns:
        return []
    line, above = Text(), " " * (width - 1)
    for stage, wide in zip(order, columns, strict=True):
        if stage == bottleneck(picture.stages):
            place = len(line) + 1
            above = _overwrite(above, place, f"{BOTTLENECK} bottleneck", width - 1)
        colour = stage_colour(own[stage])
        label = printable(_label(picture.stages[stage], wide - 1))
        line.append("|" + label.ljust(wide - 1), style=f"{text_on(colour)} on {colour}")
    line.append("|")
    return [Text(above.rstrip()), line] if above.strip() else [line]


def _label(stage: Stage, room: int) -> str:
    """As much as there is room for: number and degrees, the number, or nothing."""
    for text in (f"{stage.label} {stage.degrees}".rstrip(), stage.label):
        if len(text) <= room:
            return text
    return ""


def _overwrite(line: str, place: int, text: str, width: int) -> str:
    """The line with a text in it at a place, or so far before it that the text fits."""
    at = max(0, min(place, width - len(text)))
    text = text if at == place else " ".join(reversed(text.split(" ", 1)))
    return line[:at] + text + line[at + len(text) :]


def cells(sizes: Sequence[float], width: int) -> list[int]:
    """Columns for parts of a line that are two columns wide at least; empty if there is no room.

    >>> cells([1.0, 3.0], 20), cells([0.0, 1.0], 11), cells([1.0] * 9, 10)
    ([5, 15], [2, 9], [])
    """
    if not sizes or 2 * len(sizes) > width:
        return []
    total, spare = sum(sizes), width - 2 * len(sizes)
    whole = width if total <= 0 else total
    exact = [width * (size if total > 0 else width / len(sizes)) / whole for size in sizes]
    found = [max(2, int(each)) for each in exact]
    by_rest = sorted(range(len(sizes)), key=lambda place: found[place] - exact[place])
    while sum(found) > width:
        widest = max(range(len(found)), key=found.__getitem__)
        found[widest] -= 1
    for place in by_rest[: max(0, min(width - sum(found), spare))]:
        found[place] += 1
    return found


def sparkline(events: Sequence[Event], columns: int = 24) -> str:
    """How the gap closed over the seconds of a method: a sign for each part of them; empty if it never changed.

    >>> def event(seconds, bound):
    ...     return Event("p", "i", "m", seconds, 10.0, bound)
    >>> sparkline([event(0.0, 0.0), event(1.0, 5.0), event(2.0, 10.0)], 5)
    '██▅▅▁'
    """
    known = [(event.seconds, event.gap) for event in events if event.gap is not None]
    if len({gap for _, gap in known}) < 2:
        return ""
    end, most = known[-1][0] or 1.0, max(gap for _, gap in known)
    signs, place, gap = [], 0, known[0][1]
    for column in range(columns):
        while place < len(known) and known[place][0] <= end * column / (columns - 1):
            gap = known[place][1]
            place += 1
        signs.append(_LEVELS[0] if gap <= 0 else _LEVELS[max(1, min(7, round(7 * gap / most)))])
    return "".join(signs)
