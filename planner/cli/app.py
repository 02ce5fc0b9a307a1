"""The command line: arguments in, one call, results out, an exit code. No logic of its own.

Exit codes: 0 success; 1 ``check`` found violations, ``verify`` rejected a certificate, or a format of ``export`` cannot
express a plan; 2 bad input or usage; 3 a limit before the required proof, or nothing found; 4 proved infeasible; 5
methods contradict each other; 70 a bug; 128 + signal: interrupted.
"""

import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from formulations.compiled.compile_times import KernelCacheWarning
from instances.errors import InstanceError
from planner.cli import completion, first_page, moved_options, options
from planner.cli.alternatives import alternatives_command, sweep_command
from planner.cli.bench import bench_command
from planner.cli.capture import calibrate_command, import_command, profile_command
from planner.cli.census import census_command, extract_command
from planner.cli.certify import certify_command, checker_command, verify_command
from planner.cli.common import BAD_INPUT, CONTRADICTION
from planner.cli.convert import convert_command
from planner.cli.crosscheck import crosscheck_command
from planner.cli.declared import flag
from planner.cli.explain import explain_command, sensitivity_command
from planner.cli.frontier import frontier_command
from planner.cli.library import library_command
from planner.cli.list_make_doctor import doctor_command, list_command, make_command, reproduce_command, schema_command
from planner.cli.mine import mine_command
from planner.cli.model import formulations_command, model_command
from planner.cli.report import report_command
from planner.cli.run import export_command, fidelity_command, run_command
from planner.cli.solve import check_command, diff_command, solve_command
from planner.cli.typer_errors import words
from planner.cli.validate import validate_command
from planner.display.terminal import printable
from planner.files import choices
from planner.process.environment import system_error_line
from planner.process.errors import CrosscheckError, UsageError
from planner.process.versions import versions
from solvers.trust.pins import BackendError

