"""What a picture says, in a few words: the line below its title, and its text for those who do not see it."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from formulations.contract.figures.plan_figures import (
    Graph,
    Heat,
    Matrix,
    Network,
    Passes,
    Picture,
    Stack,
    Stage,
    Strip,
    Tiles,
    Tradeoff,
)
from planner.display.terminal import printable
from planner.results.texts import percent, plural, short_amount


def headline(picture: Picture) -> str:
    """What the picture says in one short line, every sign of which is printable."""
    return printable(_SAID[type(picture)](picture))


def note(picture: Passes) -> str:
    """How the passes and the objective differ, in sentences; empty where they do not.

    >>> note(Passes("", (), (), 0.0, "ms", "{} and {}.", (0.5, 1500.0)))
    '500 µs and 1.5 s.'
    """
    return picture.note.format(*(short_amount(each, picture.unit) for each in picture.amounts))


def remark(picture: Picture) -> str:
    """What else is to say of a picture, in sentences; empty: nothing."""
    if isinstance(picture, Passes):
        return note(picture)
    return picture.note if isinstance(picture, Stack) else ""


def bottleneck(stages: Sequence[Stage]) -> int | None:
    """The position of the stage that the objective waits for."""
    return next((position for position, stage in enumerate(stages) if stage.is_bottleneck), None)


def _strip(picture: Strip) -> str:
    counts = Counter(stage.degrees for stage in picture.stages if stage.degrees)
    said = f"{plural(len(picture.items), 'layer')} in {plural(len(picture.stages), 'stage')}"
    if len(counts) == 1:
        said += f", {'each ' if len(picture.stages) > 1 else ''}{next(iter(counts))}"
    return said


def _stack(picture: Stack) -> str:
    totals = [picture.total(stage) for stage in range(len(picture.stages))]
    if picture.limits is not None:
        shares = [total / limit if limit > 0 else 1.0 for total, limit in zip(totals, picture.limits, strict=True)]
        fullest = max(range(len(shares)), key=shares.__getitem__)
        limit = short_amount(picture.limits[fullest], picture.unit)
        return f"stage {picture.stages[fullest].label} is fullest: {percent(shares[fullest], 2)} of {limit}"
    if picture.adds_up:
        whole = math.fsum(totals)
        amounts = {name: math.fsum(values) for name, values in picture.parts.items()}
        largest = max(amounts, key=amounts.__getitem__)
        share = f", {percent(amounts[largest] / whole, 2)} {largest}" if len(amounts) > 1 and whole > 0 else ""
        return f"together the objective, {short_amount(whole, picture.unit)}{share}"
    most = max(range(len(totals)), key=totals.__getitem__)
    said = f"stage {picture.stages[most].label} has most: {short_amount(totals[most], picture.unit)}"
    name, part = max(picture.parts.items(), key=lambda each: each[1][most])
    if len(picture.parts) > 1 and totals[most] > 0 and part[most] <= totals[most]:
        said += f", {percent(part[most] / totals[most], 2)} {name}"
    return said


def _graph(picture: Graph) -> str:
    cut = [arc for arc in picture.arcs if arc.is_cut]
    inside = sum(node.count for node in picture.nodes)
    most = max((arc.bytes for arc in cut), default=0.0)
    what = plural(inside, "operator" if inside > len(picture.stages) else "stage")
    return f"{what}, {plural(len(cut), 'cut')}" + (f", the largest of {short_amount(most, 'bytes')}" if most else "")


def _network(picture: Network) -> str:
    slowest = next((link for link in picture.links if link.is_slowest), None)
    if slowest is None:
        return f"{plural(len(picture.places), 'device')}, {plural(len(picture.stages), 'stage')}"
    return f"slowest link: devices {slowest.a} and {slowest.b}, {short_amount(slowest.seconds, 's')}"


def _matrix(picture: Matrix) -> str:
    speeds = {value for row, line in enumerate(picture.bandwidth_bytes_per_s) for value in line[:row] if value > 0}
    if not speeds:
        return "one device"
    return f"from {min(speeds) / 1e9:.3g} to {max(speeds) / 1e9:.3g} GB/s"


def _tiles(picture: Tiles) -> str:
    shapes = Counter(f"{tile.rows} x {tile.columns}" for tile in picture.tiles)
    said = " and ".join(f"{count} of {shape}" for shape, count in shapes.most_common())
    return f"tiles: {said}, on {picture.rows} x {picture.columns} devices"


def _tradeoff(picture: Tradeoff) -> str:
    own, *others = picture.totals
    if not others or own.time <= 0:
        used = percent(own.memory_bytes / picture.capacity_bytes, 2) if picture.capacity_bytes > 0 else "none"
        return f"{plural(len(picture.nodes), 'node')}, {used} of the memory"
    loss = others[0].time / own.time - 1
    if abs(loss) <= 1e-6:
        return f"as good as the {others[0].name}"
    return f"the {others[0].name} is {percent(abs(loss), 2)} {'slower' if loss > 0 else 'faster'}"


def _heat(picture: Heat) -> str:
    if picture.here is not None:
        return _gains(picture, *picture.here)
    cells = [value for row in picture.values for value in row]
    empty = sum(1 for value in cells if value is None)
    said = f"{empty} of {len(cells)} {picture.empty}" if empty else ""
    if picture.best is None:
        return said
    row, column = picture.best
    least = (
        f"least: {short_amount(picture.values[row][column] or 0.0, picture.unit)} at {_settings(picture, row, column)}"
    )
    return f"{least}; {said}" if said else least


def _settings(picture: Heat, row: int, column: int) -> str:
    """Both settings of a cell, with what they are."""
    x, y = short_amount(picture.xs[column], picture.xunit), short_amount(picture.ys[row], picture.yunit)
    return f"{picture.xlabel} {x}, {picture.ylabel} {y}"


def _gains(picture: Heat, row: int, column: int) -> str:
    """What the instance's own settings cost, and what the largest of each would save."""
    own = picture.values[row][column]
    said = [f"here {picture.empty}" if own is None else f"here {short_amount(own, picture.unit)}"]
    x, y = len(picture.xs) - 1, len(picture.ys) - 1
    for moved, more, unit, noun in (
        ((row, x), picture.xs[x] - picture.xs[column], picture.xunit, picture.xlabel),
        ((y, column), picture.ys[y] - picture.ys[row], picture.yunit, picture.ylabel),
    ):
        if more > 0:
            value = picture.values[moved[0]][moved[1]]
            said.append(f"{short_amount(more, unit)} more {noun}: {_saving(picture, own, value)}")
    return "; ".join(said)


def _saving(picture: Heat, own: float | None, value: float | None) -> str:
    if value is None:
        return picture.empty
    if own is None or own <= 0:
        return short_amount(value, picture.unit)
    saved = 1 - value / own
    return "no gain" if saved <= 1e-9 else f"{percent(saved, 2)} less"


_SAID: dict[type, Callable[[Any], str]] = {
    Strip: _strip,
    Stack: _stack,
    Passes: lambda picture: f"bubble: {percent(picture.bubble_share, 2)} of the time",
    Graph: _graph,
    Network: _network,
    Matrix: _matrix,
    Tiles: _tiles,
    Tradeoff: _tradeoff,
    Heat: _heat,
}
