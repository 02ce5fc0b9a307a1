"""The command that measures: ``bench``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from planner.cli import completion
from planner.cli.common import (
    Certify,
    Count,
    Dask,
    Gap,
    Inputs,
    Jobs,
    Json,
    Plans,
    Quiet,
    Seed,
    Solver,
    SolverLog,
    SolverOption,
    Threads,
    TimeLimit,
    limits_of,
    names_of,
    plans_of,
)
from planner.cli.completion import entries
from planner.process.errors import UsageError
from solvers.outcome import DEFAULT_SOLVER


def bench_command(
    instances: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE", help="files, rows, folders, names (as of validate)", autocompletion=entries),
    ] = None,
    suite: Annotated[
        str | None, typer.Option(metavar="FILE|all|models|piper", help="cases: JSON lines, or built in")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="names, FILE.py:FUNCTION; default: auto, or the suite's",
            autocompletion=completion.methods,
        ),
    ] = None,
    plan: Plans = None,
    count: Count = None,
    jobs: Jobs = 1,
    dask: Dask = None,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="runs; the median counts")] = 3,
    seeds: Annotated[str | None, typer.Option(metavar="N,...", help="measure with each of them")] = None,
    time_limit: TimeLimit = 60.0,
    gap: Gap = 1e-6,
    seed: Seed = 0,
    threads: Threads = 1,
    solver: Solver = DEFAULT_SOLVER,
    solver_option: SolverOption = None,
    solver_log: SolverLog = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR|ROWS.jsonl", help="folder to resume in, or a file"),
    ] = None,
    certify: Certify = None,
    calibrate: Annotated[str | None, typer.Option(metavar="DIR", help="print seconds per predicted step")] = None,
    compare: Annotated[tuple[str, str] | None, typer.Option(metavar="A B", help="compare two folders or files")] = None,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Measure methods on instances: loss, gap, objective, bound and seconds."""
    from planner.display.bench import markdown, show_comparison, show_rows
    from planner.display.progress import note
    from planner.display.tables import print_json
    from planner.experiments.bench import folders
    from planner.experiments.bench.calibrate import calibrated
    from planner.experiments.bench.measure import measure, with_losses
    from planner.experiments.bench.suites import cases
    from planner.files.destinations import refuse_outputs, refuse_overwriting
    from planner.files.write import as_json, write_all, write_atomically
    from planner.process.executors import WorkersLostError, handed
    from planner.process.signals import held, noted

    if compare is not None:
        found = folders.compare(*(folders.rows_of(place) for place in compare))
        print_json(found) if json else show_comparison(found)
        return
    if calibrate is not None:
        print_json(calibrated(folders.rows_of(calibrate), inputs))
        return
    refuse_outputs({"--solver-log": solver_log}, *(instances or []), *([suite] if suite else []))
    limits = limits_of(time_limit, gap, seed, threads, solver, solver_option, solver_log)
    every_seed = None if seeds is None else [limits_of(time_limit, gap, each, threads).seed for each in _seeds(seeds)]
    wanted = cases(instances or [], suite, names_of(methods), settings, inputs, plans_of(plan), count, seed)
    one_file = out is not None and out.endswith((".jsonl", ".jsonl.gz"))
    if out is not None and one_file:
        refuse_overwriting(out, *(instances or []), *([suite] if suite else []))
    folder = None if out is None or one_file else folders.opened(out)
    rows = [] if folder is None else folders.kept(folder)
    writes: list[Callable[[], None]] = []
    lost: list[WorkersLostError] = []
    with held():
        known = {each.key for each in rows}
        for row in handed(measure(wanted, limits, repeats, inputs, every_seed, known, certify, jobs, dask), lost):
            note(quiet, f"{row.instance} {row.method}: {row.seconds:.4g} s")
            rows.append(row)
            if folder is not None and not row.signal:
                try:
                    folders.keep(folder, row)
                except UsageError as error:  # tried again at the end
                    note(quiet, f"warning: {error}")
                    writes.append(partial(folders.keep, folder, row))
        rows = with_losses(rows)
        print_json({"rows": [row.to_json() for row in rows]}) if json else show_rows(rows)
    if folder is not None:
        whole = [row for row in rows if not row.signal]
        writes.append(partial(folders.write_table, folder, whole, markdown(whole)))
    elif out is not None:
        writes.append(partial(write_atomically, out, "".join(as_json(row.to_json()) + "\n" for row in rows)))
    write_all(*writes)
    if lost:
        raise lost[0]
    signalled = next((row.signal for row in rows if row.signal), noted())
    raise typer.Exit(128 + signalled if signalled else 0)


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError.at("--seeds", text, "integers, such as 0,1,2") from None
