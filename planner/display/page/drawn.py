"""Charts of the pictures that rooms make of plans (`formulations.figures.plan_figures`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from formulations.figures.plan_figures import (
    Breakdown,
    Graph,
    Heat,
    Matrix,
    Network,
    Passes,
    Stack,
    Strip,
    Tiles,
    Tradeoff,
)
from planner.display.page.chart import Chart
from planner.display.page.graphs import graph
from planner.display.page.networks import matrix, network, tiles
from planner.display.page.schedules import end, passes
from planner.display.page.strips import stack, strip, top
from planner.display.page.tradeoffs import heat, tradeoff

_DRAWN: dict[type, Callable[[Any], list[Chart]]] = {
    Strip: strip,
    Graph: graph,
    Network: network,
    Matrix: matrix,
    Tiles: tiles,
    Tradeoff: tradeoff,
    Heat: heat,
}

_SCALED: dict[type, Callable[[Any, float], list[Chart]]] = {Stack: stack, Passes: passes}


def charts(found: Breakdown, most: Mapping[str, float] = MappingProxyType({})) -> Iterator[Chart]:
    """The pictures of a plan, in the order of its room; ``most`` is by title the highest number that units suit."""
    for picture in found.pictures:
        if isinstance(picture, Stack | Passes):
            yield from _SCALED[type(picture)](picture, most.get(picture.title, 0.0))
        else:
            yield from _DRAWN[type(picture)](picture)


def highest(found: Sequence[Breakdown]) -> dict[str, float]:
    """By title the highest number of such pictures of several plans, which are then drawn in one unit."""
    most: dict[str, float] = {}
    for picture in (picture for each in found for picture in each.pictures):
        if isinstance(picture, Stack | Passes):
            number = top(picture) if isinstance(picture, Stack) else end(picture)
            most[picture.title] = max(most.get(picture.title, 0.0), number)
    return most
