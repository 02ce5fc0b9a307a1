"""The passes of a run as Chrome's tracing page shows them: measured beside simulated."""

from collections.abc import Sequence
from typing import Any

from planner.training.runtime.layout import Layout, Timing
from planner.training.runtime.run import Run


def chrome_trace(found: Run) -> dict[str, Any]:
    """A group of rows for what was measured, one for what was simulated; a row for each process of the run.

    The plan's times are those of the hardware that it was made for: simulated passes are stretched to the length of the
    measured iteration, and the group's name has the factor.
    """
    length = max((each.end_s for each in found.simulated), default=0.0)
    factor = found.seconds / length if length else 1.0
    events = _events(0, "measured", found.layout, found.measured, 1.0)
    events += _events(1, f"simulated, times {factor:.3g}", found.layout, found.simulated, factor)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _events(group: int, name: str, made: Layout, timings: Sequence[Timing], factor: float) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [_name_event("process_name", group, 0, name)]
    for rank, duty in enumerate(made.duties):
        events.append(_name_event("thread_name", group, rank, str(duty)))
    samples = {
        (rank, each.kind, each.index): each.samples for rank, duty in enumerate(made.duties) for each in duty.passes
    }
    for each in timings:
        kind = {"F": "forward", "B": "backward", "W": "weights"}[each.kind]
        own = samples[each.rank, each.kind, each.index]
        events.append(
            {
                "name": f"{each.kind}{each.index}",
                "cat": kind,
                "ph": "X",
                "pid": group,
                "tid": each.rank,
                "ts": each.start_s * factor * 1e6,
                "dur": (each.end_s - each.start_s) * factor * 1e6,
                "args": {"pass": kind, "samples": list(own)},
            }
        )
    return events


def _name_event(what: str, group: int, row: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": group, "tid": row, "args": {"name": name}}
