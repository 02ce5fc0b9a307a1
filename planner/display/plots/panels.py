"""What to draw of a plan: panels for each picture that its family makes of it (`formulations.figures.plan_figures`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from formulations.figures.plan_figures import (
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
from planner.display.headlines import headline, remark
from planner.display.layers import layered
from planner.display.plots.graphs import graph, inches
from planner.display.plots.networks import matrix, network, tiles
from planner.display.plots.panel import Panel
from planner.display.plots.stages import gantt, stack, strip
from planner.display.plots.tradeoffs import heat, options, totals
from planner.files.load import family_of
from planner.files.write import plain

#: How each kind of picture is drawn; whether it takes the whole width; its height in inches.
_DRAWN: dict[type, tuple[Callable[[Any, Any], Any], bool, float]] = {
    Strip: (strip, True, 1.9),
    Stack: (stack, False, 3.2),
    Passes: (gantt, True, 3.2),
    Network: (network, False, 4.0),
    Matrix: (matrix, False, 4.2),
    Tiles: (tiles, False, 3.4),
    Heat: (heat, False, 3.6),
}


def panels(instance: Any, plan: Any) -> list[Panel]:
    """The pictures of a plan (a family's plan object, or its JSON form); empty for families that have none."""
    family = family_of(instance)
    breakdown = family.breakdown
    if isinstance(plan, Mapping):
        plan = family.plan_from_json(instance, plain(plan))
    return (
        [] if breakdown is None else [panel for each in breakdown(instance, plan).pictures for panel in panels_of(each)]
    )


def panels_of(picture: Picture) -> Iterator[Panel]:
    """The panels of one picture: most are one."""
    if isinstance(picture, Tradeoff):
        yield Panel("Time against memory, all nodes", partial(totals, picture=picture), headline(picture), False, 3.8)
        yield Panel(
            "Options of each kind of node",
            partial(options, picture=picture),
            "filled: chosen; rings: what the heuristic chose instead",
            False,
            3.8,
        )
        return
    if isinstance(picture, Graph):
        layout = layered(picture)
        yield Panel(
            picture.title, lambda axes: graph(axes, picture, layout), headline(picture), True, partial(inches, layout)
        )
        return
    draw, is_wide, most = _DRAWN[type(picture)]
    says = ". ".join(filter(None, (headline(picture), remark(picture))))
    yield Panel(picture.title, lambda axes: draw(axes, picture), says, is_wide, partial(_height, picture, most))


def _height(picture: Picture, most: float, width: float) -> float:
    """Inches of a picture at a width: what keeps its shape takes no more than that."""
    if isinstance(picture, Passes):
        return min(7.0, max(2.0, 1.1 + 0.24 * len(picture.stages)))
    if isinstance(picture, Network) and picture.places:
        xs, ys = [place.x for place in picture.places], [place.y for place in picture.places]
        shape = (max(ys) - min(ys) + 1.8) / (max(xs) - min(xs) + 1.8)
        return min(most, max(1.6, 0.8 + (width - 0.3) * shape))
    if isinstance(picture, Matrix):
        return min(most, max(2.0, width - 1.1))
    if isinstance(picture, Tiles):
        return min(most, max(1.6, 0.7 + (width - 0.9) * picture.rows / picture.columns))
    return most
