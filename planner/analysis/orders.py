"""Several linear orders of one graph at once: solve each, keep the best.

With ``sweep --orders a,b`` the feasible set is the union of the orders' own, so the least of the objectives counts, and
the least of the bounds holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from formulations.compiled.compile_times import compiling
from planner.files.load import load
from planner.results.result import Result
from planner.solving.solve import silent, solve
from solvers.outcome import OPTIMAL_GAP, Limits, Status, Stop, relative_gap

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

    Parameters
    ----------
    instances
        By the name of their order (`load_orders`); all of the same problem.
    limits
        The time is shared: an order gets what the ones before it left.
    notice
        As for `planner.solve`, once for all orders.
    **arguments
        As for `planner.solve`.

    Returns
    -------
    Result
        The best order's, with bound, status, seconds and signal of all orders together; ``stats["orders"]`` has
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
    return (
        next(iter(results.values())) if len(instances) == 1 else _unite(results, whole=len(results) == len(instances))
    )


def best_order(result: Result, instances: Mapping[str, Any]) -> str:
    """The name of the order that the result's plan is of; the first one where there is none."""
    objectives: Any = result.stats.get("orders", {})
    return min(objectives, key=lambda order: _height(objectives[order]), default=next(iter(instances)))


def union(
    best: Result, every: Sequence[Result], bounds: Sequence[float | None], *, is_whole: bool, **changes: Any
) -> Result:
    """The best result with bound, status, seconds and signal of all.

    Parameters
    ----------
    bounds
        Of the results that are not infeasible, in the best one's unit; ``None`` where there is none.
    is_whole
        Whether all runs of the question are among them: else nothing is proved.
    changes
        Other fields of the result.
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


def _unite(results: Mapping[str, Result], *, whole: bool) -> Result:
    """One result for the union of the orders; ``whole``: every order was run."""
    every = list(results.values())
    order, best = min(results.items(), key=lambda item: _height(item[1].objective))
    figures = _figures(every) if best.objective is None else {}
    return union(
        best,
        every,
        [result.bound for result in every if result.status is not Status.INFEASIBLE],
        is_whole=whole,
        reason=_reason(results, order),
        options={**best.options, _SETTING: ",".join(results)},
        stats={**best.stats, **figures, "orders": {name: result.objective for name, result in results.items()}},
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
