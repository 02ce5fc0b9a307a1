"""Several variants of one instance as one result: the sweep of Piper's Appendix A, and several linear orders.

Appendix A sweeps over gradient accumulation g and micro-batch size b'. A batch of at most B' sequences is g * s * b' of
them, s being the sum of data-parallel degrees; so for every (g, b') the sum is bounded by N = B' / (g b'), rounded
down, and the layers are profiled at b'. Plans of different b' are compared by time per sequence: time per sample
over b'.

That is all that g does in the paper: a stage's weights are synchronised every d micro-batches whatever g is, so with
its cost model a larger g is never faster. The table shows what it costs.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import formulations
from formulations.compiled.compile_times import compiling
from formulations.contract.figures.plan_figures import Heat, least_of
from instances.parameters import MAX_COUNT, parse_count
from planner.files import settings
from planner.files.load import catalog, family_of, load
from planner.process.errors import UsageError
from planner.process.executors import place, run_tasks
from planner.process.signals import defer, end_if_pending
from planner.results.result import Result
from planner.solving.solve import silent, solve
from solvers.outcome import OPTIMAL_GAP, Limits, Status, Stop, relative_gap

#: What stands for the micro-batch size in the names of several files.
SIZE = "{b}"


@dataclass(frozen=True)
class SweepRow:
    """One (g, b') and what was found for it; ``time_per_sequence`` is the objective over its sequences.

    These are b', and N b' where the objective is the time of a batch.
    """

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

    ``name``: a catalog entry that takes a micro-batch size, or files whose name has ``{b}`` where b' stands; any other
    instance is a profile at the one micro-batch size given.
    ``overrides``: as for `planner.load`, but for the number of micro-batches.
    ``limits``: the time is shared: a combination gets what the ones before it left. Of several at once each has all of
    it.
    ``jobs``, ``dask``: local processes, or the address of a dask scheduler, for several combinations at once; then
    nobody listens.
    ``notice``: called once with each warning of the instances, and when kernels are being compiled.
    ``**arguments``: as for `planner.solve`.
    Returns: the result of least time per sequence, its instance, the rows. Bound, gap and status of the result are
    those of the whole sweep (in its own time per sample); its ``stats["sweep"]`` has all rows. A combination with g b'
    > B' is left out.
    `UsageError` if no combination fits the batch, or a batch has too many micro-batches; if ``microbatches`` or
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
    instances: list[Any] = []
    tried: dict[int, tuple[SweepRow, Result, Any]] = {}

    def tasks() -> Iterator[tuple[Any, Limits, dict[str, Any]]]:
        warned: set[str] = set()
        profiles: dict[int, Any] = {}
        for g, b in fitting:
            if b not in profiles:
                taken = _profile(name, b, microbatch_sizes)
                profiles[b] = load(name.replace(SIZE, str(b)), inputs=inputs, **given, **taken)
                _expect_profile(profiles[b], b, microbatch_sizes)
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
            instances.append(instance)
            yield instance, left if alone else limits, arguments

    def sequences(position: int) -> int:
        g, b = fitting[position]
        return b * (batch_size // (g * b)) if family_of(instances[position]).sweepable == "batch" else b

    def keep(position: int, result: Result) -> int | None:
        nonlocal left
        g, b = fitting[position]
        time = None if result.objective is None else result.objective / sequences(position)
        count = batch_size // (g * b)
        row = SweepRow(g, b, count, str(result.status), result.objective, time, result.gap, result.seconds)
        tried[position] = row, result, instances[position]
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
    rows, results, loaded = zip(*(tried[position] for position in sorted(tried)), strict=True)
    # Without any plan, a result that is still open stands for the sweep.
    best = min(range(len(rows)), key=lambda n: (time_per_sequence(rows[n]), results[n].status is Status.INFEASIBLE))
    row, result, sizes = rows[best], results[best], [sequences(position) for position in sorted(tried)]
    where = f"least time per sequence at g = {row.grad_accum}, b' = {row.microbatch_size}"
    # Bounds are of time per sample, of as many sequences as a micro-batch has, or of a batch.
    bounds = [
        each.bound and each.bound * sizes[best] / own
        for own, each in zip(sizes, results, strict=True)
        if each.status is not Status.INFEASIBLE
    ]
    settings_of = {"grad-accum": row.grad_accum, "microbatch-sizes": row.microbatch_size, "batch-size": batch_size}
    united = union(
        result,
        results,
        bounds,
        is_whole=len(rows) == len(fitting),
        reason="; ".join(part for part in (result.reason, where if row.objective is not None else "") if part),
        options={**result.options, **settings_of},
        stats={**result.stats, "sweep": [vars(each) for each in rows]},
    )
    return united, loaded[best], list(rows)


def _solve_one(instance: Any, limits: Limits, arguments: dict[str, Any]) -> Result:
    with defer():
        return solve(instance, limits=limits, **arguments)


def heat_of(rows: Sequence[SweepRow], unit: str) -> Heat:
    """Least time per sequence by g and b'; where a limit ended a search, the least that was found."""
    sizes, degrees = sorted({row.microbatch_size for row in rows}), sorted({row.grad_accum for row in rows})
    found = {(row.grad_accum, row.microbatch_size): row.time_per_sequence for row in rows}
    values = [[found.get((g, b)) for b in sizes] for g in degrees]
    is_proved = all(row.status in (Status.OPTIMAL, Status.INFEASIBLE) for row in rows)
    return Heat(
        "Time per sequence by micro-batch and accumulation",
        sizes,
        degrees,
        values,
        "micro-batch size b'",
        "gradient accumulation g",
        "time per sequence" if is_proved else "least time per sequence found",
        least_of(values),
        unit,
        empty="no plan within the batch",
    )


def time_per_sequence(row: SweepRow) -> float:
    """What rows are ordered by; infinite without a plan."""
    return float("inf") if row.time_per_sequence is None else row.time_per_sequence


def _profile(name: str, size: int, sizes: Sequence[int]) -> dict[str, Any]:
    """What makes `planner.load` give the profile at this micro-batch size."""
    entry = catalog().get(name)
    if entry is not None and any(parameter.name == "microbatch-size" for parameter in entry.parameters):
        return {"microbatch_size": size}
    if len(set(sizes)) > 1 and SIZE not in name:
        rule = (
            "one size, as this is one profile; for several a name with {b}, such as model_{b}.json, or a catalog model"
        )
        raise UsageError.at("--microbatch-sizes", _typed(sizes), rule)
    return {}


def _expect_profile(instance: Any, size: int, sizes: Sequence[int]) -> None:
    """`UsageError` if the instance records that it is a profile of other micro-batches."""
    own = instance.options.get("microbatch") if hasattr(instance, "options") else None
    if own not in (None, size):
        rule = f"{own} for {instance.name}, which was imported so (planner import --microbatch makes others)"
        raise UsageError.at("--microbatch-sizes", _typed(sizes), rule)


def _typed(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))


