"""The command line: arguments in, one call, results out, an exit code. No logic of its own.

Exit codes: 0 done as asked; 1 ``check`` found violations; 2 bad input or usage; 3 a limit before the proof asked for,
or nothing found; 4 proved infeasible; 5 methods contradict each other; 70 a bug; 128 + signal: interrupted.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from instances.errors import InstanceError
from planner import options
from planner.cli_census import census_command, extract_command
from planner.cli_frontier import frontier_command
from planner.cli_hierarchy import hierarchy_command
from planner.errors import CrosscheckError, UsageError
from planner.result import Result
from solvers.outcome import Limits, Status

_HELP = "Exact models beside the published algorithms of DNN-parallelization planners."
BAD_INPUT, NO_PROOF, INFEASIBLE, CONTRADICTION = 2, 3, 4, 5
BUG = 70
BROKEN_PIPE = 128 + 13

Instance = Annotated[str, typer.Argument(metavar="INSTANCE", help="a file, or a name from the catalog")]
Json = Annotated[bool, typer.Option("--json", help="print exactly one JSON object")]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress and no warnings")]
TimeLimit = Annotated[float | None, typer.Option(metavar="SECONDS", help="wall time for each method")]
Gap = Annotated[float, typer.Option(metavar="G", help="relative gap at which an exact method may stop")]
Seed = Annotated[int, typer.Option(metavar="N", help="seed of the solvers")]
Threads = Annotated[int, typer.Option(metavar="N", help="threads of the solvers")]
Inputs = Annotated[str | None, typer.Option(metavar="DIR", help="published inputs (default: $PLANNER_PUBLISHED)")]
Reproducers = Annotated[str, typer.Option("--reproducer-dir", metavar="DIR", help="where contradictions are written")]


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code. Bad input is one line on stderr."""
    with _process_manners():
        try:
            command = application(_command_name(arguments))
            code = command(args=arguments, prog_name="planner", standalone_mode=False)
            sys.stdout.flush()
            return int(code or 0)
        except (InstanceError, UsageError) as error:
            return _fail(str(error))
        except CrosscheckError as error:
            _complain(f"contradiction: {error}")
            return CONTRADICTION
        except typer.TyperException as error:
            return _fail(error.format_message()) if error.format_message() else BAD_INPUT
        except BrokenPipeError:
            return _reader_left()
        except SystemExit as stop:
            if isinstance(stop.__context__, BrokenPipeError):  # typer met it first
                return _reader_left()
            return int(stop.code or 0)
        except Exception:
            traceback.print_exc()  # a bug: nothing is hidden, and no exit code of ours is borrowed
            return BUG


def application(wanted: str | None = None) -> typer.Typer:
    """The typer application, with the settings of the families and methods there are now.

    Only the command that is ``wanted`` gets its settings (``None``: no command does): finding them imports the
    families.
    """
    app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=_HELP)
    for name, (command, choices) in _COMMANDS.items():
        if choices is not None:
            command = options.with_choices(command, choices() if name == wanted else ())
        app.command(name, epilog=_examples(name))(command)
    return app


