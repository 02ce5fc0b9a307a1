"""The commands on certificates: ``certify``, ``verify`` and ``checker``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from planner.cli import completion
from planner.cli.common import (
    NO_PROOF,
    Inputs,
    Instance,
    Json,
    Out,
    Quiet,
    Seed,
    Threads,
    TimeLimit,
    deliver,
    leave,
    limits_of,
    loaded,
)
from planner.files.choices import split
from planner.process.errors import UsageError


def certify_command(
    instance: Instance,
    out: Annotated[str, typer.Option(metavar="FILE", help="the certificate")],
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="default: an exact one", autocompletion=completion.methods)
    ] = None,
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    threads: Threads = 1,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Solve, and write a certificate of the bound; exit 3 if there is none."""
    from planner.display.progress import note, progress_line
    from planner.display.tables import print_json, show_result
    from planner.files.destinations import refuse_overwriting
    from planner.files.load import family_of
    from planner.files.write import write_atomically
    from planner.process.signals import defer
    from planner.solving.certify import certify
    from planner.solving.solve import solve

    limits = limits_of(time_limit, seed=seed, threads=threads)
    refuse_overwriting(out, instance)
    overrides, given = split(settings)
    declared, notice = loaded(instance, overrides, inputs, quiet), partial(note, quiet)
    how: dict[str, Any] = {"method": method, "exact": method is None, "limits": limits, "options": given}
    with defer():
        with progress_line(quiet) as listen:
            solved = solve(declared, listen=listen, notice=notice, **how)
        found = certify(declared, solved, limits=limits, notice=notice)
        if json:
            print_json(found.result.to_json())
        else:
            show_result(found.result, family_of(declared).describe(declared))
        if found.content is not None:
            write_atomically(out, found.text)
    leave(solved.signal, NO_PROOF if found.content is None else 0)


def verify_command(
    instance: Instance,
    certificate: Annotated[str, typer.Argument(metavar="FILE", help="from certify, or solve --certificate")],
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Check a certificate with exact numbers and no solver; exit 1 if it is rejected."""
    from planner.display.tables import print_json, show_verification
    from planner.files.read import STANDARD
    from planner.solving.certify import read_certificate, verify

    if certificate == instance == STANDARD:
        raise UsageError.at("FILE", certificate, "a file: INSTANCE is standard input")
    declared = loaded(instance, settings, inputs, quiet)
    found = verify(declared, read_certificate(certificate), where=certificate)
    print_json(found.to_json()) if json else show_verification(found)
    raise typer.Exit(0 if found.accepted else 1)


def checker_command(
    problem: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="such as stage_partitioning", autocompletion=completion.problems)
    ],
    out: Out = None,
) -> None:
    """Print the checker of a problem's certificates as one file of Python's standard library."""
    from planner.files.destinations import refuse_outputs
    from planner.solving.certify import checker

    refuse_outputs({"--out": out})
    deliver(checker(problem), out)
