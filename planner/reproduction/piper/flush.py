"""Section 6: pipelines with flushes, which the paper leaves to future work."""

from typing import Any

from formulations.flushed_partitioning.definition.problem import depth, evaluate, simulate_batch, violations
from formulations.stage_partitioning.definition.plan import StagePlan
from instances.problems.flushed_partitioning import FlushedInstance, Schedule, flush_pipeline
from planner.reproduction.claim import Evidence, Note, Optima
from planner.reproduction.piper.inputs import bert, require_some, source
from planner.results.result import Result
from solvers.outcome import Limits

#: Devices and micro-batches of a batch.
SETTINGS = ((8, 8), (8, 64), (32, 32), (32, 256), (64, 64), (64, 512), (256, 256), (256, 1024), (512, 512))


def run(inputs: str | None, note: Note, devices: int = 512, memory: str = "8GiB", limit: float = 60.0) -> Evidence:
    """The plan that is best without flushes, priced with them, beside the best plan with flushes; both simulated."""
    require_some(devices, (count for count, _ in SETTINGS))
    rows: list[dict[str, Any]] = []
    optima, limits = Optima(), Limits(time_s=limit)
    for count, microbatches in SETTINGS:
        if count > devices:
            continue
        flat = bert(inputs, devices=count, microbatches=microbatches, memory=memory)
        place = f"{count} devices, {microbatches} micro-batches"
        note(place)
        without = optima.result(flat, place, limits=limits)
        for schedule in Schedule:
            instance = flush_pipeline(flat, schedule)
            best = optima.result(instance, f"{place} ({schedule})", method="labels", limits=limits)
            rows.append(
                {
                    "devices": count,
                    "microbatches": microbatches,
                    "schedule": str(schedule),
                    **_columns("flat", instance, without),
                    **_columns("exact", instance, best),
                    "gap": best.gap,
                }
            )
    for row in rows:
        for kind in ("", "_simulated"):
            times = row[f"flat{kind}"], row[f"exact{kind}"]
            row[f"lost{kind}_percent"] = None if None in times else 100 * (times[0] / times[1] - 1)
    return Evidence(
        tuple(rows),
        source(inputs, "bert32a100"),
        notes=(
            f"{memory} a device; flat: the best plan for a pipeline without flushes, priced with them "
            "(- where it does not fit the schedule's memory), exact: the best plan with flushes",
            optima.sentence(),
            "simulated: one batch in the fixed order of its schedule (docs/the-clock.md)",
            "lost: what the flat plan takes more",
        ),
    )


def _columns(name: str, instance: FlushedInstance, found: Result) -> dict[str, Any]:
    """Time, depth and simulation of a plan; absent where there is none or it does not fit."""
    plan: StagePlan | None = found.own_plan
    if plan is None or violations(instance, plan):
        return {name: None, f"{name}_depth": None, f"{name}_simulated": None}
    return {
        name: evaluate(instance, plan),
        f"{name}_depth": depth(instance, plan),
        f"{name}_simulated": simulate_batch(instance, plan),
    }