def solve_command(
    instance: Instance,
    exact: Annotated[bool, typer.Option("--exact", help="only methods that prove optimality, until they do")] = False,
    method: Annotated[str, typer.Option(metavar="NAME", help="one method (planner list), or auto")] = "auto",
    time_limit: TimeLimit = None,
    gap: Gap = 1e-6,
    seed: Seed = 0,
    threads: Threads = 1,
    out: Annotated[str | None, typer.Option(metavar="PLAN.json", help="write the plan to a file")] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE.svg", help="draw the plan (mesh_tiling)")] = None,
    batch_size: Annotated[
        int | None, typer.Option(metavar="B", min=1, help="sequences in a batch: sweep g and b', N = B / (g b')")
    ] = None,
    grad_accum: Annotated[str | None, typer.Option(metavar="G,...", help="degrees g of gradient accumulation")] = None,
    microbatch_sizes: Annotated[str | None, typer.Option(metavar="B,...", help="micro-batch sizes b'")] = None,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    reproducer_dir: Reproducers = "reproducers",
    **settings: Any,
) -> None:
    """Find a plan: the best there is with --exact, a good one with its gap without."""
    from planner.comparison import write_reproducer
    from planner.files import refuse_overwriting, write_atomically
    from planner.loading import family_of
    from planner.orders import load_orders, solve_orders
    from planner.pictures import artist, draw
    from planner.progress import note, progress_line
    from planner.report import as_json, plan_file, show_result
    from planner.sweep import Row, parse_counts, show_rows, sweep

    limits = _limits(time_limit, gap, seed, threads)
    if out is not None:
        refuse_overwriting(out, instance)
    if plot is not None:
        refuse_overwriting(plot, instance)
    overrides, given = options.split(settings)
    rows: list[Row] = []
    run: dict[str, Any] = {"method": method, "exact": exact, "limits": limits, "options": given}
    if batch_size is None:
        for name, value in (("--grad-accum", grad_accum), ("--microbatch-sizes", microbatch_sizes)):
            if value is not None:
                raise UsageError.at(name, value, "a --batch-size beside it")
        by_order = load_orders(instance, inputs=inputs, **overrides)
        loaded = next(iter(by_order.values()))
        _warn(loaded, quiet)
        if plot is not None:
            artist(loaded, plot)  # refuses now rather than after the search
    try:
        with progress_line(quiet) as listen:
            run |= {"listen": listen, "notice": lambda line: note(quiet, line)}
            if batch_size is None:
                result = solve_orders(by_order, **run)
            else:
                accumulate = parse_counts("--grad-accum", grad_accum or "1")
                sizes = parse_counts("--microbatch-sizes", microbatch_sizes or "1")
                result, loaded, rows = sweep(
                    instance, batch_size, accumulate, sizes, inputs=inputs, overrides=overrides, **run
                )
    except CrosscheckError as error:
        path = write_reproducer(reproducer_dir, {**error.evidence, "contradictions": [str(error)]})
        if json:
            print(as_json({"agree": False, "contradictions": [str(error)], "reproducer": path}))
        raise CrosscheckError(f"{error} (reproducer: {path})") from error
    if json:
        print(as_json(result.to_json()))
    else:
        if rows:
            show_rows(rows, result.unit)
        show_result(result, family_of(loaded).describe(loaded))
    if out is not None:
        if result.plan is None:
            note(quiet, f"--out {out}: there is no plan to write")
        else:
            write_atomically(Path(out), plan_file(result))
    if plot is not None and result.plan is not None:
        draw(plot, loaded, result.plan)
    raise typer.Exit(exit_code(result, exact, limits))


def crosscheck_command(
    instance: Instance,
    methods: Annotated[str | None, typer.Option(metavar="A,B,...", help="default: all that fit the instance")] = None,
    time_limit: TimeLimit = 60.0,
    gap: Gap = 1e-6,
    seed: Seed = 0,
    threads: Threads = 1,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    reproducer_dir: Reproducers = "reproducers",
    **settings: Any,
) -> None:
    """Run several methods and compare what they claim; exit 5 and a reproducer if they contradict each other."""
    from planner.comparison import crosscheck
    from planner.loading import load
    from planner.progress import note, progress_line
    from planner.report import as_json, show_report

    limits = _limits(time_limit, gap, seed, threads)
    overrides, given = options.split(settings)
    loaded = load(instance, inputs=inputs, **overrides)
    _warn(loaded, quiet)
    with progress_line(quiet) as listen:
        report = crosscheck(
            loaded,
            methods=_names(methods),
            limits=limits,
            options=given,
            reproducers=reproducer_dir,
            listen=listen,
            notice=lambda line: note(quiet, line),
        )
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
    _warn(loaded, quiet)
    verdict = check(loaded, read_plan(plan), where=plan)
    if json:
        print(as_json(verdict.to_json()))
    else:
        show_verdict(verdict)
    raise typer.Exit(0 if verdict.feasible else 1)


