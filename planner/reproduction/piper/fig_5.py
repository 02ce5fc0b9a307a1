"""Figure 5: PipeDream-2BW's schedule where stages have data-parallel degrees of their own, beside a simulation."""

from collections.abc import Sequence
from typing import Any

from formulations.simulation.simulate_chain import PipelineStage, Task, in_flight, simulate
from planner.reproduction.claim import Evidence, Note

#: Data-parallel degrees of the four stages; a pass takes as many slots, so that each stage takes two for a micro-batch.
DEGREES = (3, 1, 1, 1)
#: Of each device: s, ceil(s/d), and its passes in their order: the micro-batches of the drawn cells.
_PRINTED = (
    (6, 2, (1, 4, 1, 7, 4, 10, 7)),
    (6, 2, (2, 5, 2, 8, 5, 11, 8)),
    (6, 2, (3, 6, 3, 9, 6, 12)),
    (3, 3, (1, 2, 3, 1, 4, 2, 5, 3, 6, 4, 7, 5, 8, 6, 9, 7, 10, 8, 11)),
    (2, 2, (1, 2, 1, 3, 2, 4, 3, 5, 4, 6, 5, 7, 6, 8, 7, 9, 8, 10, 9)),
    (1, 1, (1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10)),
)
#: What device 2 holds at different points in time, in the caption.
_PRINTED_SETS = ((2,), (2, 5), (5,), (5, 8), (8,), (8, 11), (11,))
#: Slots that are drawn, and micro-batches that are simulated.
_SLOTS, _MICROBATCHES = 25, 40


def run(_inputs: str | None, _note: Note) -> Evidence:
    """A row for each device: what is printed of it, and its slots as they are simulated."""
    sums = [sum(DEGREES[place:]) for place in range(len(DEGREES))]
    stages = [PipelineStage(d, float(d), float(d), room) for d, room in zip(DEGREES, in_flight(DEGREES), strict=True)]
    # A micro-batch enters every two slots: the time of the slowest stage for a sample.
    trace = simulate(stages, _MICROBATCHES, pace=2.0)
    devices = [(stage, replica) for stage, d in enumerate(DEGREES) for replica in range(d)]
    rows: list[dict[str, Any]] = []
    matched = 0
    for number, ((stage, replica), (s, flying, order)) in enumerate(zip(devices, _PRINTED, strict=True), 1):
        own = [task for task in trace.tasks if (task.stage, task.replica) == (stage, replica)]
        found = tuple(task.microbatch + 1 for task in own[: len(order)])
        held = max(map(len, _held(own)))
        matched += (sums[stage] == s) + (held == flying) + (found == order)
        rows.append(
            {
                "device": number,
                "stage": stage + 1,
                "dp_degree": DEGREES[stage],
                "paper_s": s,
                "here_s": sums[stage],
                "paper_in_flight": flying,
                "here_in_flight": held,
                "same_order": found == order,
                "slots": _slots(own),
            }
        )
    second = _held([task for task in trace.tasks if (task.stage, task.replica) == devices[1]])
    sets = tuple(second[: len(_PRINTED_SETS)])
    return Evidence(
        tuple(rows),
        "degrees 3, 1, 1 and 1; forward and backward passes of 3, 1, 1 and 1 slots",
        3 * len(rows) + 1,
        matched + (sets == _PRINTED_SETS),
        (
            "slots: the micro-batch of each, a to c for 10 to 12; s, ceil(s/d) and the order of passes of each device "
            "are printed; in flight here: the most that it holds, simulated",
            f"device 2 holds {_spelled(sets)} (printed: {_spelled(_PRINTED_SETS)})",
        ),
    )


def _spelled(sets: Sequence[Sequence[int]]) -> str:
    return " ".join("{" + ", ".join(map(str, each)) + "}" for each in sets)


def _held(own: Sequence[Task]) -> list[tuple[int, ...]]:
    """The sets of micro-batches that a device holds one after the other, from their forward to their backward pass."""
    held: list[int] = []
    found = []
    for task in sorted(own, key=lambda task: (task.start if task.is_forward else task.end, task.is_forward)):
        microbatch = task.microbatch + 1
        if task.is_forward:
            held.append(microbatch)
        else:
            held.remove(microbatch)
        if held:
            found.append(tuple(held))
    return found


def _slots(own: Sequence[Task]) -> str:
    """One character for each slot: the micro-batch in base 36, a point for none."""
    row = ["."] * _SLOTS
    for task in own:
        for slot in range(int(task.start), min(int(task.end), _SLOTS)):
            row[slot] = "0123456789abcdefghijklmnopqrstuvwxyz"[task.microbatch + 1]
    return "".join(row)
