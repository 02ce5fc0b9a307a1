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
from planner.cli.declared import flag, option
from planner.process.errors import UsageError

Seed = Annotated[int, option("S", "seed of the run and of the random sample")]
Problem = Annotated[str | None, option("FAMILY", "which subproblems (default: the first kind)", "--problem")]
From = Annotated[str | None, option("METHOD", "in whose run they arise", "--from")]


def extract_command(
    instance: Instance,
    out: Annotated[str, option("FILE", ".parquet (needs pyarrow) or .jsonl")],
    problem: Problem = None,
    method: From = None,
    sample: Annotated[int | None, option("N", "a random sample (default: all)", min=0)] = None,
    seed: Seed = 0,
    nontrivial: Annotated[bool, flag("--nontrivial", "knapsacks: only where memory forces a choice")] = False,
    time_limit: Annotated[float, option("SECONDS", "of the run in which they arise")] = 60.0,
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
    against: Annotated[str | None, option("METHOD", "exact method (all but knapsacks)")] = None,
    jobs: Jobs = 1,
    dask: Dask = None,
    sample: Annotated[int | None, option("N", "only so many (all but knapsacks)", min=0)] = None,
    crosscheck: Annotated[int, option("M", "knapsacks: M again, CP-SAT and HiGHS", min=0)] = 0,
    seed: Seed = 0,
    end_to_end: Annotated[bool, option("", "what it does to the whole plan, too")] = True,
    time_limit: Annotated[float, option("SECONDS", "of each method that is run")] = 60.0,
    out: Annotated[str | None, option("DIR", "folder of results (default: census/...)")] = None,
    fresh: Annotated[bool, flag("--fresh", "knapsacks: recompute the chunks")] = False,
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