BUG = 70
#: Shown at the end of the help of the command that each begins with: every command has one or more.
EXAMPLES = Path(__file__).with_name("examples.txt").read_text(encoding="utf-8").splitlines()


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code. Bad input is one line on stderr."""
    with _process_manners():
        try:
            given, note = moved_options.as_now(sys.argv[1:] if arguments is None else arguments)
            options.bring_problems(given)
            is_asked = completion.is_asked()
            words_given = completion.words_to_complete() if is_asked else given
            command = application(next(iter(words_given), None), None if is_asked else given[1:])
            code = command(args=given, prog_name="planner", standalone_mode=False)
            if note and "--quiet" not in given:
                _complain(note)
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
            said = system_error_line(error)
            if said is not None:
                return _fail(said)
            traceback.print_exc()  # a bug: nothing is hidden, and no exit code of ours is borrowed
            return BUG


def application(wanted: str | None = None, given: Sequence[str] | None = None) -> typer.Typer:
    """The typer application, with the settings of the families and methods there are now.

    Where ``wanted`` is a command, it is the only one, unless a shell completes words: all of them take 40 ms. Only
    that command gets its settings (``None``: no command does), and only if one of the words ``given`` after it may be
    one of them (``None``: it may): finding them imports the families.
    """
    is_alone = wanted in _COMMANDS and not completion.is_asked()
    app = typer.Typer(
        cls=_FirstPage,
        add_completion=not is_alone,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help=first_page.ABOUT,
    )
    app.callback(no_args_is_help=True)(_general)
    for name, command in _COMMANDS.items():
        if is_alone and name != wanted:
            continue
        offered = command.offered
        if offered is None:
            function = options.with_choices(command.function)
            cls: type[TyperCommand] = options.ReadingCommand
        else:
            function = options.with_choices(
                command.function,
                offered.taken if name == wanted else list,
                given,
                problem=offered.problem,
                require=offered.require,
                trainer=offered.trainer,
            )
            cls = options.help_class(offered.about, offered.pointer.format(name), offered.panels)
        examples = (f"  {line}" for line in EXAMPLES if line.startswith(f"planner {name} "))
        app.command(name, epilog="\n".join(("Examples:", *examples)), cls=cls)(function)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"planner {versions()['dnn-planner']}")
        raise typer.Exit


def _general(
    _: Annotated[bool, flag("--version", "Show the version and exit.", is_eager=True, callback=_show_version)] = False,
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
    trainer: bool = False
    panels: Mapping[str, str] = field(default_factory=dict)


#: The options of ``solve`` by what they are about; all others are about the result.
_PANELS_OF_SOLVE = {
    "The instance": ("devices", "memory", "problem", "require", "minimise", "trainer", "inputs"),
    "The search": (
        *("exact", "method", "portfolio", "compare", "plan", "time_limit", "gap", "seed", "threads", "solver"),
    ),
}
_SETTINGS = _Offered(choices.every_setting, options.of_instances(), trainer=True)
_SOURCES = replace(_SETTINGS, about=options.of_sources(), trainer=False)
_OVERRIDES = _Offered(choices.every_override, options.of_instances(methods=False), trainer=True)


@dataclass(frozen=True)
class _Command:
    """What runs, and the settings that it takes."""

    function: options.Command
    offered: _Offered | None = None


_FROM_CATALOG = _Offered(
    choices.every_parameter, options.of_entry, "Parameters of an instance: planner {} NAME --help."
)
_OF_CLAIMS = _Offered(options.of_claim, options.of_claim, "Options of a claim: planner {} CLAIM --help.", False, False)
_OF_METHODS = _Offered(
    choices.every_option, options.of_methods, "Options of methods: planner {} METHOD --help.", False, False
)
_AS_DECLARED = replace(_OVERRIDES, require=False, trainer=False)
#: What `first_page.PANELS` lists, in its order.
_COMMANDS: dict[str, _Command] = {
    "solve": _Command(
        solve_command,
        replace(
            _SETTINGS,
            pointer="Of a problem: planner {} INSTANCE --help, planner sweep --microbatch-sizes.",
            panels={name: panel for panel, names in _PANELS_OF_SOLVE.items() for name in names},
        ),
    ),
    "crosscheck": _Command(crosscheck_command, _SOURCES),
    "check": _Command(check_command, _OVERRIDES),
    "list": _Command(list_command, replace(_OVERRIDES, about=options.of_listed, trainer=False)),
    "make": _Command(make_command, _FROM_CATALOG),
    "explain": _Command(explain_command, _OVERRIDES),
    "sensitivity": _Command(sensitivity_command, _OVERRIDES),
    "alternatives": _Command(alternatives_command, _SETTINGS),
    "sweep": _Command(sweep_command, _SETTINGS),
    "frontier": _Command(frontier_command, _AS_DECLARED),
    "diff": _Command(diff_command, _OVERRIDES),
    "report": _Command(report_command, _SETTINGS),
    "validate": _Command(validate_command, _SOURCES),
    "mine": _Command(mine_command, _OF_METHODS),
    "census": _Command(census_command, _AS_DECLARED),
    "extract": _Command(
        extract_command, replace(_AS_DECLARED, about=options.of_instances(methods=False, reads_as=False))
    ),
    "bench": _Command(bench_command, _SOURCES),
    "library": _Command(library_command),
    "model": _Command(model_command, _OVERRIDES),
    "formulations": _Command(formulations_command, _OVERRIDES),
    "schema": _Command(schema_command),
    "certify": _Command(certify_command, _SETTINGS),
    "verify": _Command(verify_command, _OVERRIDES),
    "checker": _Command(checker_command),
    "import": _Command(import_command),
    "convert": _Command(convert_command),
    "profile": _Command(profile_command),
    "calibrate": _Command(calibrate_command),
    "export": _Command(export_command, _OVERRIDES),
    "run": _Command(run_command, _OVERRIDES),
    "fidelity": _Command(fidelity_command),
    "reproduce": _Command(reproduce_command, _OF_CLAIMS),
    "doctor": _Command(doctor_command),
}


class _FirstPage(options.Reading, TyperGroup):
    """The group of all commands, whose help is one screen: a line for each command, by what it is for."""

    def format_help(self, ctx: Any, _formatter: Any) -> None:
        """Print it."""
        typer.echo(first_page.text(ctx.command_path, partial(typer.style, bold=True)))


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
