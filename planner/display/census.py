"""Show a census: its tables."""

from collections.abc import Iterator

from formulations.stage_partitioning.questions.studies.subproblems import EDGES
from planner.display.terminal import console, grid, table
from planner.experiments.census.census_of_rows import RowCensus
from planner.experiments.census.knapsacks import KnapsackCensus
from planner.experiments.census.totals import Census
from planner.results.texts import number, percent

Rows = Iterator[tuple[str, list[str]]]


def show_census(census: Census) -> None:
    """Print the counts, a column for every inner heuristic, and what the losses do to the whole plan."""
    out, inside = console(), census.inside
    partly = "" if census.complete else f" ({census.progress.removesuffix(' lie')})"
    out.print(f"{census.instance.name}: {inside.problem} inside {inside.method}{partly}  {census.seconds:.4g} s")
    if isinstance(census, KnapsackCensus):
        out.print(grid((name.replace("_", " "), f"{count:,}") for name, count in census.counts.items()))
        rows = _of_knapsacks(census)
        worst = census.worst_files
    else:
        assert isinstance(census, RowCensus)
        rows = _of_rows(census)
        worst = {name: [each["file"] for each in tally.worst] for name, tally in census.variants.items()}
    out.print(table(["", *census.variants], ([title, *values] for title, values in rows)))
    for name, files in worst.items():
        if files:
            out.print(f"worst of {name}: {files[0]} (and {len(files) - 1} more)")
    for line in _lines(census):
        out.print(line)


def _of_knapsacks(census: KnapsackCensus) -> Rows:
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


def _of_rows(census: RowCensus) -> Rows:
    found = list(census.variants.values())
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


def _lines(census: Census) -> Iterator[str]:
    if isinstance(census, KnapsackCensus) and census.crosscheck is not None:
        methods = ", ".join(census.crosscheck["methods"])
        count = len(census.contradictions)
        yield f"crosscheck: {census.crosscheck['checked']} instances by {methods}, {count} contradictions"
    yield from census.contradictions
    plan = census.end_to_end
    if plan is not None and "reason" in plan:
        yield f"end to end: not compared ({plan['reason']})"
    elif plan is not None:
        inside, exactly = (number(value) for value in list(plan.values())[:2])
        is_knapsacks = isinstance(census, KnapsackCensus)
        both = f" ({census.variant}) {inside}, exact" if is_knapsacks else f" {inside}, with these solved exactly"
        yield f"end to end: {census.inside.method}{both} {exactly} {plan['unit']}, loss {percent(plan['loss'])}"
