"""Show a validation: tables when it is done, and its pictures as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.display.palette import PRINT
from planner.display.plots.chart import Chart
from planner.display.plots.files import Sheet, can_draw, lacks_addresses
from planner.display.plots.numbers import ecdf, profile, quantiles
from planner.display.terminal import console, table
from planner.experiments.validation.loss_by import LossBy, value_of
from planner.experiments.validation.records import reasons
from planner.experiments.validation.run import Validation
from planner.files.write import write_atomically
from planner.results.texts import percent

#: Reasons of a method that are shown.
_REASONS = 3
#: Pixels that pictures for a paper are drawn in, and points of a column: 3.4 inches.
_ON_PAPER, _COLUMN = 400, 3.4 * 72
_NO_PICTURES = "they need vl-convert-python (pip install '.[plot]')"


def show_validation(found: Validation) -> None:
    """Print how many of what there are, a row for every method, its worst instances and why it has no plan."""
    out = console()
    partly = "" if found.instances == found.wanted else f" of {found.wanted}"
    plural = "" if found.wanted == 1 else "s"
    out.print(
        f"{found.instances}{partly} instance{plural} of {found.problem}, against {found.against}: "
        f"{found.infeasible} infeasible, {found.unproved} unproved"
    )
    heads = ["method", "optimal", "suboptimal", "no plan", "invalid", "errors"]
    heads += ["mean loss", "p95 loss", "worst loss", "seconds"]
    rows = []
    most = "<= " if found.unproved else ""
    for name, each in found.methods.items():
        counts = (each.optimal, each.suboptimal, each.no_plan, each.invalid, each.errors)
        losses = (each.mean_loss, each.p95_loss, each.worst_loss)
        shown = ["-" if loss is None else f"{most}{percent(loss)}" for loss in losses]
        rows.append([name, *map(str, counts), *shown, f"{each.seconds:.4g}"])
    out.print(table(heads, rows))
    for factor in found.by:
        out.print(_explained(factor))
        heads = [factor.parameter, "instances", *(f"{name}: mean loss" for name in factor.methods)]
        means = [[own[label].mean_loss for own in factor.methods.values()] for label in factor.instances]
        cells = [[most * (loss is not None) + percent(loss) for loss in own] for own in means]
        out.print(
            table(
                heads, [[label, str(n), *own] for (label, n), own in zip(factor.instances.items(), cells, strict=True)]
            )
        )
    for line in _lines(found):
        out.print(line)


def _explained(factor: LossBy) -> str:
    """How much of the losses a parameter explains, in a sentence."""
    shares = [f"{percent(share)} of {name}'s" for name, share in factor.explains.items() if share is not None]
    return f"{factor.parameter} explains {', '.join(shares) or 'nothing: no loss differs'}" + " losses, by rank" * bool(
        shares
    )


def _lines(found: Validation) -> Iterator[str]:
    if found.unproved:
        optima = "optimum is" if found.unproved == 1 else "optima are"
        yield f"{found.unproved} {optima} not proved: losses there are to the best bound, and may be less"
    for name in dict.fromkeys([*found.methods, found.against]):
        files = found.worst.get(name)
        if files:
            yield f"worst of {name}: {files[0]}" + (f" (and {len(files) - 1} more)" if len(files) > 1 else "")
        said = reasons(found.records, name)
        for reason, count, first in said[:_REASONS]:
            yield f"{name}: {reason} ({count} {'instances' if count > 1 else 'instance'}, first {first})"
        if len(said) > _REASONS:
            more = len(said) - _REASONS
            yield f"{name}: {more} other {'reasons' if more > 1 else 'reason'}"
    yield from found.contradictions
    yield f"a row for each instance and method: {found.table}"


def why_no_pictures() -> str:
    """Why `draw_validation` draws none."""
    return lacks_addresses() or _NO_PICTURES


def draw_validation(found: Validation) -> list[str]:
    """Write the pictures into the folder of a validation; returns their files, none without vl-convert."""
    if not can_draw() or not found.records:
        return []
    feasible = [record for record in found.records if not record["infeasible"]]
    losses = {name: [record["rows"][name]["loss"] for record in feasible] for name in found.methods}
    # A plan that came from elsewhere has no seconds.
    timed = [name for name in found.methods if any(record["rows"][name]["seconds"] for record in found.records)]
    names = dict.fromkeys([*timed, found.against])
    seconds = {name: _seconds(feasible, name) for name in names}
    known = ["optimum"] * (found.unproved < len(feasible)) + ["best bound"] * (found.unproved > 0)
    reference = " or ".join(known)
    charts = {
        "losses": [ecdf(losses, reference, f"Losses on {len(feasible)} instances")],
        "profile": [profile(seconds, f"Performance profile of seconds on {len(feasible)} instances")],
        "features": list(_features(found, feasible, losses)),
    }
    files = []
    for name, drawn in charts.items():
        if drawn:
            on_screen = Sheet(drawn, found.problem)
            on_paper = Sheet(drawn, width=_ON_PAPER, theme=PRINT, shown=_COLUMN)
            for sheet, suffix in ((on_screen, ".png"), (on_paper, ".pdf")):
                files.append(str(Path(found.out) / f"{name}{suffix}"))
                write_atomically(files[-1], sheet.content(suffix))
    return files


def _features(
    found: Validation, records: Sequence[Mapping[str, Any]], losses: Mapping[str, Sequence[float | None]]
) -> Iterator[Chart]:
    """Losses over the size of instances, over how tight their memory is, and over numbers that were drawn."""
    drawn = dict.fromkeys(name for record in records for name in record["parameters"])
    for field, name in (
        ("size", f"size: {found.size_of}"),
        ("memory_pressure", "memory pressure"),
        *((name, name) for name in drawn if name != found.size_of),
    ):
        values = [value_of(record, field) for record in records]
        if any(value is not None for value in values) and not any(isinstance(value, str) for value in values):
            yield from quantiles(values, losses, name)


def _seconds(records: Sequence[Mapping[str, Any]], method: str) -> list[float | None]:
    rows = [record["rows"][method] for record in records]
    return [None if row["objective"] is None else row["seconds"] for row in rows]
