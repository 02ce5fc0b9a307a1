"""The command line: arguments in, one call, results out, an exit code. No logic of its own.

Exit codes: 0 success; 1 ``check`` found violations, ``verify`` rejected a certificate, or a format of ``export`` cannot
express a plan; 2 bad input or usage; 3 a limit before the required proof, or nothing found; 4 proved infeasible; 5
methods contradict each other; 70 a bug; 128 + signal: interrupted.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from formulations.compiled.compile_times import KernelCacheWarning
from instances.errors import InstanceError
from planner.cli import completion, options
from planner.cli.bench import bench_command
from planner.cli.capture import calibrate_command, import_command, profile_command
from planner.cli.census import census_command, extract_command
from planner.cli.certify import certify_command, verify_command
from planner.cli.common import BAD_INPUT, CONTRADICTION
from planner.cli.crosscheck import crosscheck_command
from planner.cli.diff import diff_command
from planner.cli.explain import explain_command
from planner.cli.export import export_command
from planner.cli.formulations import formulations_command
from planner.cli.frontier import frontier_command
from planner.cli.hierarchy import hierarchy_command
from planner.cli.list_make_doctor import (
    doctor_command,
    list_command,
    make_command,
    reproduce_command,
)
from planner.cli.mine import mine_command
from planner.cli.model import model_command
from planner.cli.report import report_command
from planner.cli.run import fidelity_command, run_command
from planner.cli.schema import schema_command
from planner.cli.sensitivity import sensitivity_command
from planner.cli.solve import check_command, solve_command
from planner.cli.typer_errors import words
from planner.cli.validate import validate_command
from planner.display.terminal import printable
from planner.files import choices
from planner.process.environment import blamed
from planner.process.errors import CrosscheckError, UsageError
from planner.process.versions import versions
from solvers.trust.pins import BackendError

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
            return _fail(words(error, [*_COMMANDS])) if error.format_message() else BAD_INPUT
        except SystemExit as stop:
            return int(stop.code or 0)
        except Exception as error:
            said = blamed(error)
            if said is not None:
                return _fail(said)
            traceback.print_exc()  # a bug: nothing is hidden, and no exit code of ours is borrowed
            return BUG


def application(wanted: str | None = None) -> typer.Typer:
    """The typer application, with the settings of the families and methods there are now.

    Where ``wanted`` is a command, it is the only one, unless a shell completes words: all of them take 40 ms. Only
    that command gets its settings (``None``: no command does): finding them imports the families.
    """
    is_alone = wanted in _COMMANDS and not completion.is_asked()
    app = typer.Typer(
        add_completion=not is_alone,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help=_HELP,
    )
    app.callback(no_args_is_help=True)(_general)
    for name, (command, offered) in _COMMANDS.items():
        if is_alone and name != wanted:
            continue
        cls = None
        if offered is not None:
            taken = offered.taken() if name == wanted else ()
            command = options.with_choices(command, taken, problem=offered.problem, require=offered.require)
            cls = options.explained(offered.about, offered.pointer.format(name))
        app.command(name, epilog=_examples(name), cls=cls)(command)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"planner {versions()['dnn-planner']}")
        raise typer.Exit


def _general(
    _: Annotated[
        bool,
        typer.Option("--version", metavar="", is_eager=True, callback=_show_version, help="Show the version and exit."),
    ] = False,
) -> None:
    """What stands before a command."""


@dataclass(frozen=True)
class _Offered:
    """The settings that a command takes, ``--problem`` and ``--require`` among them or not, and which its help shows.

    ``taken`` imports all families.
    ``pointer`` says how to see them where it shows none.
    """

    taken: Callable[[], list[choices.Choice]]
    about: options.About
    pointer: str = "Options of a problem: planner {} INSTANCE --help, or planner list PROBLEM."
    problem: bool = True
    require: bool = True


_SETTINGS = _Offered(choices.every_setting, options.of_instances())
_SOURCES = replace(_SETTINGS, about=options.of_sources())
_OVERRIDES = _Offered(choices.every_override, options.of_instances(methods=False))
_COMMANDS: dict[str, tuple[options.Command, _Offered | None]] = {
    "solve": (solve_command, _SETTINGS),
    "crosscheck": (crosscheck_command, _SOURCES),
    "check": (check_command, _OVERRIDES),
    "diff": (diff_command, _OVERRIDES),
    "certify": (certify_command, _SETTINGS),
    "verify": (verify_command, _OVERRIDES),
    "export": (export_command, _OVERRIDES),
    "list": (list_command, replace(_OVERRIDES, about=options.of_listed)),
    "make": (
        make_command,
        _Offered(choices.every_parameter, options.of_entry, "Parameters of an instance: planner {} NAME --help."),
    ),
    "bench": (bench_command, _SOURCES),
    "validate": (validate_command, _SOURCES),
    "report": (report_command, _SETTINGS),
    "doctor": (doctor_command, None),
    "schema": (schema_command, None),
    "reproduce": (
        reproduce_command,
        _Offered(
            options.every_claim_option, options.of_claim, "Options of a claim: planner {} CLAIM --help.", False, False
        ),
    ),
    "extract": (
        extract_command,
        replace(_OVERRIDES, about=options.of_instances(methods=False, reads_as=False), require=False),
    ),
    "census": (census_command, replace(_OVERRIDES, require=False)),
    "frontier": (frontier_command, replace(_OVERRIDES, require=False)),
    "hierarchy": (hierarchy_command, replace(_OVERRIDES, about=options.of_clusters, require=False)),
    "model": (model_command, _OVERRIDES),
    "formulations": (formulations_command, _OVERRIDES),
    "explain": (explain_command, _OVERRIDES),
    "sensitivity": (sensitivity_command, _OVERRIDES),
    "mine": (
        mine_command,
        _Offered(
            choices.every_option, options.of_methods, "Options of methods: planner {} METHOD --help.", False, False
        ),
    ),
    "run": (run_command, _OVERRIDES),
    "import": (import_command, None),
    "profile": (profile_command, None),
    "calibrate": (calibrate_command, None),
    "fidelity": (fidelity_command, None),
}


#: Shown at the end of each command's help.
_EXAMPLES: dict[str, tuple[str, ...]] = {
    "list": ("planner list stage_partitioning", "planner list bert32 --devices 512"),
    "hierarchy": ("planner hierarchy bert32 --memory 40GiB --num-machines 4",),
    "solve": (
        "planner solve bert32 --devices 64 --memory 8GiB --exact",
        "planner solve bert --layers 4 --hidden-size 1024 --devices 8 --json",
        "planner solve model.json --method piper --time-limit 30 --out plan.json",
        "planner solve bert32 --method ./mine.py:solve --compare",
    ),
    "crosscheck": (
        "planner crosscheck chain8 --memory 40MB",
        "planner crosscheck bert32 --first 8 --devices 4 --methods exact,cpsat,milp",
        "planner crosscheck knapsacks.jsonl --count 20",
    ),
    "check": ("planner check chain8 plan.json --memory 40MB",),
    "schema": ("planner schema stage_partitioning --out stage_partitioning.schema.json",),
    "diff": ("planner diff piper.json exact.json resnet.json --devices 32 --memory 2GiB --plot both.png",),
    "certify": ("planner certify bert32 --devices 64 --memory 8GiB --out certificate.json",),
    "verify": ("planner verify bert32 certificate.json --devices 64 --memory 8GiB",),
    "export": (
        "planner export plan.json bert32 --devices 64 --memory 8GiB --to megatron --nearest",
        "planner export plan.json model.json --to torch --out train.py",
    ),
    "make": (
        "planner make bert --layers 48 --hidden-size 4096 --out bert48.json",
        "planner make method stage_partitioning > mine.py",
    ),
    "bench": (
        "planner bench bert32 chain8 --methods exact,piper --out rows.jsonl",
        "planner bench --suite piper --inputs DIR",
        "planner bench --suite all --time-limit 3 --repeats 1 --out before",
        "planner bench --compare before after",
    ),
    "validate": (
        "planner validate knapsacks.jsonl --methods piper,./mine.py:solve --out run",
        "planner validate 'layers:layers=6..30,stages=2|4' --count 200 --out layers",
    ),
    "doctor": ("planner doctor --compile", "planner doctor --json"),
    "model": (
        "planner model layers --method milp --root",
        "planner model layers --method milp --require 'layers(0) >= 6' --write layers.lp",
        "planner model layers --method milp --require 'layers(0) >= 6' --read layers.sol",
    ),
    "import": (
        "planner import hf llama-7b --hardware h100 --devices 16 --out llama.json",
        "planner import torch model.py:make --devices 8 --out model.json",
    ),
    "calibrate": ("planner calibrate forward.csv --hardware h100 --dtype bf16",),
    "profile": ("planner profile model.py:make --devices 4 --memory 16GB --bandwidth 10GB/s --out model.json",),
    "formulations": ("planner formulations layers --layers 12 --stages 4 --time-limit 20 --plot roots.svg",),
    "mine": (
        "planner mine piper --domain recompute --max number=24 --out worst.json",
        "planner mine piper --loss 5% --domain max-slowdown=3/2 --out small.json",
        "planner mine ./mine.py:solve --problem stage_partitioning --out mine.json",
    ),
    "explain": (
        "planner explain bert32 --devices 4 --memory 2GiB",
        "planner explain bert32 --devices 64 --memory 8GiB --json",
    ),
    "sensitivity": (
        "planner sensitivity chain8 --noise 10%",
        "planner sensitivity bert32 --devices 64 --memory 8GiB --scenarios slow.json",
    ),
    "report": (
        "planner report bert32 --devices 64 --memory 8GiB --out report.html",
        "planner report chain8 layers schedule --time-limit 5 --out three.html",
    ),
    "reproduce": ("planner reproduce piper-table-1 --inputs DIR",),
    "frontier": (
        "planner frontier bert32 --devices 256 --memory 8GiB --out table.csv",
        "planner frontier bert32 --devices 64 --memory 8GiB --more-devices 8 --memories 16GiB,24GiB --plot map.png",
    ),
    "census": (
        "planner census bert32a100.json --devices 512 --memory 8GiB --jobs 2",
        "planner census amp-het-cluster --problem layer_assignment --from amp",
    ),
    "fidelity": ("planner fidelity run.json",),
    "run": ("planner run plan.json model.json --model mine.py:build --check",),
    "extract": (
        "planner extract bert32 --sample 1000 --out knapsacks.jsonl",
        "planner extract dgx1 --problem device_mapping --out targets.jsonl",
    ),
}


def _examples(name: str) -> str | None:
    """The examples of a command, a line each."""
    examples = _EXAMPLES.get(name)
    return None if examples is None else "\n".join(("Examples:", *(f"  {example}" for example in examples)))


def _command_name(arguments: list[str] | None) -> str | None:
    """The command among the arguments, or among those that a shell wants to have completed; no option before it."""
    given = completion.unfinished() if completion.is_asked() else sys.argv[1:] if arguments is None else arguments
    return given[0] if given else None


@contextmanager
def _process_manners() -> Iterator[None]:
    """Every name can be printed, and our own warnings are one line."""
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
