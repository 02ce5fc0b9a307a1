"""How far 1F1B is from the shortest iteration at its memory: with split backward passes, and with two chunks in a V."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from instances.problems.microbatch_schedule import ScheduleInstance
from planner.reproduction.claim import Evidence, Note, Optima, objective
from planner.reproduction.pipelines.chunks import SIZES, of_schedule, proved
from solvers.outcome import Limits

#: F, B and W of half a stage, and within which factor stages differ.
TIMES = ((1.0, 1.0, 1.0), (2.0, 2.0, 1.0))
SPREADS = (1.1, 2.0)
#: Times are whole numbers of this part of a second: none is lost in a model of integers.
_TICKS = 100


def run(_inputs: str | None, note: Note, chains: int = 4, limit: float = 5.0) -> Evidence:
    """1F1B, whose W follows B at once, beside the best order of one chunk, and of two chunks on devices in a V."""
    rows: list[dict[str, Any]] = []
    optima, limits = Optima(), Limits(time_s=limit)
    for p, m in SIZES:
        for times in TIMES:
            note(f"{p} devices, {m} micro-batches, F, B, W {times}")
            whole = of_schedule("1f1b", p, m, 1, [2 * time for time in times], p)
            vee = of_schedule("zb-v", p, m, 2, times, 2 * p)
            rows.append(_row(optima, f"{p} {m} {times}", [(whole, vee)], limits, spread=1.0, times=times))
        for spread in SPREADS:
            note(f"{p} devices, {m} micro-batches, stages within {spread:g}")
            drawn = [unequal(p, m, spread, number) for number in range(chains)]
            pairs = [(instance, None) for instance in drawn]
            rows.append(_row(optima, f"{p} {m} {spread:g}", pairs, limits, spread=spread, times=(1.0, 1.0, 1.0)))
    return Evidence(
        tuple(rows),
        "chains; every device has room for p whole activations, as 1F1B's first device takes; W follows B in 1F1B",
        notes=(
            "one chunk: what 1F1B takes more than the best order of the same stages, with split backward passes, on "
            "average and at most, and at most if only what is proved counts",
            "vee: than the best order of two halves of a stage on each device, in a V",
            optima.sentence(),
        ),
    )


def unequal(p: int, m: int, spread: float, number: int) -> ScheduleInstance:
    """A chain whose stages draw their time within a factor; F, B and W take a third of it each."""
    rng = random.Random(f"{p} {m} {spread} {number}")
    equal = of_schedule("1f1b", p, m, 1, (1.0, 1.0, 1.0), p)
    times = [float(round(_TICKS * rng.uniform(1, spread))) for _ in range(p)]
    stages = tuple(
        replace(stage, forward_s=t, backward_s=t, weight_s=t) for stage, t in zip(equal.stages, times, strict=True)
    )
    return replace(equal, stages=stages)


def _row(
    optima: Optima,
    place: str,
    pairs: Sequence[tuple[ScheduleInstance, ScheduleInstance | None]],
    limits: Limits,
    **setting: Any,
) -> dict[str, Any]:
    lost: dict[str, list[tuple[float, float]]] = {"one_chunk": [], "vee": []}
    unproved = len(optima.unproved)
    for number, (whole, vee) in enumerate(pairs):
        takes = objective(whole, "1f1b")
        assert takes is not None
        for name, instance in (("one_chunk", whole), ("vee", vee)):
            if instance is not None:
                found = proved(optima, instance, f"{place} {number} {name}", limits)
                lost[name].append((100 * (takes / found["best_s"] - 1), 100 * (takes / found["bound_s"] - 1)))
    row = {"devices": len(pairs[0][0].stages), "microbatches": pairs[0][0].minibatch, **setting, "chains": len(pairs)}
    for name, shares in lost.items():
        row[f"{name}_percent"] = sum(least for least, _ in shares) / len(shares) if shares else None
        row[f"{name}_most_percent"] = max((least for least, _ in shares), default=None)
        row[f"{name}_at_most_percent"] = max((most for _, most in shares), default=None)
    return {**row, "unproved": len(optima.unproved) - unproved}
