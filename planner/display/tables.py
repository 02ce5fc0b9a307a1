"""Show results: as JSON objects, or as tables a person reads."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from formulations.contract.figures.plan_figures import Breakdown
from instances.units import size
from planner.display.schedules import text_gantt
from planner.display.terminal import console, grid, table
from planner.files.load import family_of
from planner.files.node_names import names_of_nodes, with_names
from planner.files.write import as_json
from planner.results.check import Verdict
from planner.results.events import Event
from planner.results.optimality_loss import any_optimal
from planner.results.result import Result
from planner.results.sentences import SAID, both_clocks, comparison_row, sentences, stage_rows, without_empty
from planner.results.texts import brief, facts, format_cell, plural, with_unit
from solvers.outcome import Stop

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from planner.solving.compare import Report

#: The columns of a comparison that give way, one after the other, in a narrow terminal.
_GIVE_WAY = ("instance", "certificate", "stop", "proved by", "seconds", "status", "gap")
_ENDLESS = 10_000
#: Rows of a table of stages at most.
_SHOWN_ROWS = 20
#: Columns of a strip of layers at most.
_STRIP = 120


def print_json(value: Any) -> None:
    """Print one JSON object on one line, which no signal cuts in two."""
    sys.stdout.write(as_json(value) + "\n")


#: Runs that took so long show how their gap closed.
_WATCHED_S = 1.0


def show_result(
    result: Result,
    others: Sequence[Result] = (),
    *,
    verbose: bool = False,
    full: bool = False,
    events: Sequence[Event] = (),
) -> None:
    """Print a result: sentences, one table of the plan's stages, its figures and its strip.

    ``others`` are results to compare it with: their rows stand in the same table. ``verbose`` adds the figures of the
    search, whose ``events`` show how its gap closed; ``full`` shows every row and column of the table.
    """
    out = console()
    is_proved = any_optimal(each.loss for each in (result, *others))
    plans = [(each, each.breakdown()) for each in (result, *others)]
    (_, found), *beside = plans
    for line in sentences(result, found, is_proved):
        out.print(line)
    for other, own in beside:
        out.print(" ".join(sentences(other, own, is_proved, other.method)))
    is_cut_short = result.stop is Stop.SIZE_LIMIT or result.plan is None or "failure" in result.stats
    lists: dict[str, Any] = {name: part for name, part in result.stats.items() if _is_table(part)}
    rows: dict[str, str | Text | None] = {
        "clock": None if (clock := result.clock()) is None else both_clocks(clock),
        "method": ", ".join(
            filter(None, (f"{result.method} ({result.claim})", f"{result.seconds:.4g} s", result.solver))
        ),
        "options": facts(result.options, result.unit) if result.options else None,
        "certificate": None if result.certificate is None else facts(result.certificate),
        "why": f"{result.method}: {result.reason}" if result.reason and (verbose or is_cut_short) else None,
        "printed": str(result.stats["printed"]) if "printed" in result.stats else None,  # by a function of the user's
    }
    if verbose:
        stats = facts({k: v for k, v in result.stats.items() if k not in (*lists, "printed")})
        rows |= {
            "instance": None if result.of is None else facts(family_of(result.of).describe(result.of)),
            "status": _status(result) if result.own is None else None,  # the first sentence says what is proved of it
            "over time": _gap_over_time(events) or None if result.seconds >= _WATCHED_S else None,
            "stats": stats if result.stats else None,
        }
    out.print(grid((name, text) for name, text in rows.items() if text is not None))
    if found is not None and found.rows:
        _show_stages(plans, full)
    names = {} if result.of is None else names_of_nodes(result.of)
    plan = with_names(result.plan or {}, names)
    _show_parts(plan if found is None or not found.rows else {name: plan[name] for name in ("tasks",) if name in plan})
    if found is not None:
        show_breakdown(found)
    if verbose:
        _show_parts({name: quickest_first(part) if name == "sweep" else part for name, part in lists.items()})


def _show_stages(plans: Sequence[tuple[Result, Breakdown | None]], full: bool) -> None:
    """The table of the stages of one or more plans, with as many columns as fit, the first ones first."""
    out, shown, more = console(), list[dict[str, str]](), 0
    for result, found in plans:
        if found is not None and found.rows:
            own = stage_rows(result, found, full=full)
            most = len(own) if full else _SHOWN_ROWS
            shown += [{**({"method": result.method} if len(plans) > 1 else {}), **row} for row in own[:most]]
            more += len(own[most:])
    rows = shown if full else without_empty(shown)
    headings = list(dict.fromkeys(name for row in rows for name in row))
    behind = headings[headings.index("memory") + 1 :] if "memory" in headings else []
    out.print(fitting_table(out, headings, rows, [*reversed(behind), "names", "tmpcs", *reversed(headings[1:])]))
    if more:
        out.print(f" {plural(more, 'more row')}: --full")


def _gap_over_time(events: Sequence[Event]) -> str:
    from planner.display.strips import sparkline

    own = [event for event in events if event.method == events[-1].method]
    line = sparkline(own)
    return f"{line} gap in {own[-1].seconds:.3g} s" if line else ""


def show_breakdown(found: Breakdown) -> None:
    """The figures of the whole plan, and its strip."""
    out = console()
    if figures := {name: value for name, value in found.figures.items() if name not in SAID}:
        out.print(facts(figures))
    if found.strip is not None:
        from planner.display.kinds import kinds, of_kinds
        from planner.display.strips import strip_lines

        for line in strip_lines(of_kinds(found.strip(), kinds(found)), min(out.width, _STRIP)):
            out.print(line, no_wrap=True, crop=True)


def quickest_first(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a sweep by the seconds of an iteration, the first one marked."""
    ordered = sorted(rows, key=lambda row: row.get("iteration_s") or math.inf)
    return [{**row, "": "" if position else "quickest"} for position, row in enumerate(ordered)]


