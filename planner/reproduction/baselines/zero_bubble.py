"""Zero bubble's automatic scheduler beside the shortest iteration at the same memory."""

from collections.abc import Iterator
from typing import Any

from instances.problems.microbatch_schedule import ScheduleInstance, with_memory
from planner.reproduction.claim import Evidence, Note, Optima, objective
from planner.reproduction.pipelines.chunks import SIZES, of_schedule, proved
from planner.reproduction.pipelines.distance import SPREADS, unequal
from planner.reproduction.pipelines.zero_bubble import TIMES
from solvers.outcome import Limits


def run(_inputs: str | None, note: Note, chains: int = 4, limit: float = 5.0) -> Evidence:
    """Chains of equal stages at several ratios of F, B and W, and of unequal ones."""
    rows: list[dict[str, Any]] = []
    optima = Optima()
    for p, m in SIZES:
        for held in (p, 2 * p):
            for kind, instances in _kinds(p, m, held, chains):
                note(f"{p} devices, {m} micro-batches, room for {held}, {kind}")
                lost, at_most = [], []
                for number, instance in enumerate(instances):
                    takes = objective(instance, "zb-auto")
                    assert takes is not None
                    found = proved(optima, instance, f"{p} {m} {held} {kind} {number}", Limits(time_s=limit))
                    lost.append(100 * (takes / found["best_s"] - 1))
                    at_most.append(100 * (takes / found["bound_s"] - 1))
                rows.append(
                    {
                        "devices": p,
                        "microbatches": m,
                        "held": held,
                        "stages": kind,
                        "chains": len(lost),
                        "as_good": sum(percent < 1e-6 for percent in lost),
                        "mean_percent": sum(lost) / len(lost),
                        "most_percent": max(lost),
                        "at_most_percent": max(at_most),
                    }
                )
    return Evidence(
        tuple(rows),
        "chains, one stage a device; every device has room for as many whole activations as held says",
        notes=(
            "as_good: chains on which the scheduler is as good as the best order that is known",
            "mean, most: what it takes more than that order; at_most: than the lower bound, at worst",
            optima.sentence(),
        ),
    )


def _kinds(p: int, m: int, held: int, chains: int) -> Iterator[tuple[str, list[ScheduleInstance]]]:
    yield "equal", [of_schedule("zb-h1", p, m, 1, times, held) for times in TIMES]
    for spread in SPREADS:
        drawn = (unequal(p, m, spread, number) for number in range(chains))
        yield f"within {spread:g}", [with_memory(instance, held) for instance in drawn]
