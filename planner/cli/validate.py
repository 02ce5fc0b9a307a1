"""The command on populations: ``validate``."""

from typing import Annotated, Any

import typer

from planner.cli import completion
from planner.cli.common import (
    CONTRADICTION,
    READING,
    Count,
    Dask,
    Jobs,
    Plans,
    Reading,
    Search,
    Threads,
    TimeLimit,
    deliver,
    leave,
    names_of,
    plans_of,
)
from planner.cli.completion import entries
from planner.cli.declared import argument, option
from planner.process.errors import UsageError


def validate_command(
    instances: Annotated[
        list[str],
        argument("SOURCE", "file, rows, folder, pattern, NAME:PARAMETER=A..B or PROBLEM:KEY=N", complete=entries),
    ],
    out: Annotated[str, option("DIR", "folder of results; resumed")],
    methods: Annotated[
        str | None, option("A,B,...", "names, FILE.py:FUNCTION; default: heuristics", complete=completion.methods)
    ] = None,
    against: Annotated[
        str | None, option("M", "proves the optima; default: exact", complete=completion.methods)
    ] = None,
    plan: Plans = None,
    count: Count = None,
    seed: Annotated[int, option("S", "of draws, samples and methods")] = 0,
    worst: Annotated[int, option("K", "worst instances that become files", min=0)] = 5,
    by: Annotated[str | None, option("A,B,...", "losses by these parameters, too")] = None,
    table: Annotated[str | None, option("KIND[=FILE]", "tex, md or csv, on stdout or in a file")] = None,
    jobs: Jobs = 1,
    dask: Dask = None,
    time_limit: TimeLimit = 60.0,
    threads: Threads = 1,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Run heuristics on many instances: how often optimal, and how far from the proved optimum."""
    from planner.display.paper_tables import kind_and_file, paper_table
    from planner.display.plots.files import can_draw
    from planner.display.populations import draw_validation, show_validation, why_no_pictures
    from planner.display.progress import progress_bar
    from planner.experiments.validation.run import validate
    from planner.files.choices import split
    from planner.files.read import STANDARD, read_named
    from planner.files.rows import is_columnar
    from planner.process.signals import defer

    limits = Search(time_limit, seed=seed, threads=threads).limits()
    overrides, options = split(settings)
    kind, file = (None, None) if table is None else kind_and_file(table)
    if kind is not None and view.json and file is None:
        raise UsageError.at("--table", table, f"{kind}=FILE with --json")
    if not can_draw():
        view.note(f"no pictures: {why_no_pictures()}")
    if not is_columnar():
        view.note(f"{out}/rows.jsonl is JSON lines: parquet needs pyarrow (pip install '.[columnar]')")
    if STANDARD in instances:
        read_named(STANDARD)  # it may wait for its writer: a signal still ends that
    with defer():
        with progress_bar(view.quiet, "instances") as listen:
            found = validate(
                instances, methods=names_of(methods), against=against, out=out, count=count, seed=seed, jobs=jobs,
                dask=dask, plans=plans_of(plan), limits=limits, options=options, worst=worst, by=names_of(by) or (),
                inputs=view.inputs, listen=listen, notice=view.note, settings=overrides,
            )  # fmt: skip
        if kind is None or file is not None:
            view.show(found, show_validation)
        if kind is not None:
            deliver(paper_table(found, kind), file)
        pictures = draw_validation(found)
    if pictures:
        view.note(f"pictures: {', '.join(pictures)}")
    if view.json or (kind is not None and file is None):
        for line in found.contradictions:
            view.note(f"contradiction: {line}")
    if found.signal:
        view.note(f"{found.instances} of {found.wanted} instances lie in {out}; the same command resumes")
        leave(found.signal)
    if found.lost and not found.contradictions:
        raise UsageError(f"{found.lost}; {found.instances} of {found.wanted} instances lie in {out}")
    raise typer.Exit(CONTRADICTION if found.contradictions else 0)
