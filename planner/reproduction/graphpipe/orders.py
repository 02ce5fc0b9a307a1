"""Section 6: 1F1B and GPipe's order on chains of unequal stages, beside the shortest iteration at their memory."""

import random
from collections.abc import Sequence
from typing import Any

from instances.problems.microbatch_schedule import ScheduleEdge, ScheduleInstance, ScheduleStage
from planner.reproduction.claim import Evidence, Note, Optima, objective
from solvers.outcome import Limits

#: Stages, micro-batches, and how many times as long the longest stage may take.
SETTINGS = tuple((p, m, spread) for p, m in ((4, 8), (4, 16), (8, 16)) for spread in (1.0, 1.1, 2.0, 4.0))
#: Times are whole numbers of this part of a second: none is lost in a model of integers.
_TICKS = 100


def run(_inputs: str | None, note: Note, chains: int = 4, limit: float = 10.0) -> Evidence:
    """Random chains: what each order takes more than the best one in the same room, and what the room costs."""
    rows: list[dict[str, Any]] = []
    ahead: list[float] = []  # seconds of 1F1B over those of GPipe's order
    optima, limits = Optima(), Limits(time_s=limit)
    for p, m, spread in SETTINGS:
        note(f"{p} stages, {m} micro-batches, times within {spread:g}")
        lost: dict[str, list[float]] = {name: [] for name in ("1f1b", "gpipe", "room")}
        proved = len(optima.unproved)
        for number in range(chains):
            rng = random.Random(f"{p} {m} {spread} {number}")
            times = [3 * round(_TICKS * rng.uniform(1, spread)) for _ in range(p)]
            scarce, ample = chain(times, m, [min(m, p - i) for i in range(p)]), chain(times, m, [m] * p)
            place = f"{p} {m} {spread:g} {number}"
            best = optima.result(scarce, f"{place} (p - i in flight)", limits=limits).objective
            free = optima.result(ample, f"{place} (all in flight)", limits=limits).objective
            one, whole = objective(scarce, "1f1b"), objective(ample, "kfkb")
            assert best is not None and free is not None and one is not None and whole is not None
            lost["1f1b"].append(one / best - 1)
            lost["gpipe"].append(whole / free - 1)
            lost["room"].append(best / free - 1)
            ahead.append(one / whole)
        row: dict[str, Any] = {"stages": p, "microbatches": m, "spread": spread, "chains": chains}
        for name, shares in lost.items():
            row |= {f"{name}_percent": 100 * sum(shares) / chains, f"{name}_most_percent": 100 * max(shares)}
        rows.append({**row, "unproved": len(optima.unproved) - proved})
    return Evidence(
        tuple(rows),
        "random chains, a forward pass half as long as a backward pass; stages draw their times within the spread",
        notes=(
            "1f1b: what it takes more than the best order with p - i micro-batches in flight at stage i, on average "
            "and at most; gpipe: likewise, with all of them in flight",
            "room: what the best order with p - i in flight takes more than the best one with all in flight",
            f"1F1B takes {min(ahead):.3f} to {max(ahead):.3f} times as long as GPipe's order, less on "
            f"{sum(each < 1 - 1e-9 for each in ahead)} of {len(ahead)} chains (the paper: as long, in less memory)",
            "one chunk on a device, undivided backward passes: interleaved orders and ZB-H1 are no plans of it",
            optima.sentence(),
        ),
    )


def chain(times: Sequence[int], m: int, rooms: Sequence[int]) -> ScheduleInstance:
    """Stages of these times, with room for so many micro-batches in flight; kFkB with k = m is GPipe's order."""
    stages = tuple(ScheduleStage(t / 3, 2 * t / 3, 1, m, room) for t, room in zip(times, rooms, strict=True))
    edges = tuple(ScheduleEdge(stage, stage + 1) for stage in range(len(times) - 1))
    return ScheduleInstance("chain", m, stages, edges)
