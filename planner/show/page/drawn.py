"""Charts of the pictures that rooms make of plans (`formulations.breakdown`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from formulations.breakdown import Breakdown, Graph, Heat, Matrix, Network, Passes, Stack, Strip, Tiles, Tradeoff
from planner.show.page.chart import Chart
from planner.show.page.graphs import graph
from planner.show.page.networks import matrix, network, tiles
from planner.show.page.schedules import passes
from planner.show.page.strips import stack, strip
from planner.show.page.tradeoffs import heat, tradeoff

_DRAWN: dict[type, Callable[[Any], list[Chart]]] = {
    Strip: strip,
    Stack: stack,
    Passes: passes,
    Graph: graph,
    Network: network,
    Matrix: matrix,
    Tiles: tiles,
    Tradeoff: tradeoff,
    Heat: heat,
}


def charts(found: Breakdown) -> Iterator[Chart]:
    """The pictures of a plan, in the order of its room."""
    for picture in found.pictures:
        if type(picture) in _DRAWN:
            yield from _DRAWN[type(picture)](picture)
