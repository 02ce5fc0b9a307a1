"""What the commands share: the options that mean the same everywhere, exit codes, limits and warnings."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer

from planner.cli import completion
from planner.cli.completion import entries
from planner.cli.declared import argument, flag, option
from planner.files.load import family_of, load
from planner.files.write import write_atomically
from planner.process.errors import UsageError
from planner.results.result import Result
from solvers.outcome import DEFAULT_SOLVER, OPTIMAL_GAP, Limits, Status

#: The heading of options that the help of an instance shows, and the general one does not.
SOLVERS = "Options of solvers"


def _of_solvers(metavar: str, text: str) -> Any:
    return option(metavar, text, hidden=True, show_default=False, rich_help_panel=SOLVERS)


BAD_INPUT, NO_PROOF, INFEASIBLE, CONTRADICTION = 2, 3, 4, 5

Instance = Annotated[str, argument("INSTANCE", "file, catalog name, or - for stdin", complete=entries)]
Json = Annotated[bool, flag("--json", "print one JSON object")]
Quiet = Annotated[bool, flag("--quiet", "no progress line, no warnings")]
TimeLimit = Annotated[float | None, option("SECONDS", "wall time of each method")]
ProofsTime = Annotated[float | None, option("SECONDS", "wall time of all proofs together")]
Gap = Annotated[float, option("G", "stop at this gap")]
Seed = Annotated[int, option("N", "seed of the solvers")]
Threads = Annotated[int, option("N", "threads of a search")]
Solver = Annotated[str, _of_solvers("NAME", "runs MILPs: planner doctor lists them")]
SolverOption = Annotated[list[str] | None, _of_solvers("KEY=VALUE", "an option of the solver; may be repeated")]
SolverLog = Annotated[str | None, _of_solvers("FILE", "write what the solver prints")]
Out = Annotated[str | None, option("FILE", "where to write it (default: stdout)")]
Events = Annotated[str | None, option("FILE.jsonl", "log every improvement")]
Inputs = Annotated[str | None, option("DIR", "folder of published inputs")]
Reproducers = Annotated[str, option("DIR", "for contradictions (reproducers)", "--reproducer-dir", show_default=False)]
Certify = Annotated[str | None, option("DIR", "write certificates of what is proved", "--certify")]
Methods = Annotated[
    str | None, option("A,B,...", "names, FILE.py:FUNCTION; default: all that fit", complete=completion.methods)
]
Jobs = Annotated[int, option("N", "local processes", min=1)]
Dask = Annotated[str | None, option("ADDRESS", "scheduler, as tcp://host:8786")]
Count = Annotated[int | None, option("N", "only so many of each source", min=1)]
#: Of commands that also place operators on a network.
Topology = Annotated[
    str | None,
    option(
        "KIND|FILE",
        "place the stages on this network as well",
        "--topology",
        hidden=True,
        rich_help_panel="Options of operator_partitioning",
    ),
]
Method = Annotated[
    str, option("NAME", "of planner list, or FILE.py:FUNCTION", complete=completion.methods, show_default=False)
]
Plans = Annotated[list[str] | None, option("NAME=PLAN.json", "enter a plan from elsewhere", "--plan")]


def leave(signal: int | None, code: int = 0) -> NoReturn:
    """End the command with an exit code, or with that of a signal that came."""
    raise typer.Exit(128 + signal if signal else code)


def share_of(
    option: str, text: str, rule: str, is_kept: Callable[[float], bool] = lambda share: 0 <= share < math.inf
) -> float:
    """A share as it is typed, ``5%`` or ``0.05``; `UsageError` for what is none, or breaks the option's rule."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if not is_kept(share):
        raise UsageError.at(option, text, rule)
    return share


def deliver(text: str, out: str | None) -> None:
    """Write a text to a file, or (``None``) print it."""
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text)


