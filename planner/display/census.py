"""Show a census: its tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from formulations.stage_partitioning.questions.studies.subproblems import EDGES
from planner.display.tables import number, percent
from planner.display.terminal import console, grid, table
from planner.experiments.census.census_of_rows import EachCensus
from planner.experiments.census.run import Census


def show_census(census: Census) -> None:
    """Print the counts, a column for every variant, and what the gaps do to the plan."""
    out = console()
    partly = "" if census.chunks_done == census.chunks else f" ({census.chunks_done} of {census.chunks} chunks)"
    out.print(f"{census.instance.name}{partly}  {census.seconds:.4g} s")
    out.print(grid((name.replace("_", " "), f"{count:,}") for name, count in census.counts.items()))
    out.print(table(["", *census.variants], ([title, *values] for title, values in _rows(census))))
    for name, files in census.worst_files.items():
        if files:
            out.print(f"worst of {name}: {files[0]} (and {len(files) - 1} more)")
    for line in _lines(census):
        out.print(line)


def _rows(census: Census) -> Iterator[tuple[str, list[str]]]:
    found = list(census.variants.values())
    yield "sub-optimal", [f"{each.suboptimal:,}" for each in found]
    yield "  usable in a plan", [f"{each.usable:,}" for each in found]
    yield "worst gap", [percent(each.worst_gap) for each in found]
    yield "mean gap", [percent(each.mean_gap) for each in found]
    yield "  of the sub-optimal", [percent(each.mean_gap_suboptimal) for each in found]
    for b, high in enumerate([*EDGES, None]):
        if any(each.histogram[b] for each in found):
            low = EDGES[b - 1] if b else 0.0
            title = f"gap in ({percent(low)}, {percent(high)}]" if high is not None else f"gap over {percent(low)}"
            yield title, [f"{each.histogram[b]:,}" for each in found]


def _lines(census: Census) -> Iterator[str]:
    checked: dict[str, Any] | None = census.crosscheck
    if checked is not None:
        methods = ", ".join(checked["methods"])
        contradictions = len(checked["contradictions"])
        yield f"crosscheck: {checked['checked']} instances by {methods}, {contradictions} contradictions"
        yield from checked["contradictions"]
    plan: dict[str, Any] | None = census.end_to_end
    if plan is not None and "reason" in plan:
        yield f"end to end: not compared ({plan['reason']})"
    elif plan is not None:
        yield (
            f"end to end: piper ({census.variant}) {number(plan['piper'])}, exact {number(plan['exact'])} "
            f"{plan['unit']}, loss {percent(plan['loss'])}"
        )


def show_each(census: EachCensus) -> None:
    """Print how each inner heuristic fared, a column each, and what the losses do to the whole plan."""
    out = console()
    partly = "" if census.complete else " (not complete)"
    kind = f"{census.inside.problem} inside {census.inside.method}"
    out.print(f"{census.instance}: {kind}{partly}  {census.seconds:.4g} s")
    out.print(table(["", *census.tallies], ([title, *values] for title, values in _tally_rows(census))))
    for name, tally in census.tallies.items():
        if tally.worst:
            out.print(f"worst of {name}: {tally.worst[0]['file']} (and {len(tally.worst) - 1} more)")
    for sentence in census.contradictions:
        out.print(sentence)
    plan = census.end_to_end
    if plan is not None:
        out.print(f"end to end: {census.inside.method} {number(plan['published'])}, with these solved exactly "
                  f"{number(plan['exact_inside'])} {plan['unit']}, loss {percent(plan['loss'])}")  # fmt: skip


def _tally_rows(census: EachCensus) -> Iterator[tuple[str, list[str]]]:
    found = list(census.tallies.values())
    for name in ("instances", "distinct", "optimal", "suboptimal", "no_plan", "infeasible", "unproved"):
        values = [getattr(each, name) for each in found]
        if name == "instances" or any(values):
            yield name.replace("_", " ").replace("suboptimal", "sub-optimal"), [f"{each:,}" for each in values]
    for name in ("mean_loss", "p95_loss", "worst_loss"):
        values = [getattr(each, name) for each in found]
        if any(each is not None for each in values):
            yield name.replace("_", " "), [percent(each) for each in values]
    for name in ("found", "impossible", "missed", "cut_off", "open"):
        if any(each.decisions for each in found):
            yield name.replace("_", " "), [f"{(each.decisions or {}).get(name, 0):,}" for each in found]
