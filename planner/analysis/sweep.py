"""The sweep over gradient accumulation g and micro-batch size b' of Piper's Appendix A.

A batch of at most B' sequences is g * s * b' of them, s being the sum of data-parallel degrees; so for every (g, b')
the sum is bounded by N = B' / (g b'), rounded down, and the layers are profiled at b'. Plans of different b' are
compared by time per sequence: time per sample over b'.

That is all that g does in the paper: a stage's weights are synchronised every d micro-batches whatever g is, so with
its cost model a larger g is never faster. The table shows what it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import formulations
from formulations.compiled.compile_times import compiling
from formulations.figures.plan_figures import Heat, least_of
from instances.parameters import MAX_COUNT, parse_count
from planner.analysis.orders import union
from planner.files import settings
from planner.files.load import catalog, family_of, load
from planner.process.errors import UsageError
from planner.process.executors import place, run_tasks
from planner.process.signals import defer, end_if_pending
from planner.results.result import Result
from planner.solving.solve import silent, solve
from solvers.outcome import Limits, Status

_SIZE = "{b}"


@dataclass(frozen=True)
class SweepRow:
    """One (g, b') and what was found for it; ``time_per_sequence`` is the objective over b'."""

    grad_accum: int
    microbatch_size: int
    microbatches: int
    status: str
    objective: float | None
    time_per_sequence: float | None
    gap: float | None
    seconds: float


def parse_counts(name: str, text: str | Sequence[int]) -> list[int]:
    """``"1,2,4"`` or a sequence as positive integers; `UsageError` that names the option otherwise."""
    parts = text.split(",") if isinstance(text, str) else list(text)
    try:
        return list(dict.fromkeys(parse_count(part.strip() if isinstance(part, str) else part) for part in parts))
    except ValueError:
        raise UsageError.at(name, text, f"integers from 1 to {MAX_COUNT}, such as 1,2,4") from None


def sweep(
    name: str,
    batch_size: int,
    grad_accum: Sequence[int] = (1,),
    microbatch_sizes: Sequence[int] = (1,),
    *,
    inputs: str | None = None,
    overrides: dict[str, Any] | None = None,
    limits: Limits | None = None,
    jobs: int = 1,
    dask: str | None = None,
    notice: Callable[[str], None] = silent,
    **arguments: Any,
) -> tuple[Result, Any, list[SweepRow]]:
    """Solve an instance for every (g, b').

    Parameters
    ----------
    name
        A catalog entry that takes a micro-batch size, or files whose name has ``{b}`` where b' stands; any other
        instance is a profile at the one micro-batch size given.
    overrides
        As for `planner.load`, but for the number of micro-batches.
    limits
        The time is shared: a combination gets what the ones before it left. Of several at once each has all of it.
    jobs, dask
        Local processes, or the address of a dask scheduler, for several combinations at once; then nobody listens.
    notice
        Called once with each warning of the instances, and when kernels are being compiled.
    **arguments
        As for `planner.solve`.

    Returns
    -------
    tuple
        The result of least time per sequence, its instance, the rows. Bound, gap and status of the result are those
        of the whole sweep (in its own time per sample); its ``stats["sweep"]`` has all rows. A combination with
        g b' > B' is left out.

    Raises
    ------
    UsageError
        If no combination fits the batch, or a batch has too many micro-batches; if ``microbatches`` or
        ``microbatch_size`` is given, there is no profile for a b', or the instance is of another problem than Piper's.
    """
    given = dict(overrides or {})
    for setting, sets in (("microbatches", "--batch-size"), ("microbatch_size", "--microbatch-sizes")):
        if given.get(setting) is not None:
            raise UsageError.at(f"--{setting.replace('_', '-')}", given[setting], f"nothing: {sets} sets it")
    fitting = [(g, b) for b in microbatch_sizes for g in grad_accum if g * b <= batch_size]
    if not fitting:
        raise UsageError.at("--batch-size", batch_size, "at least one --grad-accum times --microbatch-sizes")
    least = min(g * b for g, b in fitting)
    if batch_size // least > MAX_COUNT:
        rule = f"at most {(MAX_COUNT + 1) * least - 1}: {MAX_COUNT} micro-batches of {least} sequences"
        raise UsageError.at("--batch-size", batch_size, rule)
    limits = left = limits or Limits()
    opened, alone = place(jobs, dask), jobs == 1 and dask is None
    if not alone:
        arguments.pop("listen", None)
    several = len(set(microbatch_sizes)) > 1
    instances: list[Any] = []
    tried: dict[int, _Tried] = {}

    def tasks() -> Iterator[tuple[Any, Limits, dict[str, Any]]]:
        for instance in _instances(name, fitting, several, batch_size, inputs, given, notice):
            instances.append(instance)
            yield instance, left if alone else limits, arguments

    def keep(position: int, result: Result) -> int | None:
        nonlocal left
        g, b = fitting[position]
        time = None if result.objective is None else result.objective / b
        count = batch_size // (g * b)
        row = SweepRow(g, b, count, str(result.status), result.objective, time, result.gap, result.seconds)
        tried[position] = _Tried(row, result, instances[position])
        if left.time_s is not None:
            left = replace(left, time_s=max(0.0, left.time_s - result.seconds))
        return result.signal

    with compiling(notice):
        lost = run_tasks(opened, _solve_one, tasks(), keep).lost
    if not tried:
        end_if_pending()
    if lost and not tried:
        raise UsageError(lost)
    if lost:
        notice(f"warning: {lost}; {len(tried)} of {len(fitting)} combinations were solved")
    every = [tried[position] for position in sorted(tried)]
    # Without any plan, a result that is still open stands for the sweep.
    best = min(every, key=lambda one: (time_per_sequence(one.row), one.result.status is Status.INFEASIBLE))
    result = _unite(best, every, whole=len(every) == len(fitting))
    return (
        replace(result, options={**result.options, "batch-size": batch_size}),
        best.instance,
        [one.row for one in every],
    )


def _instances(
    name: str,
    fitting: Sequence[tuple[int, int]],
    several: bool,
    batch_size: int,
    inputs: str | None,
    given: dict[str, Any],
    notice: Callable[[str], None],
) -> Iterator[Any]:
    """The instance of every (g, b'), each warning once; errors as of `sweep`."""
    warned: set[str] = set()
    profiles: dict[int, Any] = {}
    for g, b in fitting:
        if b not in profiles:
            taken = _profile(name, b, several)
            profiles[b] = load(name.replace(_SIZE, str(b)), inputs=inputs, **given, **taken)
        family = family_of(profiles[b])
        if not family.sweepable:
            sweepable = ", ".join(family.name for family in formulations.FAMILIES if family.sweepable)
            raise UsageError.at("--batch-size", batch_size, f"an instance of {sweepable}")
        count = batch_size // (g * b)
        instance = family.read(profiles[b], name, settings.parse(family.overrides, {"microbatches": count}))
        for warning in family.warnings(instance):
            if warning not in warned:
                warned.add(warning)
                notice(f"warning: {warning}")
        yield instance


def _solve_one(instance: Any, limits: Limits, arguments: dict[str, Any]) -> Result:
    with defer():
        return solve(instance, limits=limits, **arguments)


@dataclass(frozen=True)
class _Tried:
    row: SweepRow
    result: Result
    instance: Any

    def bound(self, size: int) -> float | None:
        """The result's bound, as time per sample of ``size`` sequences."""
        return None if self.result.bound is None else self.result.bound * size / self.row.microbatch_size


def _unite(best: _Tried, tried: Sequence[_Tried], *, whole: bool) -> Result:
    """The best result with bound, status, seconds and signal of all; ``whole``: all combinations ran."""
    row, every = best.row, [one.result for one in tried]
    where = f"least time per sequence at g = {row.grad_accum}, b' = {row.microbatch_size}"
    return union(
        best.result,
        every,
        [one.bound(row.microbatch_size) for one in tried if one.result.status is not Status.INFEASIBLE],
        is_whole=whole,
        reason="; ".join(part for part in (best.result.reason, where if row.objective is not None else "") if part),
        options={**best.result.options, "grad-accum": row.grad_accum, "microbatch-sizes": row.microbatch_size},
        stats={**best.result.stats, "sweep": [vars(one.row) for one in tried]},
    )


def heat_of(rows: Sequence[SweepRow], unit: str) -> Heat:
    """Least time per sequence by g and b'; where a limit ended a search, the least that was found."""
    sizes, degrees = sorted({row.microbatch_size for row in rows}), sorted({row.grad_accum for row in rows})
    found = {(row.grad_accum, row.microbatch_size): row.time_per_sequence for row in rows}
    values = [[found.get((g, b)) for b in sizes] for g in degrees]
    return Heat(
        "Time per sequence by micro-batch and accumulation",
        sizes,
        degrees,
        values,
        "micro-batch size b'",
        "gradient accumulation g",
        "time per sequence" if all(is_proved(row) for row in rows) else "least time per sequence found",
        least_of(values),
        unit,
        empty="no plan within the batch",
    )


def is_proved(row: SweepRow) -> bool:
    """Whether nothing is open about a row."""
    return row.status in (Status.OPTIMAL, Status.INFEASIBLE)


def time_per_sequence(row: SweepRow) -> float:
    """What rows are ordered by; infinite without a plan."""
    return float("inf") if row.time_per_sequence is None else row.time_per_sequence


def _profile(name: str, size: int, several: bool) -> dict[str, Any]:
    """What makes `planner.load` give the profile at this micro-batch size."""
    entry = catalog().get(name)
    if entry is not None and any(parameter.name == "microbatch-size" for parameter in entry.parameters):
        return {"microbatch_size": size}
    if several and _SIZE not in name:
        rule = "one size for one profile; or a name with {b}, or a catalog model, for several"
        raise UsageError.at("--microbatch-sizes", size, rule)
    return {}