def show_report(report: Report) -> None:
    """Print a comparison: a row for each method, then what follows from it."""
    out = console()
    show_results(report.results, {result.method: certificate_word(report, result) for result in report.results})
    for sentence in reasons(report):
        out.print(sentence)
    for sentence in report.contradictions:
        out.print(f"contradiction: {sentence}", style="bold red")
    if report.reproducer:
        out.print(f"reproducer: {report.reproducer}")
    elif report.agree:
        out.print(report.agreement)


def certificate_word(report: Report, result: Result) -> str:
    """Whether a proof can be checked by others: its certificate, ``possible`` (none was requested) or `uncertified`."""
    from planner.solving.compare import is_proved

    if not is_proved(result):
        return "-"
    if result.certificate is not None:
        return certificate_words(result.certificate)
    return "uncertified" if result.method in report.uncertified else "possible"


def certificate_words(certificate: Mapping[str, Any]) -> str:
    """A certificate's kind, size and the seconds it took, or why there is none."""
    if "uncertified" in certificate:
        return f"uncertified: {certificate['uncertified']}"
    return f"{certificate['kind']}, {size(certificate['bytes'])}, {certificate['seconds']:.2g} s"


def reasons(report: Report) -> list[str]:
    """Why proofs have no certificate, a sentence for each reason."""
    return [
        f"uncertified ({', '.join(method for method, own in report.uncertified.items() if own == why)}): {why}"
        for why in dict.fromkeys(report.uncertified.values())
    ]


def show_results(results: Sequence[Result], certificates: Mapping[str, str] | None = None) -> None:
    """Print a row for each result, and why there is no plan where there is none; ``certificates`` are by method."""
    out = console()
    out.print(results_table(results, out, certificates) if results else "none of the methods takes the instance")
    for result in results:
        if result.reason and (result.plan is None or "failure" in result.stats):
            out.print(f"{result.method}: {result.reason}")


