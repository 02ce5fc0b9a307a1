"""The commands on the subproblems that arise inside a run: ``extract`` and ``census``."""

from typing import Annotated, Any

import typer

from planner.cli.common import (
    CONTRADICTION,
    READING,
    Dask,
    Instance,
    Jobs,
    Reading,
    Search,
    Topology,
    leave,
    load_instance,
)
from planner.process.errors import UsageError

Seed = Annotated[int, typer.Option(metavar="S", help="seed of the run and of the random sample")]
Problem = Annotated[
    str | None, typer.Option("--problem", metavar="FAMILY", help="which subproblems (default: the first kind)")
]
From = Annotated[str | None, typer.Option("--from", metavar="METHOD", help="in whose run they arise")]


def extract_command(
    instance: Instance,
    out: Annotated[str, typer.Option(metavar="FILE", help=".parquet (needs pyarrow) or .jsonl")],
    problem: Problem = None,
    method: From = None,
    sample: Annotated[int | None, typer.Option(metavar="N", min=0, help="a random sample (default: all)")] = None,
    seed: Seed = 0,
    nontrivial: Annotated[
        bool, typer.Option("--nontrivial", metavar="", help="knapsacks: only where memory forces a choice")
    ] = False,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", help="of the run in which they arise")] = 60.0,
    topology: Topology = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Write the subproblems of a planner's run to a file, one to a row (FILE#ROW is an INSTANCE)."""
    from planner.experiments.census.extract import extract, inside_of
    from planner.files.destinations import refuse_overwriting

    refuse_overwriting(out, instance, *([] if topology is None else [topology]))
    walked = load_instance(instance, settings, view.inputs, topology)
    inside = inside_of(walked, problem, method)
    limits = Search(time_limit, seed=seed).limits()
    rows = extract(
        walked, out, problem=inside.problem, method=inside.method, sample=sample, seed=seed, nontrivial=nontrivial,
        limits=limits,
    )  # fmt: skip
    found = {"problem": inside.problem, "method": inside.method, "instance": walked.name, "out": out, "rows": rows}
    view.show(found, lambda _: view.note(f"{rows} instances in {out}"))


def census_command(
    instance: Instance,
    problem: Problem = None,
    method: From = None,
    against: Annotated[str | None, typer.Option(metavar="METHOD", help="exact method (all but knapsacks)")] = None,
    jobs: Jobs = 1,
    dask: Dask = None,
    sample: Annotated[int | None, typer.Option(metavar="N", min=0, help="only so many (all but knapsacks)")] = None,
    crosscheck: Annotated[int, typer.Option(metavar="M", min=0, help="knapsacks: M again, CP-SAT and HiGHS")] = 0,
    seed: Seed = 0,
    end_to_end: Annotated[bool, typer.Option(metavar="", help="what it does to the whole plan, too")] = True,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", help="of each method that is run")] = 60.0,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="folder of results (default: census/...)")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", metavar="", help="knapsacks: recompute the chunks")] = False,
    topology: Topology = None,
    view: Reading = READING,
    **settings: Any,
) -> None:
    """Solve every subproblem of a planner's run exactly and compare what was chosen inside."""
    from planner.display.census import show_census
    from planner.display.progress import progress_bar
    from planner.experiments.census import census
    from planner.experiments.census.extract import inside_of
    from planner.process.signals import defer

    limits = Search(time_limit, seed=seed).limits()
    declared = view.load(instance, settings, topology)
    inside = inside_of(declared, problem, method)
    with defer():
        with progress_bar(view.quiet, "chunks" if inside.walk else "instances") as listen:
            found = census(
                declared, problem=inside.problem, method=inside.method, against=against, jobs=jobs, dask=dask,
                sample=sample, crosscheck=crosscheck, seed=seed, end_to_end=end_to_end, limits=limits, out=out,
                fresh=fresh, listen=listen, notice=view.note,
            )  # fmt: skip
        view.show(found, show_census)
    if found.signal:
        view.note(f"{found.progress} in {found.out}; the same command resumes")
    if not found.agree:
        raise typer.Exit(CONTRADICTION)
    if found.lost:
        raise UsageError(f"{found.lost}; {found.progress} in {found.out}")
    if found.unwritten:
        more = f" (and {len(found.unwritten) - 1} more files)" if len(found.unwritten) > 1 else ""
        raise UsageError(found.unwritten[0] + more)
    leave(found.signal)
