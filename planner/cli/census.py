"""The commands on knapsack subproblems: ``extract`` and ``census``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.common import CONTRADICTION, Inputs, Instance, Json, Quiet, limits_of
from planner.errors import UsageError

Seed = Annotated[int, typer.Option(metavar="S", help="seed of the random sample")]


def extract_command(
    instance: Instance,
    out: Annotated[str, typer.Option(metavar="FILE", help=".parquet (needs pyarrow) or .jsonl")],
    problem: Annotated[str, typer.Option(metavar="FAMILY", help="which subproblems")] = "tmpc_knapsack",
    sample: Annotated[int | None, typer.Option(metavar="N", min=0, help="a random sample (default: all)")] = None,
    seed: Seed = 0,
    nontrivial: Annotated[
        bool, typer.Option("--nontrivial", metavar="", help="only where memory forces a choice")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Write the knapsack subproblems of a Piper run to a file, one to a row (FILE#ROW is an INSTANCE)."""
    from planner.census.extract import extract
    from planner.inputs.destinations import refuse_overwriting
    from planner.inputs.loading import load
    from planner.show.progress import note
    from planner.show.tables import print_json

    refuse_overwriting(out, instance)
    loaded = load(instance, inputs=inputs, **settings)
    rows = extract(loaded, out, problem=problem, sample=sample, seed=seed, nontrivial=nontrivial)
    if json:
        print_json({"problem": problem, "instance": loaded.name, "out": out, "rows": rows})
    else:
        note(quiet, f"{rows} instances in {out}")


def census_command(
    instance: Instance,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="local processes")] = 1,
    dask: Annotated[str | None, typer.Option(metavar="ADDRESS", help="scheduler, as tcp://host:8786")] = None,
    crosscheck: Annotated[int, typer.Option(metavar="M", min=0, help="solve M again with CP-SAT and HiGHS")] = 0,
    seed: Seed = 0,
    end_to_end: Annotated[bool, typer.Option(metavar="", help="Piper's plan against the optimum, too")] = True,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", help="of each end-to-end method")] = 60.0,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="folder of results (default: census/...)")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", metavar="", help="recompute the chunks that are there")] = False,
    json: Json = False,
    quiet: Quiet = False,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Solve every knapsack subproblem of a Piper run exactly and compare the variants of its heuristic."""
    from instances.stage_partitioning import StageInstance
    from planner.census.report import progress, show_census
    from planner.census.run import census
    from planner.inputs.loading import family_of, load
    from planner.show.progress import note
    from planner.show.tables import print_json
    from planner.signals import held
    from solvers.outcome import OPTIMAL_GAP

    limits = limits_of(time_limit, OPTIMAL_GAP, seed, 1)
    loaded = load(instance, inputs=inputs, **settings)
    if not isinstance(loaded, StageInstance):
        raise UsageError.at("INSTANCE", family_of(loaded).name, "an instance of stage_partitioning")
    for warning in loaded.warnings:
        note(quiet, f"warning: {warning}")
    with held():
        with progress(quiet) as listen:
            found = census(
                loaded,
                jobs=jobs,
                dask=dask,
                sample=crosscheck,
                seed=seed,
                end_to_end=end_to_end,
                limits=limits,
                out=out,
                fresh=fresh,
                listen=listen,
                notice=lambda line: note(quiet, line),
            )
        if json:
            print_json(found.to_json())
        else:
            show_census(found)
    if found.signal:
        note(quiet, f"{found.chunks_done} of {found.chunks} chunks lie in {found.out}; the same command resumes")
    if not found.agree:
        raise typer.Exit(CONTRADICTION)
    if found.unwritten:
        more = f" (and {len(found.unwritten) - 1} more files)" if len(found.unwritten) > 1 else ""
        raise UsageError(found.unwritten[0] + more)
    raise typer.Exit(128 + found.signal if found.signal else 0)
