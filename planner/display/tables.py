"""Show results: as JSON objects, or as tables a person reads."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from formulations.figures.plan_figures import Breakdown
from planner.display.schedules import text_gantt
from planner.display.terminal import bold, console, grid, plural, printable, table
from planner.files.node_names import with_names
from planner.files.write import as_json
from planner.results.check import Verdict
from planner.results.events import Event
from planner.results.optimality_loss import any_optimal, format_loss
from planner.results.result import Result
from planner.results.texts import brief, facts, format_cell, number, percent, size, with_unit
from planner.solving.certify import Verification
from planner.solving.compare import Report, is_proved
from solvers.outcome import Stop

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from formulations.contract.clock import Clock

#: The columns of a comparison, and those of them that give way, one after the other, in a narrow terminal.
_COMPARED = ("instance", "method", "loss", "own gap", "objective", "bound", "status", "stop", "seconds", "proved by")
_GIVE_WAY = ("instance", "certificate", "stop", "proved by", "seconds", "status", "own gap")
_ENDLESS = 10_000
#: Columns of a strip of layers at most.
_STRIP = 120


def print_json(value: Any) -> None:
    """Print one JSON object on one line, which no signal cuts in two."""
    sys.stdout.write(as_json(value) + "\n")


#: Runs that took so long show how their gap closed.
_WATCHED_S = 1.0


def show_result(
    result: Result,
    figures: Mapping[str, Any],
    found: Breakdown | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
    is_proved: bool = True,
    events: Sequence[Event] = (),
) -> None:
    """Print one result: what holds, why, the plan with the ``names`` of its nodes, and ``found``: its figures.

    ``is_proved``: whether the result's loss, if it has one, is to a proved optimum. ``events`` are those of its run.
    """
    out = console()
    out.print(bold(result.instance), f" {result.problem}  {facts(figures)}")
    lists: dict[str, Any] = {name: part for name, part in result.stats.items() if _is_table(part)}
    stats = facts({k: v for k, v in result.stats.items() if k not in (*lists, "printed")})
    rows: dict[str, str | Text | None] = {
        "status": bold(result.status.value).append(printable(f" ({ending(result)})"), style="not bold"),
        "method": f"{result.method} ({result.claim}), {result.seconds:.4g} s {result.solver}".rstrip(),
        "objective": with_unit(result.objective, result.unit),
        "bound": with_unit(result.bound, result.unit),
        "gap": percent(result.gap),
        "clock": None if (clock := result.clock()) is None else format_clock(clock),
        "over time": _gap_over_time(events) or None if result.seconds >= _WATCHED_S else None,
        "loss": None if result.loss is None else format_loss(result.loss, is_proved),
        "certificate": None if result.certificate is None else facts(result.certificate),
        "why": result.reason or None,
        "options": facts(result.options) if result.options else None,
        "stats": stats if result.stats else None,
        "printed": str(result.stats["printed"]) if "printed" in result.stats else None,  # by a function of the user's
    }
    out.print(grid((name, text) for name, text in rows.items() if text is not None))
    if result.plan is not None:
        _show_parts(with_names(result.plan, names))
    if found is not None:
        show_breakdown(found)
    _show_parts({name: quickest_first(part) if name == "sweep" else part for name, part in lists.items()})


def format_clock(clock: Clock) -> str:
    """What the objective is the time of; the simulated iteration and the formula, where the problem has both.

    >>> from formulations.contract.clock import Clock
    >>> format_clock(Clock("formula", "1f1b", 64, lambda: 1.25, 1.0))
    'a formula of a batch of 64 micro-batches, 1F1B: 1 s; simulated 1.25 s'
    >>> format_clock(Clock("iteration", "1f1b", 64, lambda: 1.25, 1.0))
    'an iteration of 64 micro-batches, 1F1B: 1.25 s; by the formula 1 s'
    """
    if clock.formula_s is None:
        return clock.says
    simulated = "too long to be simulated" if clock.iteration_s is None else f"{clock.iteration_s:.6g} s"
    if clock.kind == "iteration":
        return f"{clock.says}: {simulated}; by the formula {clock.formula_s:.6g} s"
    return f"{clock.says}: {clock.formula_s:.6g} s; simulated {simulated}"


def _gap_over_time(events: Sequence[Event]) -> str:
    from planner.display.strips import sparkline

    own = [event for event in events if event.method == events[-1].method]
    line = sparkline(own)
    return f"{line} gap in {own[-1].seconds:.3g} s" if line else ""


def show_breakdown(found: Breakdown) -> None:
    """The figures of a plan: a table by stage, equal neighbours in one line, and a line for the whole."""
    out = console()
    if found.rows:
        names = list(found.rows[0])
        rows = together([[format_cell(name, row[name], 6) for name in names] for row in found.rows])
        headings = ["#", *(name.removesuffix("_bytes") for name in names)]
        out.print(table(headings, ([position, *cells] for position, cells in rows), title="by stage"))
    if found.figures:
        out.print(facts(found.figures))
    if found.strip is not None:
        from planner.display.strips import strip_lines

        for line in strip_lines(found.strip(), min(out.width, _STRIP)):
            out.print(line, no_wrap=True, crop=True)


def together(rows: Sequence[Sequence[str]]) -> list[tuple[str, Sequence[str]]]:
    """Rows with their positions; neighbours that look the same are one, from the first to the last.

    >>> together([["1 s"], ["1 s"], ["2 s"]])
    [('0-1', ['1 s']), ('2', ['2 s'])]
    """
    found = []
    for cells, same in groupby(enumerate(rows), key=lambda each: each[1]):
        positions = [position for position, _ in same]
        first, last = positions[0], positions[-1]
        found.append((str(first) if first == last else f"{first}-{last}", cells))
    return found


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
        out.print(f"the methods agree; optimum {number(report.optimum)}; {proofs(report)}")


def certificate_word(report: Report, result: Result) -> str:
    """Whether a proof can be checked by others: its certificate, ``possible`` (none was requested) or `uncertified`."""
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
    out.print(results_table(results, out, certificates))
    for result in results:
        if result.reason and (result.plan is None or "failure" in result.stats):
            out.print(f"{result.method}: {result.reason}")


def ending(result: Result) -> str:
    """Why the run stopped; if with a proof, by whose means."""
    return f"{result.stop} by {result.proved_by}" if result.stop is Stop.PROVED else str(result.stop)


def proofs(report: Report) -> str:
    """How many methods hold a proof, and how many of these do not rest on each other."""
    return f"{plural(report.proved, 'proof')}, {report.independent_proofs} independent"


def results_table(results: Sequence[Result], out: Console, certificates: Mapping[str, str] | None = None) -> Table:
    """A row for each result, with as many columns as fit: what is compared is never cut."""
    is_optimal = any_optimal(result.loss for result in results)
    shown_certificates = certificates or {}
    rows = [
        _comparison_cells(result, is_optimal) | {"certificate": shown_certificates.get(result.method, "-")}
        for result in results
    ]
    headings = [*_COMPARED, *(["certificate"] if certificates else [])]
    for given_up in (None, *_GIVE_WAY):
        headings = [heading for heading in headings if heading != given_up]
        made = table(headings, ([row[heading] for heading in headings] for row in rows))
        if out.measure(made, options=out.options.update(max_width=_ENDLESS)).maximum <= out.width:
            break
    for column in made.columns:
        column.overflow = "fold"
    return made


def _comparison_cells(result: Result, is_proved: bool) -> dict[str, str]:
    """What a comparison, in which an optimum ``is_proved`` or not, shows of a result, by heading."""
    return {
        "instance": result.instance,
        "method": result.method,
        "loss": format_loss(result.loss, is_proved),
        "status": result.status,
        "stop": result.stop,
        "seconds": f"{result.seconds:.4g}",
        "objective": number(result.objective),
        "bound": number(result.bound),
        "own gap": percent(result.gap),
        "proved by": result.proved_by or "-" if result.stop is Stop.PROVED else "-",
    }


def show_verdict(verdict: Verdict) -> None:
    """Print the definition's verdict on a plan."""
    out = console()
    if verdict.feasible:
        out.print(f"feasible, objective {with_unit(verdict.objective, verdict.unit)}")
    for found in verdict.violations:
        out.print(str(found))


def show_verification(found: Verification) -> None:
    """Print a checker's verdict on a certificate."""
    console().print(f"{'accepted' if found.accepted else 'rejected'}: {found.reason}")


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
