"""The command that writes pages: ``report``, about one instance or several."""

from functools import partial
from typing import Annotated, Any

from planner.cli.common import (
    CONTRADICTION,
    Gap,
    Inputs,
    Methods,
    Plans,
    Quiet,
    Search,
    Seed,
    Threads,
    TimeLimit,
    Topology,
    leave,
    names_of,
    plans_of,
)
from planner.cli.completion import entries
from planner.cli.declared import argument, option
from planner.process.errors import UsageError


def report_command(
    instances: Annotated[list[str], argument("INSTANCE...", "file, catalog name, or - for stdin", complete=entries)],
    out: Annotated[str, option("FILE.html", "the page")] = "report.html",
    methods: Methods = None,
    plan: Plans = None,
    time_limit: TimeLimit = 20.0,
    gap: Gap = 1e-6,
    seed: Seed = 0,
    threads: Threads = 1,
    topology: Topology = None,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Write a self-contained page about instances: every method, gaps, plans to explore, commands to repeat it."""
    from planner.display.page import page, page_path, require_page
    from planner.display.progress import note, progress_line
    from planner.display.tables import show_report
    from planner.files.destinations import refuse_overwriting
    from planner.files.write import write_atomically
    from planner.process.signals import defer

    require_page()
    path = page_path(out)
    for name in instances:
        refuse_overwriting(out, name, *([] if topology is None else [topology]))
    if plan and len(instances) > 1:
        raise UsageError.at("--plan", plan[0], "one instance on the page")
    limits = Search(time_limit, gap, seed, threads).limits()
    with defer():
        with progress_line(quiet) as listen:
            text, reports = page(
                instances,
                settings,
                methods=names_of(methods),
                plans=plans_of(plan),
                limits=limits,
                inputs=inputs,
                topology=topology,
                listen=listen,
                notice=partial(note, quiet),
            )
        try:
            write_atomically(path, text)
        except UsageError:
            for report in reports:
                show_report(report)  # what was found is not lost with the page
            raise
    note(quiet, f"{sum(len(report.results) for report in reports)} results in {out}")
    signalled = next((report.signal for report in reports if report.signal), None)
    leave(signalled, 0 if all(report.agree for report in reports) else CONTRADICTION)
