"""One cell of a table on device mapping: consecutive mapping, Algorithm 1, and the best plan and bound there are."""

from collections.abc import Iterable, Mapping
from typing import Any

from planner.files.load import family_of
from planner.reproduction.claim import Note, verified_result
from planner.results.result import Result
from solvers.outcome import Limits, relative_gap

#: Seconds for each method on each cell by default.
TIME_LIMIT_S = 10.0
#: A search of Algorithm 1 ends after so many devices tried, in place of a timeout (the paper prints none), so that no
#: other work on the machine matters: a tenth of a second to half of one.
SEARCH = {"search_timeout": "none", "search_devices": "1e6"}
#: What looks for the best plan and bound, the first that the instance admits.
_BEST = ("exact", "anneal")


def cell(topology: str, instance: Any, time_limit: float, note: Note) -> dict[str, Any]:
    """The columns that all tables share, for an instance on a network of that name."""
    return row_of(topology, instance, results_of(topology, instance, time_limit, note))


def results_of(what: str, instance: Any, time_limit: float, note: Note) -> tuple[Result, Result, Result]:
    """Consecutive mapping, Algorithm 1, and whatever finds the best plan and bound."""
    note(f"{what}: {instance.num_stages} stages, {instance.replicas} replicas, {instance.objective}")
    limits = Limits(time_s=time_limit)
    consecutive = verified_result(instance, "consecutive", limits=limits)
    searched = verified_result(instance, "parmesan", limits=limits, **SEARCH)
    return consecutive, searched, verified_result(instance, _best(instance), limits=limits)


def row_of(topology: str, instance: Any, results: tuple[Result, Result, Result]) -> dict[str, Any]:
    """Seconds of the slowest stage by each mapping; bound and gap of the best plan."""
    consecutive, searched, _ = results
    least = min(result.objective for result in results if result.objective is not None)
    bounds = [result.bound for result in results if result.bound is not None]
    bound = min(max(bounds), least) if bounds else None
    return {
        "topology": topology,
        "stages": instance.num_stages,
        "replicas": instance.replicas,
        "objective": instance.objective,
        "consecutive": consecutive.objective,
        "parmesan": searched.objective,
        "best": least,
        "bound": bound,
        "gap": relative_gap(least, bound),
    }


def speedups(row: Mapping[str, Any]) -> dict[str, float | None]:
    """How much faster than consecutive mapping Algorithm 1 is, the best plan, and at most any plan."""
    base = row["consecutive"]
    return {f"{name}_speedup": base / row[name] if row[name] else None for name in ("parmesan", "best", "bound")}


def count_proved(rows: Iterable[Mapping[str, Any]]) -> str:
    """How many cells are proved, and where Algorithm 1 stays farthest above the best plan."""
    rows = list(rows)
    optimal = sum(row["gap"] is not None and row["gap"] <= 1e-6 for row in rows)
    worst = max(rows, key=lambda row: row["parmesan"] / row["best"])
    place = f"{worst['topology']}, {worst['stages']} stages, {worst['replicas']} replicas, {worst['objective']}"
    factor = worst["parmesan"] / worst["best"]
    return (
        f"the best plan is proved optimal in {optimal} of {len(rows)} cells; Algorithm 1 is at most {factor:.2f} times "
        f"as slow as the best plan ({place})"
    )


def _best(instance: Any) -> str:
    family = family_of(instance)
    there = {method.name for method in family.methods if method.supports(instance) is None}
    return next(name for name in _BEST if name in there)
