"""A census: every subproblem that arises in a run is solved exactly, and compared with what was chosen inside.

Piper's knapsacks, of which there are millions, are counted in compiled loops (`knapsacks`), all others one by one
(`census_of_rows`). What is known lies in a folder, so that a census that was killed goes on where it was; the totals do
not depend on who solved what.

Source: Piper, Appendix C.
"""

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from planner.experiments.census.census_of_rows import Rows
from planner.experiments.census.extract import inside_of
from planner.experiments.census.knapsacks import Knapsacks
from planner.experiments.census.totals import Census
from planner.files.load import validate
from planner.process.errors import UsageError
from planner.process.executors import Ended, Opened, place, run_tasks
from planner.solving.solve import silent
from solvers.outcome import Limits


def census(
    instance: Any,
    *,
    problem: str | None = None,
    method: str | None = None,
    against: str | None = None,
    jobs: int = 1,
    dask: str | None = None,
    sample: int | None = None,
    crosscheck: int = 0,
    seed: int = 0,
    end_to_end: bool = True,
    limits: Limits | None = None,
    out: str | None = None,
    fresh: bool = False,
    listen: Callable[[int, int], None] = lambda _done, _all: None,
    notice: Callable[[str], None] = silent,
) -> Census:
    """Solve the subproblems of a run on ``instance`` exactly, and compare them with what was chosen inside.

    Parameters
    ----------
    problem, method
        The family of the subproblems, and the method in whose run they arise (`inside_of`).
    against
        All but knapsacks: the exact method that finds the optima; default: the one that fits.
    jobs, dask
        Local processes, or the address of a dask scheduler.
    sample
        All but knapsacks: that many of the subproblems at random; ``None``: all.
    crosscheck
        Knapsacks: that many random non-trivial ones are solved again by their exact, CP-SAT and MILP methods.
    seed
        Of what is random, and of the methods.
    end_to_end
        Also run the method as it is, and with the subproblems solved exactly; beside knapsacks the exact method.
    limits
        Of the run, of each exact method and of each method end to end; default: a minute.
    out
        Folder of what is known and of the worst subproblems; default: ``census/NAME-FINGERPRINT`` for knapsacks,
        ``census/NAME-PROBLEM-METHOD`` for others.
    fresh
        Knapsacks: what lies in the folder is computed again.
    listen
        Called with how much is known and of how much: chunks of knapsacks, optima of others.

    Raises
    ------
    UsageError
        If there are no such subproblems or too many, the method does not take the instance, an option is not of these
        subproblems, or ``out`` holds something else.
    CrosscheckError
        If what was chosen inside is no plan of its subproblem.
    """
    instance = validate(instance, requirements=False)
    inside = inside_of(instance, problem, method)
    rows_alone = {"--sample": sample, "--against": against}
    knapsacks_alone = {"--crosscheck": crosscheck or None, "--fresh": fresh or None}
    for flag, given in (rows_alone if inside.walk else knapsacks_alone).items():
        if given is not None:
            raise UsageError.at(flag, given, f"left out: it is not of the subproblems of {inside.problem}")
    opened, limits = place(jobs, dask), replace(limits or Limits(time_s=60.0), seed=seed)
    counted: Knapsacks | Rows
    if inside.walk:
        counted = Knapsacks(instance, inside, crosscheck, limits, out, fresh, notice)
    else:
        counted = Rows(instance, inside, against, limits, sample, out, notice)
    found: Census = counted.sum_up(_fill(opened, counted, listen, notice))
    if end_to_end and not (found.signal or found.lost):
        found.end_to_end, found.signal = counted.end_to_end(limits)
    found.unwritten = list(dict.fromkeys(counted.failures))
    return found


def _fill(
    opened: Opened, counted: Knapsacks | Rows, listen: Callable[[int, int], None], notice: Callable[[str], None]
) -> Ended:
    """Do what is left; Ctrl-C ends it with what is known by then."""
    left: list[Any] = list(counted.left)
    done = counted.total - len(left)
    if done:
        notice(f"{done} of {counted.total} {counted.units} lie in {counted.path} already")
    listen(done, counted.total)

    def keep(position: int, result: Any) -> int | None:
        nonlocal done
        stopped = counted.keep(left[position], result)
        if stopped is None:
            done += 1
            listen(done, counted.total)
        return stopped

    try:
        return run_tasks(opened, counted.work, counted.left.values(), keep)
    except KeyboardInterrupt:
        return Ended(signal.SIGINT)
    except SystemExit as stop:
        return Ended(int(stop.code or 0) - 128)