_SETTING = "linearize"
#: Figures of what would make an infeasible instance feasible.
_LEAST = ("least_memory_bytes", "fewest_devices")


def load_orders(path_or_name: str | os.PathLike[str], *, inputs: str | None = None, **overrides: Any) -> dict[str, Any]:
    """The instance once for every order that ``linearize`` names (separated by commas); else once, under ``""``.

    Arguments and errors are those of `planner.load`.
    """
    given = overrides.get(_SETTING)
    orders = [part.strip() for part in given.split(",")] if isinstance(given, str) and "," in given else []
    if not orders:
        return {"": load(path_or_name, inputs=inputs, **overrides)}
    return {order: load(path_or_name, inputs=inputs, **{**overrides, _SETTING: order}) for order in orders}


def solve_orders(
    instances: Mapping[str, Any],
    *,
    limits: Limits | None = None,
    notice: Callable[[str], None] = silent,
    **arguments: Any,
) -> Result:
    """The best result over the instances, one after the other within one time limit.

    The feasible set is the union of the orders' own: the least of the objectives counts, and the least bound holds.

    ``instances``: by the name of their order (`load_orders`); all of the same problem.
    ``limits``: the time is shared: an order gets what the ones before it left.
    ``notice``: as for `planner.solve`, once for all orders.
    ``**arguments``: as for `planner.solve`.
    Returns: the best order's, with bound, status, seconds and signal of all orders together; ``stats["orders"]`` has
    every order's objective. Infeasible if all orders are.
    """
    left = limits or Limits()
    results: dict[str, Result] = {}
    with compiling(notice):
        for name, instance in instances.items():
            result = solve(instance, limits=left, **arguments)
            results[name] = result
            if result.signal:
                break
            if left.time_s is not None:
                left = replace(left, time_s=max(0.0, left.time_s - result.seconds))
    every = list(results.values())
    if len(instances) == 1:
        return every[0]
    order, best = min(results.items(), key=lambda item: _height(item[1].objective))
    figures = _figures(every) if best.objective is None else {}
    return union(
        best,
        every,
        [result.bound for result in every if result.status is not Status.INFEASIBLE],
        is_whole=len(results) == len(instances),
        reason=_reason(results, order),
        options={**best.options, _SETTING: ",".join(results)},
        stats={**best.stats, **figures, "orders": {name: result.objective for name, result in results.items()}},
    )


