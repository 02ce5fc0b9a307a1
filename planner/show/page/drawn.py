"""Charts of the pictures that rooms make of plans (`formulations.breakdown`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from formulations.breakdown import Breakdown, Passes, Stack, Strip
from planner.show.page.chart import Chart
from planner.show.page.schedules import passes
from planner.show.page.strips import stack, strip

_DRAWN: dict[type, Callable[[Any], list[Chart]]] = {Strip: strip, Stack: stack, Passes: passes}


def charts(found: Breakdown) -> Iterator[Chart]:
    """The pictures of a plan, in the order of its room."""
    for picture in found.pictures:
        if type(picture) in _DRAWN:
            yield from _DRAWN[type(picture)](picture)
