"""Charts of the pictures that problems make of plans (`formulations.contract.figures.plan_figures`)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from formulations.contract.figures.plan_figures import (
    Breakdown,
    Graph,
    Heat,
    Matrix,
    Network,
    Passes,
    Picture,
    Stack,
    Strip,
    Tiles,
    Tradeoff,
)
from planner.display.kinds import pictures
from planner.display.plots.chart import Chart
from planner.display.plots.graphs import graph
from planner.display.plots.networks import matrix, network, tiles
from planner.display.plots.schedules import end, passes
from planner.display.plots.strips import stack, strip, top
from planner.display.plots.tradeoffs import heat, tradeoff
from planner.files.load import family_of
from planner.files.write import plain

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


def panels(instance: Any, plan: Any) -> list[Chart]:
    """The pictures of a plan (a family's plan object, or its JSON form); empty for families that have none."""
    family = family_of(instance)
    if isinstance(plan, Mapping):
        plan = family.plan_from_json(instance, plain(plan))
    return [] if family.breakdown is None else list(charts(family.breakdown(instance, plan)))


def panels_of(picture: Picture, most: float = 0.0) -> list[Chart]:
    """The charts of one picture: most are one. ``most`` is the highest number that its unit suits as well."""
    scaled = _SCALED.get(type(picture))
    return _DRAWN[type(picture)](picture) if scaled is None else scaled(picture, most)


def charts(found: Breakdown, most: Mapping[str, float] = MappingProxyType({})) -> Iterator[Chart]:
    """The pictures of a plan, in the order of its problem; ``most`` is by title the highest number that units suit."""
    for picture in pictures(found):
        yield from panels_of(picture, most.get(picture.title, 0.0))


def highest(found: Sequence[Breakdown]) -> dict[str, float]:
    """By title the highest number of such pictures of several plans, which are then drawn in one unit."""
    most: dict[str, float] = {}
    for picture in (picture for each in found for picture in each.pictures):
        if isinstance(picture, Stack | Passes):
            number = top(picture) if isinstance(picture, Stack) else end(picture)
            most[picture.title] = max(most.get(picture.title, 0.0), number)
    return most
