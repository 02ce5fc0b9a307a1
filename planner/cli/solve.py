"""The commands on one instance: ``solve`` and ``check``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from planner.cli import completion, nearby
from planner.cli.common import (
    Events,
    Gap,
    Inputs,
    Instance,
    Json,
    Plans,
    Quiet,
    Reproducers,
    Seed,
    Solver,
    SolverLog,
    SolverOption,
    Threads,
    TimeLimit,
    exit_code,
    limits_of,
    plans_of,
    warn,
)
from planner.files.choices import split
from planner.process.errors import CrosscheckError, UsageError
from planner.results.result import Result
from solvers.outcome import DEFAULT_SOLVER


def _swept(metavar: str, text: str, **rules: Any) -> Any:
    """An option of the sweep over micro-batch sizes."""
    return typer.Option(
        metavar=metavar, help=text, hidden=True, rich_help_panel="Options of stage_partitioning", **rules
    )


def solve_command(
    instance: Instance,
    exact: Annotated[bool, typer.Option("--exact", metavar="", help="prove optimality")] = False,
    method: Annotated[
        str,
        typer.Option(metavar="NAME", help="of planner list, or FILE.py:FUNCTION", autocompletion=completion.methods),
    ] = "auto",
    portfolio: Annotated[bool, typer.Option("--portfolio", metavar="", help="exact search and model at once")] = False,
    compare: Annotated[
        bool, typer.Option("--compare", metavar="", help="the paper's method beside the exact one")
    ] = False,
    plan: Plans = None,
    alternatives: nearby.Alternatives = None,
    within: nearby.Within = None,
    pareto: nearby.Pareto = None,
    time_limit: TimeLimit = None,
    gap: Gap = 1e-6,
    seed: Seed = 0,
    threads: Threads = 1,
    solver: Solver = DEFAULT_SOLVER,
    solver_option: SolverOption = None,
    solver_log: SolverLog = None,
    out: Annotated[str | None, typer.Option(metavar="PLAN.json", help="write the plan to a file")] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE.png|svg", help="draw the plan")] = None,
    trace: Annotated[str | None, typer.Option(metavar="FILE.json", help="write the schedule as Chrome trace")] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            metavar="KIND|FILE",
            help="place the stages on this network as well",
            hidden=True,
            rich_help_panel="Options of operator_partitioning",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, _swept("B", "sequences in a batch; sweeps g and b' with N = B / (g b') micro-batches", min=1)
    ] = None,
    grad_accum: Annotated[str | None, _swept("G,...", "degrees g of gradient accumulation of the sweep")] = None,
    microbatch_sizes: Annotated[str | None, _swept("B,...", "micro-batch sizes b' of the sweep")] = None,
    jobs: Annotated[int, _swept("N", "combinations of the sweep at once, each with the whole time limit", min=1)] = 1,
    certificate: Annotated[str | None, typer.Option(metavar="FILE", help="certify the bound (planner verify)")] = None,
    events: Events = None,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    reproducer_dir: Reproducers = "reproducers",
    **settings: Any,
) -> None:
    """Find a plan; --exact proves it optimal, otherwise its gap is reported."""
    from planner.analysis.compare_with_paper import solve_beside
    from planner.analysis.orders import best_order, solve_orders
    from planner.analysis.sweep import Row, parse_counts, sweep
    from planner.display.progress import note, progress_line
    from planner.files.destinations import refuse_outputs
    from planner.files.write import write_all
    from planner.process.signals import held
    from planner.results.events import complain, event_file
    from planner.solving.certify import certify

    wanted = {"--out": out, "--plot": plot, "--events": events, "--trace": trace, "--certificate": certificate}
    wanted |= {"--solver-log": solver_log}
    refuse_outputs(wanted, instance, *([] if topology is None else [topology]))
    limits = limits_of(time_limit, gap, seed, threads, solver, solver_option, solver_log)
    overrides, given = split(settings)
    beside = {"--compare": "given" if compare else None, "--plan": plan[0] if plan else None}
    beyond = nearby.Wanted(alternatives, within, pareto)
    exact = exact or bool(beyond.given)
    by_order: dict[str, Any] = {}
    if batch_size is None:
        several = None if jobs == 1 else str(jobs)
        needing = {"--grad-accum": grad_accum, "--microbatch-sizes": microbatch_sizes, "--jobs": several}
        _refuse(needing, "a --batch-size beside it")
        by_order = _instances(instance, topology, inputs, overrides, quiet, plot, trace)
        if len(by_order) > 1:
            _refuse({"--certificate": certificate, **beside, **beyond.given}, "one order")
        beyond.refuse(next(iter(by_order.values())), limits)
    else:
        alone = {"--topology": topology, "--trace": trace, "--certificate": certificate, **beside, **beyond.given}
        _refuse(alone, "no --batch-size beside it")
        _require(plot)
    rows: list[Row] = []
    others: list[Result] = []
    proof: Iterable[Callable[[], None]] = ()
    if portfolio and method != "auto":
        raise UsageError.at("--method", method, "none beside --portfolio")
    wish = "portfolio" if portfolio else method
    run: dict[str, Any] = {"method": wish, "exact": exact, "limits": limits, "options": given}
    with event_file(events) as log, held():
        run |= {"listen": log.listen, "notice": lambda line: note(quiet, line)}
        try:
            with progress_line(quiet) as log.also:
                if compare or plan:
                    loaded = next(iter(by_order.values()))
                    result, *others = solve_beside(loaded, plans_of(plan), **run)
                elif batch_size is None:
                    result = solve_orders(by_order, **run)
                    loaded = by_order[best_order(result, by_order)]  # its plan is what is drawn
                else:
                    accumulate = parse_counts("--grad-accum", grad_accum or "1")
                    sizes = parse_counts("--microbatch-sizes", microbatch_sizes or "1")
                    result, loaded, rows = sweep(
                        instance, batch_size, accumulate, sizes, inputs=inputs, overrides=overrides, jobs=jobs, **run
                    )
                found = beyond.find(loaded, result, run)
        except CrosscheckError as error:
            raise with_reproducer(error, reproducer_dir, json) from error
        if certificate is not None:
            certified = certify(loaded, result, limits=limits, notice=run["notice"])
            result, proof = certified.result, _certificate_writes(certificate, certified, quiet)
        log.end(result)
        _show(result, loaded, rows, others, found, log.events, json)
    outputs = {"--out": out, "--plot": plot, "--trace": trace}
    write_all(partial(complain, events, log), *_writes(result, loaded, rows, outputs, quiet), *proof)
    code = exit_code(result, exact, limits)
    raise typer.Exit(code if found is None else found.exit_code(code))


def _refuse(given: Mapping[str, int | str | None], rule: str) -> None:
    """`UsageError` for the first option that was given."""
    for name, value in given.items():
        if value is not None:
            raise UsageError.at(name, value, rule)


def _require(plot: str | None) -> None:
    """`UsageError` if a picture is requested and cannot be drawn here."""
    from planner.display.plots.files import require

    if plot is not None:
        require(plot)


def _instances(
    name: str,
    topology: str | None,
    inputs: str | None,
    overrides: dict[str, Any],
    quiet: bool,
    plot: str | None,
    trace: str | None,
) -> dict[str, Any]:
    """The instance, once for every order to linearise it in; what cannot be drawn is refused before the search."""
    from planner.analysis.orders import load_orders
    from planner.analysis.with_topology import load_placed
    from planner.display.pictures import refuse_undrawable
    from planner.display.schedules import refuse_untraceable

    if topology is None:
        by_order = load_orders(name, inputs=inputs, **overrides)
    else:
        by_order = {"": load_placed(name, topology, inputs=inputs, overrides=overrides)}
    loaded = next(iter(by_order.values()))
    warn(loaded, quiet)
    if plot is not None:
        refuse_undrawable(loaded, plot)
    if trace is not None:
        refuse_untraceable(loaded, trace)
    return by_order


def with_reproducer(error: CrosscheckError, folder: str, json: bool) -> CrosscheckError:
    """Write the reproducer; the error that names it."""
    from planner.display.tables import print_json
    from planner.solving.compare import write_reproducer

    try:
        path: str | None = write_reproducer(folder, {**error.evidence, "contradictions": [str(error)]})
        said = f"{error} (reproducer: {path})"
    except UsageError as unwritten:
        path, said = None, f"{error} (no reproducer: {unwritten})"
    if json:
        print_json({"agree": False, "contradictions": [str(error)], "reproducer": path})
    return CrosscheckError(said)


def _show(
    result: Result,
    loaded: Any,
    rows: list[Any],
    others: list[Result],
    more: nearby.Found | None,
    events: Sequence[Any],
    json: bool,
) -> None:
    from planner.display.sweep import show_rows
    from planner.display.tables import print_json, show_result, show_results
    from planner.files.load import family_of
    from planner.files.node_names import names_of_nodes
    from planner.results.optimality_loss import any_optimal

    if json:
        compared = {"compared": [each.to_json() for each in others]} if others else {}
        print_json({**result.to_json(), **compared, **({} if more is None else more.to_json())})
        return
    if rows:
        show_rows(rows, result.unit)
        result = replace(result, stats={name: value for name, value in result.stats.items() if name != "sweep"})
    family = family_of(loaded)
    plan = None if result.plan is None else family.plan_from_json(loaded, result.plan)
    found = None if plan is None or family.breakdown is None else family.breakdown(loaded, plan)
    is_proved = any_optimal(each.loss for each in (result, *others))
    names = {} if plan is None else names_of_nodes(loaded)
    show_result(result, family.describe(loaded), found, names, is_proved, events)
    if others:
        show_results([result, *others])
    if more is not None:
        more.show(result)


def _writes(
    result: Result, loaded: Any, rows: Sequence[Any], wanted: Mapping[str, str | None], quiet: bool
) -> Iterator[Callable[[], None]]:
    """What writes the plan to every file that is wanted, a sweep above its picture; without a plan a note of each."""
    from planner.analysis.sweep import heat_of
    from planner.display.pictures import draw
    from planner.display.progress import note
    from planner.display.schedules import write_trace
    from planner.files.write import write_atomically
    from planner.results.save import plan_file

    plan, swept = result.plan, [heat_of(rows, result.unit)] if len(rows) > 1 else []
    writers: dict[str, Callable[[str, Any], None]] = {
        "--out": lambda path, _: write_atomically(path, plan_file(result)),
        "--plot": lambda path, plan: draw(path, loaded, plan, *swept),
        "--trace": lambda path, plan: write_trace(path, loaded, plan),
    }
    for name, path in wanted.items():
        if path is not None and plan is None:
            note(quiet, f"{name} {path}: there is no plan to write")
        elif path is not None:
            yield partial(writers[name], path, plan)


def _certificate_writes(path: str, certified: Any, quiet: bool) -> Iterator[Callable[[], None]]:
    """What writes a certificate; without one a note."""
    from planner.display.progress import note
    from planner.files.write import write_atomically

    if certified.content is None:
        note(quiet, f"--certificate {path}: uncertified, there is nothing to write")
    else:
        yield partial(write_atomically, path, certified.text, "--certificate")


def check_command(
    instance: Instance,
    plan: Annotated[str, typer.Argument(metavar="PLAN.json", help="from solve --out or solve --json")],
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Check a plan against the definition of the problem; exit 1 if it breaks a rule."""
    from planner.display.progress import note
    from planner.display.tables import print_json, show_verdict
    from planner.files.load import load
    from planner.files.read import STANDARD
    from planner.results.check import check, other_settings, read_plan

    if plan == instance == STANDARD:
        raise UsageError.at("PLAN", plan, "a file: INSTANCE is standard input")
    loaded = load(instance, inputs=inputs, **settings)
    warn(loaded, quiet)
    content = read_plan(plan)
    verdict = check(loaded, content, where=plan)
    if content.get("problem", verdict.problem) != verdict.problem:
        note(
            quiet, f"warning: {plan} is a plan of {content['problem']}; checked as one of {verdict.problem} (--problem)"
        )
    else:
        for other in other_settings(loaded, content, plan):
            note(quiet, f"note: {other}")
    if json:
        print_json(verdict.to_json())
    else:
        show_verdict(verdict)
    if content.get("bound") is not None:
        note(quiet, f"only the plan was checked; the bound that {plan} claims needs a certificate (planner verify)")
    raise typer.Exit(0 if verdict.feasible else 1)
