"""The commands on certificates: ``certify``, ``verify`` and ``checker``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli import completion
from planner.cli.common import (
    NO_PROOF,
    Inputs,
    Instance,
    Json,
    Quiet,
    Seed,
    Threads,
    TimeLimit,
    limits_of,
    warn,
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
    from planner.files.load import family_of, load
    from planner.files.write import write_atomically
    from planner.process.signals import defer
    from planner.solving.certify import certify
    from planner.solving.solve import solve

    limits = limits_of(time_limit, seed=seed, threads=threads)
    refuse_overwriting(out, instance)
    overrides, given = split(settings)
    loaded = load(instance, inputs=inputs, **overrides)
    warn(loaded, quiet)

    def notice(line: str) -> None:
        note(quiet, line)

    with defer():
        with progress_line(quiet) as listen:
            solved = solve(
                loaded,
                method=method,
                exact=method is None,
                limits=limits,
                options=given,
                listen=listen,
                notice=notice,
            )
        found = certify(loaded, solved, limits=limits, notice=notice)
        if json:
            print_json(found.result.to_json())
        else:
            show_result(found.result, family_of(loaded).describe(loaded))
        if found.content is not None:
            write_atomically(out, found.text)
    if solved.signal:
        raise typer.Exit(128 + solved.signal)
    raise typer.Exit(NO_PROOF if found.content is None else 0)


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
    from planner.files.load import load
    from planner.files.read import STANDARD
    from planner.solving.certify import read_certificate, verify

    if certificate == instance == STANDARD:
        raise UsageError.at("FILE", certificate, "a file: INSTANCE is standard input")
    loaded = load(instance, inputs=inputs, **settings)
    warn(loaded, quiet)
    found = verify(loaded, read_certificate(certificate), where=certificate)
    print_json(found.to_json()) if json else show_verification(found)
    raise typer.Exit(0 if found.accepted else 1)


def checker_command(
    problem: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="such as stage_partitioning", autocompletion=completion.problems)
    ],
    out: Annotated[str | None, typer.Option(metavar="FILE", help="where to write it (default: stdout)")] = None,
) -> None:
    """Print the checker of a problem's certificates as one file of Python's standard library."""
    from planner.files.destinations import refuse_outputs
    from planner.files.write import write_atomically
    from planner.solving.certify import checker

    refuse_outputs({"--out": out})
    text = checker(problem)
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text)
