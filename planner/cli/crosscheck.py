"""The command that compares methods: ``crosscheck``, of one instance or several."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from planner.cli.common import (
    CONTRADICTION,
    INFEASIBLE,
    READING,
    Certify,
    Count,
    Events,
    Methods,
    Plans,
    Reading,
    Reproducers,
    Search,
    leave,
    names_of,
    plans_of,
    warn,
)
from planner.cli.completion import entries
from planner.cli.declared import argument, option
from planner.files.choices import split
from planner.process.errors import UsageError
from solvers.outcome import Status

if TYPE_CHECKING:
    from planner.solving.compare import Report


def crosscheck_command(
    instances: Annotated[
        list[str], argument("INSTANCE", "file, catalog name, - for stdin; or sources of validate", complete=entries)
    ],
    methods: Methods = None,
    plan: Plans = None,
    count: Count = None,
    search: Search = Search(time_limit=60.0),
    plot: Annotated[str | None, option("FILE.png|svg", "draw losses, and gaps over time")] = None,
    certify: Certify = None,
    events: Events = None,
    view: Reading = READING,
    reproducer_dir: Reproducers = "reproducers",
    **settings: Any,
) -> None:
    """Run several methods and compare their plans, bounds and proofs; exit 5 if two of them contradict each other."""
    from planner.display.pictures import draw_comparison
    from planner.display.plots.files import require_drawable
    from planner.display.progress import progress_line
    from planner.experiments.validation.sources import members
    from planner.files.destinations import refuse_outputs
    from planner.files.write import write_all
    from planner.process.signals import defer, pending
    from planner.results.events import complain, event_file
    from planner.solving.compare import crosscheck

    refuse_outputs({"--plot": plot, "--events": events, "--solver-log": search.solver_log}, *instances)
    limits = search.limits()
    require_drawable(plot)
    overrides, given = split(settings)
    found = [(each.origin, each.load(view.inputs, overrides)) for each in members(instances, count, search.seed)]
    if len(found) > 1:
        _expect_methods(found, names_of(methods) or ())
    if plot is not None and len(found) > 1:
        raise UsageError.at("--plot", plot, f"one instance; there are {len(found)}")
    reports: list[Report] = []
    with event_file(events) as log, defer():
        for _, loaded in found:
            warn(loaded, view.quiet)
            with progress_line(view.quiet) as log.also:
                report = crosscheck(
                    loaded,
                    methods=names_of(methods),
                    plans=plans_of(plan),
                    limits=limits,
                    options=given,
                    reproducers=reproducer_dir,
                    certificates=certify,
                    listen=log.listen,
                    notice=view.note,
                    ended=log.end,
                )
            reports.append(report)
            if not view.json:
                _show(report, found[len(reports) - 1][0] if len(found) > 1 else "")
            if report.signal or pending():
                break
        _show_all(reports, len(found), view.json)
    pictures = [] if plot is None else [partial(draw_comparison, plot, found[0][1], reports[0], log.events)]
    write_all(partial(complain, events, log), *pictures)
    signalled = next((report.signal for report in reports if report.signal), pending())
    if not all(report.agree for report in reports):
        leave(signalled, CONTRADICTION)
    leave(signalled, INFEASIBLE if all(map(_is_infeasible, reports)) else 0)


def _expect_methods(found: Sequence[tuple[str, Any]], names: Sequence[str]) -> None:
    """Every instance's family has these methods; `UsageError` names the first that has not, before any is run."""
    from planner.files.load import family_of
    from planner.solving.choose import find_method

    for origin, instance in found:
        for name in names:
            try:
                find_method(family_of(instance), name)
            except UsageError as error:
                raise UsageError(f"{origin}: {error}") from error


def _is_infeasible(report: Report) -> bool:
    return any(result.status is Status.INFEASIBLE for result in report.results)


def _show(report: Report, origin: str) -> None:
    from planner.display.tables import show_report
    from planner.display.terminal import console

    if origin:
        console().print(f"{origin}:")
    show_report(report)


def _show_all(reports: Sequence[Report], wanted: int, json: bool) -> None:
    """What follows from all reports: of one instance its own object, of several one that holds all."""
    from planner.display.tables import print_json
    from planner.display.terminal import console

    agree = all(report.agree for report in reports)
    if json and wanted == 1:
        print_json(reports[0].to_json())
    elif json:
        shown = [report.to_json() for report in reports]
        print_json({"instances": len(reports), "agree": agree, "reports": shown})
    elif wanted > 1:
        proved = sum(report.optimum is not None for report in reports)
        words = "the methods agree" if agree else "the methods contradict each other"
        infeasible = sum(map(_is_infeasible, reports))
        console().print(f"{len(reports)} instances: {words}; {proved} optima proved, {infeasible} infeasible")