def list_command(json: Json = False) -> None:
    """Families, their methods, catalog instances and versions."""
    from planner.listing import listing, show_listing
    from planner.report import as_json

    found = listing(_catalog())
    if json:
        print(as_json(found))
    else:
        show_listing(found)


def make_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a name from the catalog")],
    out: Annotated[str | None, typer.Option(metavar="FILE", help="where to write it; default: stdout")] = None,
    **settings: Any,
) -> None:
    """Write a catalog or generated instance as JSON."""
    from planner.files import refuse_overwriting, write_atomically
    from planner.loading import family_of, load
    from planner.report import as_json

    if name not in _catalog():
        raise UsageError.unknown("NAME", name, _catalog())
    if out is not None:
        refuse_overwriting(out)
    loaded = load(name, **settings)
    text = as_json(family_of(loaded).to_json(loaded))
    if out is None:
        print(text)
    else:
        write_atomically(Path(out), text + "\n")


def bench_command(
    instances: Annotated[list[str] | None, typer.Argument(metavar="[INSTANCE]...", help="files or names")] = None,
    suite: Annotated[str | None, typer.Option(metavar="FILE|piper", help="JSON lines of cases, or piper")] = None,
    methods: Annotated[str | None, typer.Option(metavar="A,B,...", help="default: auto")] = None,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="runs of each; medians are shown")] = 3,
    time_limit: TimeLimit = 60.0,
    gap: Gap = 1e-6,
    seed: Seed = 0,
    threads: Threads = 1,
    out: Annotated[str | None, typer.Option(metavar="ROWS.jsonl", help="write a JSON line for each row")] = None,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Measure methods on instances: seconds, objective, bound and gap."""
    from planner.bench import cases, measure, show_rows
    from planner.files import refuse_overwriting, write_atomically
    from planner.progress import note
    from planner.report import as_json

    limits = _limits(time_limit, gap, seed, threads)
    if out is not None:
        refuse_overwriting(out, *(instances or []), *([suite] if suite else []))
    rows = []
    for row in measure(cases(instances or [], suite, _names(methods), settings, inputs), limits, repeats, inputs):
        note(quiet, f"{row.instance} {row.method}: {row.seconds:.4g} s")
        rows.append(row)
    lines = [as_json(row.to_json()) for row in rows]
    if out is not None:
        write_atomically(Path(out), "".join(line + "\n" for line in lines))
    if json:
        print(as_json({"rows": [row.to_json() for row in rows]}))
    else:
        show_rows(rows)
    signalled = next((row.signal for row in rows if row.signal), None)
    raise typer.Exit(128 + signalled if signalled else 0)


def doctor_command(json: Json = False) -> None:
    """Examine the installation: versions, canary models, kernels (compiled if need be); exit 1 if one is ill."""
    from planner.doctor import examine, show_findings
    from planner.report import as_json

    findings = examine()
    if json:
        print(as_json({"healthy": all(found.healthy for found in findings), "findings": [vars(f) for f in findings]}))
    else:
        show_findings(findings)
    raise typer.Exit(0 if all(found.healthy for found in findings) else 1)


def reproduce_command(
    claim: Annotated[str | None, typer.Argument(metavar="CLAIM", help="a name from --list")] = None,
    list_: Annotated[bool, typer.Option("--list", help="name the claims that can be examined")] = False,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Examine a claim of a paper: what it prints, what is found here, and the exact optimum."""
    from planner.progress import note
    from planner.report import as_json
    from planner.reproduce import claims_listing, reproduce, show_claims, show_reproduction

    if list_:
        listed = claims_listing()
        print(as_json(listed)) if json else show_claims(listed)
        return
    if claim is None:
        raise UsageError.at("CLAIM", "nothing", "a name from planner reproduce --list")
    given = {name: value for name, value in settings.items() if value is not None and value is not False}
    found = reproduce(claim, inputs=inputs, note=lambda line: note(quiet, line), **given)
    print(as_json(found.to_json())) if json else show_reproduction(found)