def best_order(result: Result, instances: Mapping[str, Any]) -> str:
    """The name of the order that the result's plan is of; the first one where there is none."""
    objectives: Any = result.stats.get("orders", {})
    return min(objectives, key=lambda order: _height(objectives[order]), default=next(iter(instances)))


def union(
    best: Result, every: Sequence[Result], bounds: Sequence[float | None], *, is_whole: bool, **changes: Any
) -> Result:
    """The best result with bound, status, seconds and signal of all.

    ``bounds``: of the results that are not infeasible, in the best one's unit; ``None`` where there is none.
    ``is_whole``: whether all runs of the question are among them: else nothing is proved.
    ``changes``: other fields of the result.
    """
    known = [bound for bound in bounds if bound is not None]
    bound = min(known) if is_whole and known and len(known) == len(bounds) else None
    gap = relative_gap(best.objective, bound)
    if best.objective is not None:
        status = Status.OPTIMAL if gap is not None and gap <= OPTIMAL_GAP else Status.FEASIBLE
    else:
        proved = is_whole and all(result.status is Status.INFEASIBLE for result in every)
        status = Status.INFEASIBLE if proved else Status.UNKNOWN
    proved = status in (Status.OPTIMAL, Status.INFEASIBLE)
    signal = next((result.signal for result in every if result.signal), None)
    unproved = next((result.stop for result in every if result.stop is not Stop.PROVED), None)
    stop = unproved or (Stop.INTERRUPTED if signal else Stop.COMPLETED)
    provers = dict.fromkeys(result.proved_by for result in every if result.proved_by)
    return replace(
        best,
        status=status,
        stop=Stop.PROVED if proved else stop,
        proved_by=", ".join(provers) if bound is not None or status is Status.INFEASIBLE else None,
        bound=bound,
        gap=gap,
        seconds=sum(result.seconds for result in every),
        signal=signal,
        **changes,
    )


def _reason(results: Mapping[str, Result], order: str) -> str:
    """That of the best order; of each order, where none has a plan: what would help one does not help another."""
    if results[order].objective is None:
        return "; ".join(f"order {name}: {result.reason}" for name, result in results.items() if result.reason)
    return "; ".join(part for part in (results[order].reason, f"best of {len(results)} orders: {order}") if part)


def _figures(every: Sequence[Result]) -> dict[str, Any]:
    """The least of each figure of what would make it feasible; absent where some order has none."""
    figures: list[Mapping[str, Any]] = [each.stats for each in every]
    return {
        name: None if any(each.get(name) is None for each in figures) else min(each[name] for each in figures)
        for name in _LEAST
        if any(name in each for each in figures)
    }


def _height(objective: float | None) -> float:
    return float("inf") if objective is None else objective
