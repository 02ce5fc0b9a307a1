"""What differs between two plans, as text and as a picture."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, groupby
from typing import Any

from formulations.contract.figures.plan_figures import Stack
from planner.analysis.difference import Decision, DecisionRow, Difference
from planner.display.kinds import looks
from planner.display.plots.chart import Chart
from planner.display.plots.marks import layer, mark, nominal, pixels_per, span, stage_colour, stage_texts, tooltip, x_of
from planner.display.plots.strips import stack
from planner.display.terminal import say
from planner.files.load import family_of
from planner.process.errors import UsageError
from planner.results.texts import brief, percent, short_amount, with_unit

_NONE = "-"
_NO_NUMBERS = {"labels": False, "ticks": False, "grid": False}


def show_difference(found: Difference) -> None:
    """Print both objectives, the stages that both plans have, and everything that is decided differently."""
    say(f"{found.instance}  {found.problem}")
    for row in plan_rows(found):
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


def plan_rows(found: Difference) -> list[dict[str, Any]]:
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


def _in_stages(found: Difference) -> list[DecisionRow]:
    return [row for row in found.decisions if "stage" in (row.first or row.second or {})]


def _lines(rows: list[DecisionRow]) -> Iterator[str]:
    """A line for every run of things that differ in the same way."""
    for (first, second), run in groupby(rows, key=lambda row: (_words(row, row.first), _words(row, row.second))):
        members = list(run)
        ends = members[0].of if len(members) == 1 else f"{members[0].of} .. {members[-1].of} ({len(members)})"
        yield f"  {ends}: {first} -> {second}"


def _words(row: DecisionRow, decided: Decision | None) -> str:
    if decided is None:
        return _NONE
    return ", ".join(f"{name} {brief(decided.get(name, _NONE))}" for name in row.differs)


def panels(found: Difference) -> list[Chart]:
    """Both plans as strips, a box for each node or layer; what differs is marked between; then what their stages cost.

    Stages of the second plan have the colour of the stage of the first that they share most with; where there are more
    stages than colours, two of them take turns.

    `UsageError` if plans of this problem say of no node or layer which stage it is in.
    """
    rows = _in_stages(found)
    if not rows:
        raise UsageError.at("--plot", found.problem, "a problem whose plans put nodes or layers into stages")
    strips = [[_stage(row.first) for row in rows], [_stage(row.second) for row in rows]]
    changed = [place for place, row in enumerate(rows) if row.differs]
    says = f"{len(changed)} of {len(rows)} nodes differ" + (
        f"; the second is {_loss(found.loss)}" if found.loss else ""
    )
    strip = _strips(f"{found.instance}: two plans", says, strips, changed)
    return [strip, *_bars(found, match_colours(*strips))]


def _loss(loss: float) -> str:
    return f"{percent(abs(loss))} {'slower' if loss > 0 else 'faster'}"


def _run(row: str, stage: str, look: int, nodes: Sequence[int]) -> dict[str, Any]:
    """Neighbours of one stage."""
    start, end = nodes[0], nodes[-1] + 1
    return {"row": row, "label": stage, "stage": look, "start": start, "end": end, "middle": (start + end) / 2}


def _strips(title: str, says: str, strips: Sequence[Sequence[str | None]], changed: Sequence[int]) -> Chart:
    """Both plans as runs of nodes in one stage, one below the other, and between them what is decided differently."""
    names, looks, nodes = ("first", "second"), match_colours(*strips), range(len(strips[0]))
    runs = [
        _run(name, stage, look[stage], list(own))
        for name, stages, look in zip(names, strips, looks, strict=True)
        for stage, own in groupby(nodes, key=stages.__getitem__)
        if stage is not None
    ]
    differing = [{"row": "differs", "start": place, "end": place + 1} for place in changed]
    colours = range(1 + max((number for look in looks for number in look.values()), default=0))
    scale = {"domain": [0, len(nodes)], "nice": False}
    title_of_x = "nodes or layers in the order of the first plan; numbers are stages"
    x = x_of("start", title=title_of_x, axis=_NO_NUMBERS, scale=scale)
    order = ["first", "differs", "second"]
    y = nominal("row", title=None, sort=order, axis={"ticks": False})
    room = f"(datum.end - datum.start) * {pixels_per(len(nodes))} > 7 * datum.label.length + 4"
    layers = [
        layer(
            mark("bar", stroke="@paper", strokeWidth=1.2, height={"band": 0.9}),
            "runs",
            **span("x", x, "start", "end"),
            color=stage_colour(colours),
            tooltip=tooltip({"row": "plan", "label": "stage"}),
        ),
        layer(mark("bar", color="@alarm", height={"band": 0.3}), "changed", **span("x", x, "start", "end")),
        stage_texts("runs", colours, {"x": {**x, "field": "middle"}}, room),
    ]
    spec = {"height": 120, "encoding": {"y": y}, "resolve": {"scale": {"color": "independent"}}, "layer": layers}
    return Chart(title, says, spec, {"runs": runs, "changed": differing}, is_wide=True)


def match_colours(first: Sequence[str | None], second: Sequence[str | None]) -> tuple[dict[str, int], dict[str, int]]:
    """A colour's number for each stage of both plans: the first's by number, the second's by what they share.

    >>> match_colours(["0", "0", "1", "1"], ["0", "1", "1", "2"])
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


def _bars(found: Difference, colours: Sequence[dict[str, int]]) -> Iterator[Chart]:
    """What the stages of both plans cost, on one scale, in the colours that they have in the strips."""
    breakdown, verdicts = family_of(found.of).breakdown, (found.first, found.second)
    if breakdown is None:
        return
    pictures = [breakdown(found.of, verdict.plan).pictures for verdict in verdicts]
    stacks = [stack for own in pictures for stack in [each for each in own if isinstance(each, Stack)][:1]]
    if len(stacks) < len(verdicts):
        return
    most = max(each.total(stage) for each in stacks for stage in range(len(each.stages)))
    charts = []
    shown = looks(range(1 + max(max(own.values()) for own in colours)))
    for each, own in zip(stacks, colours, strict=True):
        charts += stack(each, most, [shown[own.get(stage.label, 0)] for stage in each.stages])
    highest = max(chart.top or 0.0 for chart in charts)
    for name, chart, verdict in zip(("first", "second"), charts, verdicts, strict=True):
        said_of_it = "breaks a rule" if verdict.objective is None else short_amount(verdict.objective, found.unit)
        yield replace(chart, title=f"{name}: {said_of_it}", top=highest)


def _stage(decided: Decision | None) -> str | None:
    return None if decided is None or "stage" not in decided else str(decided["stage"])