_COMMANDS: dict[str, tuple[options.Command, Callable[[], list[options.Choice]] | None]] = {
    "solve": (solve_command, options.setting_choices),
    "crosscheck": (crosscheck_command, options.setting_choices),
    "check": (check_command, options.override_choices),
    "list": (list_command, None),
    "make": (make_command, lambda: options.parameter_choices(_catalog())),
    "bench": (bench_command, options.setting_choices),
    "doctor": (doctor_command, None),
    "reproduce": (reproduce_command, options.claim_choices),
    "extract": (extract_command, options.override_choices),
    "census": (census_command, options.override_choices),
    "frontier": (frontier_command, options.override_choices),
    "hierarchy": (hierarchy_command, options.override_choices),
}


#: Shown at the end of each command's help.
_EXAMPLES: dict[str, tuple[str, ...]] = {
    "hierarchy": ("planner hierarchy bert32 --memory 40GiB --num-machines 4 --outer-bandwidth 25GB/s",),
    "solve": (
        "planner solve bert32 --devices 64 --memory 8GiB --exact",
        "planner solve resnet.json --devices 32 --memory 2GiB --cost-model released --method piper --json",
        "planner solve model.json --time-limit 30 --out plan.json",
    ),
    "crosscheck": (
        "planner crosscheck chain8 --memory 40MB",
        "planner crosscheck bert32 --first 8 --devices 4 --methods exact,cpsat,milp --time-limit 60",
    ),
    "check": ("planner check chain8 plan.json --memory 40MB",),
    "make": ("planner make bert --layers 48 --hidden-size 4096 --out bert48.json",),
    "bench": (
        "planner bench bert32 chain8 --methods exact,piper --repeats 5 --out rows.jsonl",
        "planner bench --suite piper --inputs DIR",
    ),
    "reproduce": ("planner reproduce piper-table-1 --inputs DIR",),
    "frontier": ("planner frontier bert32 --devices 256 --memory 8GiB --microbatches 128 --out table.csv",),
    "census": ("planner census bert32a100.json --devices 512 --memory 8GiB --microbatches 512 --jobs 2",),
    "extract": ("planner extract bert32 --problem tmpc_knapsack --sample 1000 --out knapsacks.jsonl",),
}


def _examples(name: str) -> str | None:
    """The examples of a command, a paragraph each (lines of one paragraph would be joined)."""
    examples = _EXAMPLES.get(name)
    return None if examples is None else "\n\n".join(("Examples:", *examples))


def exit_code(result: Result, exact: bool, limits: Limits) -> int:
    """The exit code of ``solve``."""
    if result.signal:
        return 128 + result.signal
    if result.status is Status.INFEASIBLE:
        return INFEASIBLE
    close_enough = result.gap is not None and result.gap <= limits.gap
    if result.status is Status.UNKNOWN or (exact and not close_enough):
        return NO_PROOF
    return 0


def _command_name(arguments: list[str] | None) -> str | None:
    """The command among the arguments: no option stands before it."""
    given = sys.argv[1:] if arguments is None else arguments
    return given[0] if given else None


@contextmanager
def _process_manners() -> Iterator[None]:
    """SIGTERM ends the command in order (128 + 15), and no name is so odd that it cannot be printed."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    ours = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, _frame: Any) -> None:
    raise SystemExit(128 + number)


def _limits(time_limit: float | None, gap: float, seed: int, threads: int) -> Limits:
    if time_limit is not None and math.isinf(time_limit) and time_limit > 0:
        time_limit = None
    try:
        return Limits(time_s=time_limit, gap=gap, seed=seed, threads=threads)
    except ValueError as error:
        raise UsageError(f"limits: {error}") from None


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _warn(instance: Any, quiet: bool) -> None:
    from planner.loading import family_of
    from planner.progress import note

    for warning in family_of(instance).warnings(instance):
        note(quiet, f"warning: {warning}")


def _catalog() -> Mapping[str, Any]:
    from planner.loading import catalog

    return catalog()


def _reader_left() -> int:
    """Whoever read our output has left; without this, Python would complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return BROKEN_PIPE


def _fail(message: str) -> int:
    _complain(message)
    return BAD_INPUT


def _complain(message: str) -> None:
    print(" ".join(message.split()), file=sys.stderr, flush=True)