def exit_code(result: Result, exact: bool, limits: Limits) -> int:
    """The exit code of ``solve``."""
    if result.signal:
        return 128 + result.signal
    status = result.status if result.own is None else Status(str(result.own["status"]))
    if status is Status.INFEASIBLE:
        return INFEASIBLE
    close_enough = status is Status.OPTIMAL or (result.gap is not None and result.gap <= limits.gap)
    proof_wanted = exact or "solver_aborts" in result.stats
    if status is Status.UNKNOWN or (proof_wanted and not close_enough):
        return NO_PROOF
    return 0


@dataclass(frozen=True)
class Group:
    """A parameter of a command that stands for several options: its fields that are declared as options."""


@dataclass(frozen=True)
class View(Group):
    """How a command shows what it finds: as an object, or as a person reads it."""

    json: Json = False

    def show(self, found: Any, as_table: Callable[[Any], None]) -> None:
        """Print what was found, or its JSON object that is there already."""
        from planner.display.tables import print_json

        if self.json:
            print_json(found if isinstance(found, Mapping) else found.to_json())
        else:
            as_table(found)


@dataclass(frozen=True)
class Notes(View):
    """The same of a command that has more to say than what it finds."""

    quiet: Quiet = False

    def note(self, line: str) -> None:
        """Show a line on stderr that a person should read."""
        from planner.display.progress import note

        note(self.quiet, line)


@dataclass(frozen=True)
class Reading(Notes):
    """The same of a command that reads instances."""

    inputs: Inputs = None

    def load(self, name: str, settings: Mapping[str, Any], topology: str | None = None) -> Any:
        """As `load_instance`, with the instance's warnings on stderr."""
        found = load_instance(name, settings, self.inputs, topology)
        warn(found, self.quiet)
        return found


#: Where the command line says nothing of it.
VIEW, NOTES, READING = View(), Notes(), Reading()


@dataclass(frozen=True)
class Search(Group):
    """How long and how closely a solver searches, and which."""

    time_limit: TimeLimit = None
    gap: Gap = OPTIMAL_GAP
    seed: Seed = 0
    threads: Threads = 1
    solver: Solver = DEFAULT_SOLVER
    solver_option: SolverOption = None
    solver_log: SolverLog = None

    def limits(self) -> Limits:
        """The limits that were given; an infinite time is none. The solver's log, if one is wanted, is emptied."""
        time_s, options = None if self.time_limit == math.inf else self.time_limit, self.solver_option or ()
        if self.solver_log is not None:
            write_atomically(self.solver_log, "", "--solver-log")
        pairs = tuple(map(_pair, options))
        return Limits(time_s, self.gap, self.seed, self.threads, self.solver, pairs, self.solver_log)


def _pair(option: str) -> tuple[str, str]:
    name, separator, value = option.partition("=")
    if not (name and separator):
        raise UsageError.at("--solver-option", option, "KEY=VALUE")
    return name, value


def names_of(text: str | None) -> list[str] | None:
    """Names between commas."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def plans_of(given: list[str] | None) -> dict[str, str]:
    """Files of plans by their names; `UsageError` for what is not ``NAME=FILE``, or a name that was given before."""
    found: dict[str, str] = {}
    for each in given or ():
        name, sign, file = each.partition("=")
        if not name or not sign or not file or name in found:
            raise UsageError.at("--plan", each, "NAME=PLAN.json, each name once")
        found[name] = file
    return found


def load_instance(name: str, settings: Mapping[str, Any], inputs: str | None, topology: str | None = None) -> Any:
    """The instance, on the devices of a network if one is named."""
    if topology is None:
        return load(name, inputs=inputs, **settings)
    from planner.analysis.with_topology import load_placed

    return load_placed(name, topology, inputs=inputs, overrides=settings)


def warn(instance: Any, quiet: bool) -> None:
    """Print an instance's warnings on stderr."""
    from planner.display.progress import note

    for warning in family_of(instance).warnings(instance):
        note(quiet, f"warning: {warning}")
