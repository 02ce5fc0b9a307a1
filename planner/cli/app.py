"""The command line: arguments in, one call, results out, an exit code. No logic of its own.

Exit codes: 0 done as asked; 1 ``check`` found violations; 2 bad input or usage; 3 a limit before the proof asked for,
or nothing found; 4 proved infeasible; 5 methods contradict each other; 70 a bug; 128 + signal: interrupted.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from formulations.compilation import KernelCacheWarning
from instances.errors import InstanceError
from planner.cli import options
from planner.cli.bench import bench_command
from planner.cli.census import census_command, extract_command
from planner.cli.common import BAD_INPUT, CONTRADICTION, catalog_of_all
from planner.cli.frontier import frontier_command
from planner.cli.hierarchy import hierarchy_command
from planner.cli.solve import check_command, crosscheck_command, solve_command
from planner.cli.tools import (
    doctor_command,
    list_command,
    make_command,
    report_command,
    reproduce_command,
)
from planner.errors import CrosscheckError, UsageError
from planner.show.terminal import printable
from solvers.pinned import BackendError

_HELP = "Exact models beside the published algorithms of DNN-parallelization planners."
BUG = 70


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code. Bad input is one line on stderr."""
    with _process_manners():
        try:
            command = application(_command_name(arguments))
            code = command(args=arguments, prog_name="planner", standalone_mode=False)
            sys.stdout.flush()
            return int(code or 0)
        except (InstanceError, UsageError, BackendError) as error:
            return _fail(str(error))
        except CrosscheckError as error:
            _complain(f"contradiction: {error}")
            return CONTRADICTION
        except typer.TyperException as error:
            return _fail(error.format_message()) if error.format_message() else BAD_INPUT
        except SystemExit as stop:
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


_COMMANDS: dict[str, tuple[options.Command, Callable[[], list[options.Choice]] | None]] = {
    "solve": (solve_command, options.setting_choices),
    "crosscheck": (crosscheck_command, options.setting_choices),
    "check": (check_command, options.override_choices),
    "list": (list_command, None),
    "make": (make_command, lambda: options.parameter_choices(catalog_of_all())),
    "bench": (bench_command, options.setting_choices),
    "report": (report_command, options.setting_choices),
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
        "planner solve bert --layers 4 --hidden-size 1024 --devices 8",
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
        "planner bench --suite all --time-limit 3 --repeats 1 --out before",
        "planner bench --compare before after",
    ),
    "report": ("planner report bert32 --devices 64 --memory 8GiB --out report.html",),
    "reproduce": ("planner reproduce piper-table-1 --inputs DIR",),
    "frontier": ("planner frontier bert32 --devices 256 --memory 8GiB --microbatches 128 --out table.csv",),
    "census": ("planner census bert32a100.json --devices 512 --memory 8GiB --microbatches 512 --jobs 2",),
    "extract": ("planner extract bert32 --problem tmpc_knapsack --sample 1000 --out knapsacks.jsonl",),
}


def _examples(name: str) -> str | None:
    """The examples of a command, a paragraph each (lines of one paragraph would be joined)."""
    examples = _EXAMPLES.get(name)
    return None if examples is None else "\n\n".join(("Examples:", *examples))


def _command_name(arguments: list[str] | None) -> str | None:
    """The command among the arguments: no option stands before it."""
    given = sys.argv[1:] if arguments is None else arguments
    return given[0] if given else None


@contextmanager
def _process_manners() -> Iterator[None]:
    """No name is so odd that it cannot be printed, and our own warnings are one line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    before = warnings.showwarning
    warnings.showwarning = _show_warning(before)
    try:
        yield
    finally:
        warnings.showwarning = before


def _show_warning(otherwise: Callable[..., None]) -> Callable[..., None]:
    """Our own warning is one line; others look as Python's do."""

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if not issubclass(category, KernelCacheWarning):
            otherwise(message, category, *rest, **more)
        elif "--quiet" not in sys.argv:
            _complain(f"warning: {message}")

    return show


def _fail(message: str) -> int:
    _complain(message)
    return BAD_INPUT


def _complain(message: str) -> None:
    print(printable(" ".join(message.split())), file=sys.stderr, flush=True)
