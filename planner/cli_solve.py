"""The commands on one instance: ``solve``, ``crosscheck`` and ``check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from planner import options
from planner.cli_common import (
    CONTRADICTION,
    INFEASIBLE,
    Events,
    Gap,
    Inputs,
    Instance,
    Json,
    Quiet,
    Reproducers,
    Seed,
    Threads,
    TimeLimit,
    exit_code,
    limits_of,
    names_of,
    warn,
)
from planner.errors import CrosscheckError, UsageError
from solvers.outcome import Status


def solve_command(
    instance: Instance,
    exact: Annotated[bool, typer.Option("--exact", help="only methods that prove optimality, until they do")] = False,
    method: Annotated[str, typer.Option(metavar="NAME", help="one method (planner list), or auto")] = "auto",
    time_limit: TimeLimit = None,
    gap: Gap = 1e-6,
    seed: Seed = 0,
    threads: Threads = 1,
    out: Annotated[str | None, typer.Option(metavar="PLAN.json", help="write the plan to a file")] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE.png|svg", help="draw the plan (needs matplotlib)")] = None,
    trace: Annotated[str | None, typer.Option(metavar="FILE.json", help="write the schedule as a Chrome trace")] = None,
    topology: Annotated[
        str | None, typer.Option(metavar="KIND|FILE", help="put the stages of an operator graph on this network, too")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(metavar="B", min=1, help="sequences in a batch: sweep g and b', N = B / (g b')")
    ] = None,
    grad_accum: Annotated[str | None, typer.Option(metavar="G,...", help="degrees g of gradient accumulation")] = None,
    microbatch_sizes: Annotated[str | None, typer.Option(metavar="B,...", help="micro-batch sizes b'")] = None,
    events: Events = None,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    reproducer_dir: Reproducers = "reproducers",
    **settings: Any,
) -> None:
    """Find a plan: the best there is with --exact, a good one with its gap without."""
    from planner.comparison import write_reproducer
    from planner.events import event_file
    from planner.files import refuse_outputs, write_atomically
    from planner.loading import family_of
    from planner.orders import best_order, load_orders, solve_orders
    from planner.pictures import draw, refuse_undrawable
    from planner.placing import load_placed
    from planner.plots.files import require
    from planner.progress import note, progress_line
    from planner.report import as_json, plan_file, show_result
    from planner.schedules import refuse_untraceable, write_trace
    from planner.sweep import Row, parse_counts, show_rows, sweep

    limits = limits_of(time_limit, gap, seed, threads)
    files = {"--out": out, "--plot": plot, "--events": events, "--trace": trace}
    refuse_outputs(files, instance, *([] if topology is None else [topology]))
    overrides, given = options.split(settings)
    rows: list[Row] = []
    run: dict[str, Any] = {"method": method, "exact": exact, "limits": limits, "options": given}
    if batch_size is None:
        for name, value in (("--grad-accum", grad_accum), ("--microbatch-sizes", microbatch_sizes)):
            if value is not None:
                raise UsageError.at(name, value, "a --batch-size beside it")
        if topology is None:
            by_order = load_orders(instance, inputs=inputs, **overrides)
        else:
            by_order = {"": load_placed(instance, topology, inputs=inputs, overrides=overrides)}
        loaded = next(iter(by_order.values()))
        warn(loaded, quiet)
        if plot is not None:
            refuse_undrawable(loaded, plot)  # refuses now rather than after the search
        if trace is not None:
            refuse_untraceable(loaded, trace)
    else:
        for name, value in (("--topology", topology), ("--trace", trace)):
            if value is not None:
                raise UsageError.at(name, value, "no --batch-size beside it")
        if plot is not None:
            require(plot)
    try:
        with progress_line(quiet) as shown, event_file(events, shown) as heard:
            run |= {"listen": heard.listen, "notice": lambda line: note(quiet, line)}
            if batch_size is None:
                result = solve_orders(by_order, **run)
                loaded = by_order[best_order(result, by_order)]  # its plan is what is drawn
            else:
                accumulate = parse_counts("--grad-accum", grad_accum or "1")
                sizes = parse_counts("--microbatch-sizes", microbatch_sizes or "1")
                result, loaded, rows = sweep(
                    instance, batch_size, accumulate, sizes, inputs=inputs, overrides=overrides, **run
                )
            heard.end(result)
    except CrosscheckError as error:
        path = write_reproducer(reproducer_dir, {**error.evidence, "contradictions": [str(error)]})
        if json:
            print(as_json({"agree": False, "contradictions": [str(error)], "reproducer": path}))
        raise CrosscheckError(f"{error} (reproducer: {path})") from error
    if out is not None and result.plan is not None:
        write_atomically(Path(out), plan_file(result))  # first: whoever reads the table may hang up
    if json:
        print(as_json(result.to_json()))
    else:
        if rows:
            show_rows(rows, result.unit)
        show_result(result, family_of(loaded).describe(loaded))
    if result.plan is None:
        for name, asked in (("--out", out), ("--plot", plot), ("--trace", trace)):
            if asked is not None:
                note(quiet, f"{name} {asked}: there is no plan to write")
        raise typer.Exit(exit_code(result, exact, limits))
    if plot is not None:
        draw(plot, loaded, result.plan)
    if trace is not None:
        write_trace(trace, loaded, result.plan)
    raise typer.Exit(exit_code(result, exact, limits))


def crosscheck_command(
    instance: Instance,
    methods: Annotated[str | None, typer.Option(metavar="A,B,...", help="default: all that fit the instance")] = None,
    time_limit: TimeLimit = 60.0,
    gap: Gap = 1e-6,
    seed: Seed = 0,
    threads: Threads = 1,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE.png|svg", help="draw gap over time (needs matplotlib)")
    ] = None,
    events: Events = None,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    reproducer_dir: Reproducers = "reproducers",
    **settings: Any,
) -> None:
    """Run several methods and compare what they claim; exit 5 and a reproducer if they contradict each other."""
    from planner.comparison import crosscheck
    from planner.events import event_file
    from planner.files import refuse_outputs
    from planner.loading import load
    from planner.pictures import draw_events
    from planner.plots.files import require
    from planner.progress import note, progress_line
    from planner.report import as_json, show_report

    limits = limits_of(time_limit, gap, seed, threads)
    refuse_outputs({"--plot": plot, "--events": events}, instance)
    if plot is not None:
        require(plot)
    overrides, given = options.split(settings)
    loaded = load(instance, inputs=inputs, **overrides)
    warn(loaded, quiet)
    with progress_line(quiet) as shown, event_file(events, shown) as heard:
        report = crosscheck(
            loaded,
            methods=names_of(methods),
            limits=limits,
            options=given,
            reproducers=reproducer_dir,
            listen=heard.listen,
            notice=lambda line: note(quiet, line),
            ended=heard.end,
        )
    if plot is not None:
        draw_events(plot, loaded, heard.events)
    if json:
        print(as_json(report.to_json()))
    else:
        show_report(report)
    if report.signal:
        raise typer.Exit(128 + report.signal)
    if not report.agree:
        raise typer.Exit(CONTRADICTION)
    infeasible = any(result.status is Status.INFEASIBLE for result in report.results)
    raise typer.Exit(INFEASIBLE if infeasible else 0)


def check_command(
    instance: Instance,
    plan: Annotated[str, typer.Argument(metavar="PLAN.json", help="as solve --out or solve --json writes it")],
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Check a plan with the problem's definition alone; exit 1 if it breaks a rule."""
    from planner.checking import check, read_plan
    from planner.loading import load
    from planner.report import as_json, show_verdict

    loaded = load(instance, inputs=inputs, **settings)
    warn(loaded, quiet)
    verdict = check(loaded, read_plan(plan), where=plan)
    if json:
        print(as_json(verdict.to_json()))
    else:
        show_verdict(verdict)
    raise typer.Exit(0 if verdict.feasible else 1)
