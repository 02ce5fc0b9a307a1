"""What differs between two plans, as text and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from planner.errors import UsageError
from planner.show.plots.panel import Panel
from planner.show.tables import brief, percent, with_unit
from planner.show.terminal import printable
from planner.studies.difference import Decision, Difference, Row

_NONE = "-"
#: A box that is narrower than this part of the picture has no room for its number.
_WIDE = 0.02


def show_difference(found: Difference) -> None:
    """Print both objectives, the stages that both plans have, and everything that is decided differently."""
    print(printable(f"{found.instance}  {found.problem}"))
    for name, verdict in (("first", found.first), ("second", found.second)):
        said = "; ".join(map(str, verdict.violations)) or with_unit(verdict.objective, found.unit)
        print(printable(f"{name:7} {said}"))
    if found.loss is not None:
        print(f"loss    {percent(found.loss)} of the second to the first")
    if found.same:
        print("the plans are the same")
        return
    if found.stages:
        common = sum(1 for pair in found.stages if pair.first is not None and pair.second is not None)
        print(f"stages  {common} of {len(found.stages)} hold the same nodes in both plans")
    differing = [row for row in found.decisions if row.differs]
    print(f"differs {len(differing)} of {len(found.decisions)} decisions")
    for line in _lines(differing):
        print(printable(line))


def _lines(rows: list[Row]) -> Iterator[str]:
    """A line for every run of things that differ in the same way."""
    for (first, second), run in groupby(rows, key=lambda row: (_words(row, row.first), _words(row, row.second))):
        members = list(run)
        ends = members[0].of if len(members) == 1 else f"{members[0].of} .. {members[-1].of} ({len(members)})"
        yield f"  {ends}: {first} -> {second}"


def _words(row: Row, decided: Decision | None) -> str:
    if decided is None:
        return _NONE
    return ", ".join(f"{name} {brief(decided.get(name, _NONE))}" for name in row.differs)


def panels(found: Difference) -> list[Panel]:
    """Both plans as strips, a box for each node or layer in the colour of its stage; what differs is marked between.

    Raises
    ------
    UsageError
        If plans of this problem say of no node or layer which stage it is in.
    """
    rows = [row for row in found.decisions if "stage" in (row.first or row.second or {})]
    if not rows:
        raise UsageError.at("--plot", found.problem, "a problem whose plans put nodes or layers into stages")
    strips = [[_stage(row.first) for row in rows], [_stage(row.second) for row in rows]]
    stages = list(dict.fromkeys(stage for strip in strips for stage in strip if stage is not None))

    def draw(axes: Any) -> None:
        import matplotlib

        colours = matplotlib.colormaps["tab20"](range(20))
        for height, strip in zip((1.0, 0.0), strips, strict=True):
            for stage, run in groupby(range(len(strip)), key=strip.__getitem__):
                places = list(run)
                if stage is None:
                    continue
                colour = colours[stages.index(stage) % len(colours)]
                axes.barh(height, len(places), 0.6, places[0], align="center", color=colour, edgecolor="black", lw=0.5)
                if len(places) >= _WIDE * len(rows):
                    axes.text(places[0] + len(places) / 2, height, stage, ha="center", va="center", fontsize=7)
        changed = [place + 0.5 for place, row in enumerate(rows) if row.differs]
        axes.plot(changed, [0.5] * len(changed), linestyle="none", marker="x", color="black", markersize=5)
        axes.set_yticks([1.0, 0.5, 0.0], ["first", "differs", "second"])
        axes.set_ylim(-0.5, 1.5)
        axes.set_xlim(0, len(rows))
        axes.set_xlabel("nodes or layers, in the order of the first plan; numbers are stages")

    return [Panel(f"{found.instance}: two plans", draw)]


def _stage(decided: Decision | None) -> str | None:
    return None if decided is None or "stage" not in decided else str(decided["stage"])
