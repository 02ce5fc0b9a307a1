"""The commands on certificates: ``certify``, ``verify`` and ``checker``."""

from typing import Annotated, Any

import typer

from planner.cli import completion
from planner.cli.common import (
    NO_PROOF,
    READING,
    Instance,
    Out,
    Reading,
    Search,
    Seed,
    Threads,
    TimeLimit,
    deliver,
    leave,
)
from planner.cli.declared import argument, option
from planner.display.terminal import say
from planner.files.choices import split
from planner.files.settings import as_typed
from planner.process.errors import UsageError


def certify_command(
    instance: Instance,
    out: Annotated[str, option("FILE", "the certificate")],
    method: Annotated[str | None, option("NAME", "default: an exact one", complete=completion.methods)] = None,
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    threads: Threads = 1,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Solve, and write a certificate of the bound; exit 3 if there is none."""
    import shlex

    from planner.display.progress import progress_line
    from planner.display.tables import show_result
    from planner.files.destinations import refuse_overwriting
    from planner.files.write import write_atomically
    from planner.process.signals import defer
    from planner.solving.certify import certify
    from planner.solving.solve import solve

    limits = Search(time_limit, seed=seed, threads=threads).limits()
    refuse_overwriting(out, instance)
    overrides, given = split(settings)
    declared = view.load(instance, overrides)
    how: dict[str, Any] = {"method": method, "exact": method is None, "limits": limits, "options": given}
    with defer():
        with progress_line(view.quiet) as listen:
            solved = solve(declared, listen=listen, notice=view.note, **how)
        found = certify(declared, solved, limits=limits, notice=view.note)
        view.show(found.result, show_result)
        if found.content is not None:
            write_atomically(out, found.text)
    if found.content is None:
        view.note(f"--out {out}: there is nothing to write: uncertified: {found.uncertified}")
    elif not view.json:
        where = [] if view.inputs is None else ["--inputs", view.inputs]
        say(f"written {out}; this checks it with exact numbers and no solver:")
        say(shlex.join(["planner", "verify", instance, out, *as_typed(overrides), *where]))
    leave(solved.signal, NO_PROOF if found.content is None else 0)


def verify_command(
    instance: Instance,
    certificate: Annotated[str, argument("FILE", "from certify, or solve --certificate")],
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Check a certificate with exact numbers and no solver; exit 1 if it is rejected."""
    from planner.files.read import STANDARD
    from planner.solving.certify import read_certificate, verify

    if certificate == instance == STANDARD:
        raise UsageError.at("FILE", certificate, "a file: INSTANCE is standard input")
    declared = view.load(instance, settings)
    found = verify(declared, read_certificate(certificate), where=certificate)
    view.show(found, lambda verdict: say(str(verdict)))
    raise typer.Exit(0 if found.accepted else 1)


def checker_command(
    problem: Annotated[str, argument("PROBLEM", "such as stage_partitioning", complete=completion.problems)],
    out: Out = None,
) -> None:
    """Print the checker of a problem's certificates as one file of Python's standard library."""
    from planner.files.destinations import refuse_outputs
    from planner.solving.certify import checker

    refuse_outputs({"--out": out})
    deliver(checker(problem), out)
