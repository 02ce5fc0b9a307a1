"""Qi et al. 2024: ZB-H1, ZB-H2 and ZB-V beside the shortest iteration at the memory that each takes."""

from typing import Any

from formulations.microbatch_schedule.definition.plan import SchedulePlan
from instances.problems.microbatch_schedule import ScheduleInstance
from planner.reproduction.claim import Evidence, Note, Optima, verified_result
from planner.reproduction.pipelines.chunks import SIZES, of_schedule, proved
from solvers.outcome import Limits

#: F, B and W of a chunk: equal, as the paper's pictures have them, and what is not.
TIMES = ((1.0, 1.0, 1.0), (2.0, 2.0, 1.0), (1.0, 2.0, 1.0), (1.0, 1.0, 2.0), (2.0, 3.0, 1.0))
#: An order, its chunks on a device, and the activations of chunks that it takes on p devices: so many p, less so many.
ORDERS = {"zb-h1": (1, 1, 0), "zb-h2": (1, 2, 1), "zb-v": (2, 2, 0)}


def run(_inputs: str | None, note: Note, limit: float = 5.0) -> Evidence:
    """Every order, on pipelines of equal stages, and the best one with as much memory on every device."""
    rows: list[dict[str, Any]] = []
    optima = Optima()
    for name, (chunks, each, less) in ORDERS.items():
        for times in TIMES:
            for p, m in SIZES:
                note(f"{name}, {p} devices, {m} micro-batches, F, B, W {times}")
                room = each * p - less
                instance = of_schedule(name, p, m, chunks, times, room)
                result = verified_result(instance, name)
                takes = result.objective
                assert takes is not None
                found = proved(optima, instance, f"{name} {p} {m} {times}", Limits(time_s=limit))
                row: dict[str, Any] = {"order": name, "devices": p, "microbatches": m, "chunks_held": room}
                row |= dict(zip(("f_s", "b_s", "w_s"), times, strict=True)) | {"takes_s": takes, **found}
                work = m * chunks * sum(times)
                row["device_bubble"] = _longest_on_a_device(instance, result.own_plan) / work - 1
                rows.append({**row, "lost_percent": 100 * (takes / found["best_s"] - 1), "bubble": takes / work - 1})
    return Evidence(
        tuple(rows),
        "chains of equal chunks; every device has room for as many activations of a chunk as the order takes",
        notes=(
            "an iteration lasts from an idle start to the end of the last pass; activations are held to the end of W",
            "bubble: what the iteration takes beyond a device's work, as a part of it; device_bubble: the same from a "
            "device's first pass to its last, of the device that takes longest",
            "lost: what the order takes more than the best one that is known; where that is not proved, bound_s is its "
            "lower bound",
            optima.sentence(),
        ),
    )


def _longest_on_a_device(instance: ScheduleInstance, plan: SchedulePlan) -> float:
    """The most seconds from a device's first pass to its last."""
    devices = ([task for stage in stages for task in plan.by_stage[stage]] for stages in instance.stages_on)
    return max(max(task.end_s for task in own) - min(task.start_s for task in own) for own in devices)