def _status(result: Result) -> str:
    """The status, why the run stopped (if with a proof, by whose means), and the bound."""
    by = f" by {result.proved_by}" if result.stop is Stop.PROVED else ""
    return f"{result.status} ({result.stop}{by}), bound {with_unit(result.bound, result.unit)}"


def results_table(results: Sequence[Result], out: Console, certificates: Mapping[str, str] | None = None) -> Table:
    """A row for each result, with as many columns as fit: what is compared is never cut."""
    is_optimal = any_optimal(result.loss for result in results)
    shown_certificates = certificates or {}
    rows = [
        comparison_row(result, is_optimal)
        | ({"certificate": shown_certificates.get(result.method, "-")} if certificates else {})
        for result in results
    ]
    made = fitting_table(out, list(rows[0]), rows, _GIVE_WAY)
    for column in made.columns:
        column.overflow = "fold"
    return made


def fitting_table(
    out: Console, headings: Sequence[str], rows: Sequence[Mapping[str, str]], give_way: Sequence[str]
) -> Table:
    """A table as wide as there is room for: these columns give way, one after the other."""
    for given_up in (None, *give_way):
        headings = [heading for heading in headings if heading != given_up]
        made = table(headings, ([row.get(heading, "") for heading in headings] for row in rows))
        if out.measure(made, options=out.options.update(max_width=_ENDLESS)).maximum <= out.width:
            break
    return made


def show_verdict(verdict: Verdict) -> None:
    """Print the definition's verdict on a plan."""
    out = console()
    if verdict.feasible:
        out.print(f"feasible, objective {with_unit(verdict.objective, verdict.unit)}")
    for found in verdict.violations:
        out.print(str(found))


def table_of_objects(part: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of objects of one kind; of a list of objects in one, each gets a row (1.0, 1.1).

    >>> table_of_objects([{"dp_degree": 2, "inner": [{"nodes": [0]}, {"nodes": [1]}]}])
    (['#', 'dp_degree', 'inner nodes'], [['0.0', '2', '0'], ['0.1', '', '1']])
    """
    nested = next((name for name, value in part[0].items() if _is_table(value)), None)
    if nested is None:
        cells = [[str(i), *(format_cell(name, row.get(name)) for name in part[0])] for i, row in enumerate(part)]
        return ["#", *(name.removesuffix("_bytes") for name in part[0])], cells
    outer, rows = [name for name in part[0] if name != nested], []
    for i, row in enumerate(part):
        inner = row.get(nested) or [{}]
        for j, each in enumerate(inner):
            own = [brief(row.get(name)) if j == 0 else "" for name in outer]
            rows.append([f"{i}.{j}", *own, *(brief(each.get(name)) for name in part[0][nested][0])])
    return ["#", *outer, *(f"{nested} {name}" for name in part[0][nested][0])], rows


def _is_table(part: Any) -> bool:
    return isinstance(part, Sequence) and bool(part) and all(isinstance(row, Mapping) for row in part)


def is_rows(part: Any) -> bool:
    """Whether this is a list of lists."""
    return isinstance(part, Sequence) and bool(part) and all(isinstance(row, list | tuple) for row in part)


def _show_parts(parts: Mapping[str, Any]) -> None:
    """Print a plan or figures of any family: lists of objects with equal keys as tables, anything else as a line."""
    out = console()
    for name, part in parts.items():
        if _is_table(part):
            out.print(table(*table_of_objects(part), title=str(name)))
        elif name == "tasks":
            for line in text_gantt(part):
                out.print(line)
        elif isinstance(part, Mapping) and any(is_rows(rows) for rows in part.values()):
            out.print(f"{name}:")
            _show_parts(part)
        elif is_rows(part):
            for position, row in enumerate(part):
                out.print(f" {name} {position}: {brief(row)}")
        else:
            out.print(f"{name}: {brief(part)}")
