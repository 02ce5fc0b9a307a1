"""What differs between two plans, as text and as a picture."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, groupby
from typing import Any

from formulations.figures.plan_figures import Stack
from planner.analysis.difference import Decision, Difference, Row
from planner.display.headlines import amount, headline
from planner.display.palette import stage_colour, text_on
from planner.display.plots.marks import TEXT, pixels, quiet_frame, theme_of, width_of
from planner.display.plots.panel import Panel
from planner.display.plots.stages import stack
from planner.display.tables import brief, percent, with_unit
from planner.display.terminal import printable, say
from planner.files.load import family_of
from planner.process.errors import UsageError

_NONE = "-"


def show_difference(found: Difference) -> None:
    """Print both objectives, the stages that both plans have, and everything that is decided differently."""
    say(f"{found.instance}  {found.problem}")
    for row in shown(found):
        say(f"{row['plan']:7} {row['objective']}")
    if found.loss is not None:
        say(f"loss    {percent(found.loss)} of the second to the first")
    if found.same:
        say("the plans are the same")
        return
    if found.stages:
        common = sum(1 for pair in found.stages if pair.first is not None and pair.second is not None)
        say(f"stages  {common} of {len(found.stages)} hold the same nodes in both plans")
    differing = [row for row in found.decisions if row.differs]
    say(f"differs {len(differing)} of {len(found.decisions)} decisions")
    for line in _lines(differing):
        say(line)


def shown(found: Difference) -> list[dict[str, Any]]:
    """A row for each plan: its objective, or the rules it breaks, and what the second takes more."""
    rows = []
    for name, verdict in (("first", found.first), ("second", found.second)):
        said = "; ".join(map(str, verdict.violations)) or with_unit(verdict.objective, found.unit)
        rows.append({"plan": name, "objective": said, "loss": ""})
    rows[1]["loss"] = "" if found.loss is None else percent(found.loss)
    return rows


def has_stages(found: Difference) -> bool:
    """Whether `panels` has something to draw: plans that say of nodes or layers which stage they are in."""
    return bool(_in_stages(found))


def _in_stages(found: Difference) -> list[Row]:
    return [row for row in found.decisions if "stage" in (row.first or row.second or {})]


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


def panels(found: Difference, instance: Any = None, plans: Sequence[Any] = ()) -> list[Panel]:
    """Both plans as strips, a box for each node or layer; what differs is marked between; then what their stages cost.

    Stages of the second plan have the colour of the stage of the first that they share most with.

    Parameters
    ----------
    instance, plans
        The two plans in their JSON form, for the bars; without them there are none.

    Raises
    ------
    UsageError
        If plans of this problem say of no node or layer which stage it is in.
    """
    rows = _in_stages(found)
    if not rows:
        raise UsageError.at("--plot", found.problem, "a problem whose plans put nodes or layers into stages")
    strips = [[_stage(row.first) for row in rows], [_stage(row.second) for row in rows]]
    changed = [place for place, row in enumerate(rows) if row.differs]
    says = f"{len(changed)} of {len(rows)} nodes differ" + (
        f"; the second is {_loss(found.loss)}" if found.loss else ""
    )
    strip = Panel(f"{found.instance}: two plans", lambda axes: _strips(axes, strips, changed), says, True, 2.0)
    return [strip, *_bars(found, instance, plans, matched(*strips))]


def _loss(loss: float) -> str:
    return f"{percent(abs(loss))} {'slower' if loss > 0 else 'faster'}"


def _strips(axes: Any, strips: Sequence[Sequence[str | None]], changed: Sequence[int]) -> None:
    theme, count = theme_of(axes), len(strips[0])
    colours = matched(*strips)
    per_node, narrow = pixels(axes)[0] / count, 0
    for height, strip, look in zip((0.72, 0.0), strips, colours, strict=True):
        for stage, run in groupby(range(count), key=strip.__getitem__):
            places = list(run)
            if stage is None:
                continue
            colour = stage_colour(look[stage], theme)
            axes.bar(places[0], 0.5, len(places), height, align="edge", color=colour, edgecolor=theme.paper, lw=1.2)
            narrow += len(places) * per_node <= width_of(axes, stage) + 4
            if len(places) * per_node > width_of(axes, stage) + 4:
                middle = places[0] + len(places) / 2
                axes.text(
                    middle,
                    height + 0.25,
                    printable(stage),
                    ha="center",
                    va="center",
                    fontsize=TEXT,
                    color=text_on(colour),
                )
    axes.bar(changed, 0.06, 1.0, 0.58, align="edge", color=theme.alarm, linewidth=0)
    axes.set_yticks([0.97, 0.61, 0.25], ["first", "differs", "second"])
    axes.tick_params(length=0)
    axes.set_xlim(0, count)
    axes.set_ylim(-0.05, 1.3)
    axes.set_xticks([])
    said = "nodes or layers in the order of the first plan; numbers are stages"
    said += f" ({narrow} without room)" if narrow else ""
    lines = textwrap.wrap(said, int(pixels(axes)[0] / width_of(axes, "x", TEXT)))
    axes.set_xlabel("\n".join(lines), loc="left", color=theme.quiet)
    quiet_frame(axes)


def matched(first: Sequence[str | None], second: Sequence[str | None]) -> tuple[dict[str, int], dict[str, int]]:
    """A colour's number for each stage of both plans: the first's by number, the second's by what they share.

    >>> matched(["0", "0", "1", "1"], ["0", "1", "1", "2"])
    ({'0': 0, '1': 1}, {'0': 0, '1': 1, '2': 2})
    """
    stages = sorted(dict.fromkeys(each for each in first if each is not None), key=_as_number)
    own = {stage: number for number, stage in enumerate(stages)}
    shared = Counter((b, a) for a, b in zip(first, second, strict=True) if a is not None and b is not None)
    found: dict[str, int] = {}
    for (b, a), _ in sorted(shared.items(), key=lambda each: (-each[1], own[each[0][1]] != _as_number(each[0][0]))):
        if b not in found and own[a] not in found.values():
            found[b] = own[a]
    free = (number for number in count() if number not in found.values() and number >= len(own))
    for stage in dict.fromkeys(each for each in second if each is not None):
        if stage not in found:
            found[stage] = next(free)
    return own, found


def _as_number(stage: str) -> int:
    return int(stage) if stage.isdecimal() else -1


def _bars(found: Difference, instance: Any, plans: Sequence[Any], colours: Sequence[dict[str, int]]) -> Iterator[Panel]:
    """What the stages of both plans cost, on one scale, in the colours that they have in the strips."""
    if instance is None:
        return
    family = family_of(instance)
    stacks: list[Stack] = []
    for plan in plans:
        breakdown = family.breakdown(instance, family.plan_from_json(instance, plan)) if family.breakdown else None
        stacks += [each for each in (breakdown.pictures if breakdown else ()) if isinstance(each, Stack)][:1]
    if len(stacks) < len(plans):
        return
    most = max(each.total(stage) for each in stacks for stage in range(len(each.stages)))
    verdicts = (found.first, found.second)
    for name, each, verdict, own in zip(("first", "second"), stacks, verdicts, colours, strict=True):
        said = "breaks a rule" if verdict.objective is None else amount(verdict.objective, found.unit)
        looks = [own.get(stage.label, place) for place, stage in enumerate(each.stages)]
        yield Panel(f"{name}: {said}", partial(stack, picture=each, top=most, looks=looks), headline(each), False, 3.0)


def _stage(decided: Decision | None) -> str | None:
    return None if decided is None or "stage" not in decided else str(decided["stage"])
