"""What all drawings share: themes, texts that fit, the mark of the bottleneck, labels beside lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from formulations.figures.plan_figures import Stage
from planner.display.palette import BOTTLENECK, LIGHT, THEMES, Theme
from planner.display.terminal import printable

#: Points of ordinary text and of text inside of marks.
TEXT, SMALL = 9.0, 7.5
#: Longer lines of a label leave no room for the picture.
_LONGEST = 32
#: Pixels of a sign, as part of its height.
_WIDTH_OF_SIGN = 0.62


def label_of(text: str) -> str:
    r"""A label that holds names, with every line printable and short.

    >>> label_of("stage\x1b\n" + 40 * "x")
    'stage\\x1b\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'
    """
    lines = [printable(line) for line in text.split("\n")]
    return "\n".join(line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…" for line in lines)


def theme_of(axes: Any) -> Theme:
    """The theme of a figure, by what is behind its pictures."""
    from matplotlib.colors import to_hex

    paper = to_hex(axes.figure.get_facecolor())
    return next((theme for theme in THEMES if theme.paper == paper), LIGHT)


def pixels(axes: Any) -> tuple[float, float]:
    """About the width and height of the axes; a layout that is still to come changes them a little."""
    box = axes.get_window_extent()
    return 0.92 * box.width, 0.85 * box.height


def width_of(axes: Any, text: str, size: float = SMALL) -> float:
    """About the pixels that a text takes."""
    longest = max((len(line) for line in text.split("\n")), default=0)
    return longest * size * _WIDTH_OF_SIGN * float(axes.figure.dpi) / 72


def every(axes: Any, texts: Sequence[str], size: float = TEXT) -> int:
    """Every how many of texts along the x axis has room for itself: 1, 2, 5, 10 and so on."""
    room = pixels(axes)[0] / max(1, len(texts))
    needed = max((width_of(axes, text, size) for text in texts), default=0.0) + 6
    return step_of(needed / max(room, 1e-9))


def step_of(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... that is at least so much.

    >>> step_of(0.3), step_of(3), step_of(12)
    (1, 5, 20)
    """
    size = 1
    while True:
        for factor in (1, 2, 5):
            if size * factor >= least:
                return size * factor
        size *= 10


def stage_ticks(axes: Any, stages: Sequence[Stage], *, vertical: bool = False, with_degrees: bool = False) -> None:
    """Labels of stages along an axis, the bottleneck's in bold with its mark; of many stages every few."""
    texts = [_tick(stage, vertical, with_degrees and bool(stage.degrees)) for stage in stages]
    if with_degrees and not vertical and every(axes, texts) > 1:
        texts = [_tick(stage, vertical, False) for stage in stages]
    if vertical:
        step = step_of(len(stages) * 1.5 * TEXT * axes.figure.dpi / 72 / max(1.0, pixels(axes)[1]))
    else:
        step = every(axes, [stage.label for stage in stages] if len(stages) > 8 else texts)
    chosen = [place for place, stage in enumerate(stages) if place % step == 0 or stage.is_bottleneck]
    decisive = next((place for place, stage in enumerate(stages) if stage.is_bottleneck), None)
    shown = [p for p in chosen if p == decisive or decisive is None or step == 1 or abs(p - decisive) >= step / 2]
    (axes.set_yticks if vertical else axes.set_xticks)(shown, [texts[place] for place in shown], parse_math=False)
    for place, label in zip(shown, axes.get_yticklabels() if vertical else axes.get_xticklabels(), strict=True):
        if stages[place].is_bottleneck:
            label.set_fontweight("bold")
    (axes.tick_params)(axis="y" if vertical else "x", length=0)


def _tick(stage: Stage, vertical: bool, with_degrees: bool) -> str:
    degrees = f"\n{stage.degrees}" if with_degrees else ""
    if not stage.is_bottleneck:
        return label_of(stage.label + degrees)
    return label_of(f"{BOTTLENECK} {stage.label}" if vertical else f"{stage.label}{degrees}\n{BOTTLENECK}")


def quiet_frame(axes: Any, *sides: str) -> None:
    """Leave only the named sides of the frame."""
    for side, spine in axes.spines.items():
        spine.set_visible(side in sides)
        spine.set_color(theme_of(axes).quiet)


def plain_log(axes: Any) -> None:
    """Numbers on logarithmic axes as they are read: 1, 2, 5, 10."""
    for axis in (axes.xaxis, axes.yaxis):
        plain_numbers(axis, is_log=True)


def plain_numbers(axis: Any, *, is_log: bool) -> None:
    """The numbers of one axis without powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if is_log:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def apart(wanted: Sequence[float], least: float) -> list[float]:
    """Places as near to the wanted ones as a least distance between them allows, in the same order.

    >>> apart([1.0, 1.0, 5.0], 2.0)
    [0.0, 2.0, 5.0]
    """
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    groups: list[list[float]] = []  # each: sum of (wanted - offset), count
    for place in order:
        groups.append([wanted[place], 1.0])
        while len(groups) > 1 and _start(groups[-2]) + least * groups[-2][1] > _start(groups[-1]):
            total, count = groups.pop()
            groups[-1][0] += total - least * groups[-1][1] * count
            groups[-1][1] += count
    found = [0.0] * len(wanted)
    waiting = iter(order)
    for group in groups:
        for position in range(int(group[1])):
            found[next(waiting)] = _start(group) + least * position
    return found


def _start(group: list[float]) -> float:
    return group[0] / group[1]
