"""Schedules as text and as a trace that Chrome's tracing page (and Perfetto) opens."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from planner.files.write import write_atomically
from planner.process.errors import UsageError

#: A pass: stage, "F", "B" or "W", index of the micro-batch, start and end in seconds
#: (docs/problems/microbatch_schedule.md).
Task = Sequence[Any]

#: Columns of a text chart.
WIDTH = 120
_SIGNS = {"F": "0123456789", "B": "abcdefghij", "W": "ABCDEFGHIJ"}


def refuse_untraceable(instance: Any, path: str) -> None:
    """`UsageError` if plans of the instance are no schedules: before any work is done."""
    from planner.files.load import family_of

    if family_of(instance).name not in _TASKS:
        raise UsageError.at("--trace", path, f"a problem whose plans can be scheduled ({', '.join(_TASKS)})")


def chrome_trace(tasks: Sequence[Task], name: str) -> dict[str, Any]:
    """The passes as complete events in microseconds, a thread for each stage."""
    stages = sorted({task[0] for task in tasks})
    events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": name}}]
    events += [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": stage, "args": {"name": f"stage {stage}"}}
        for stage in stages
    ]
    for stage, kind, index, start, end in tasks:
        category = {"F": "forward", "B": "backward", "W": "weight gradient"}[kind]
        events.append(
            {
                "name": f"{kind}{index}",
                "cat": category,
                "ph": "X",
                "pid": 0,
                "tid": stage,
                "ts": start * 1e6,
                "dur": (end - start) * 1e6,
                "args": {"microbatch": index, "pass": category},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_trace(path: str, instance: Any, plan: Mapping[str, Any]) -> None:
    """Write the trace of a plan, in its JSON form, to a file."""
    from planner.files.load import family_of

    tasks = _TASKS[family_of(instance).name](instance, plan)
    write_atomically(path, json.dumps(chrome_trace(tasks, instance.name), allow_nan=False) + "\n", "--trace")


def simulated_tasks(instance: Any, plan: Mapping[str, Any]) -> list[Task]:
    """The passes of a simulated 1F1B step of a placed pipeline, on its slowest replica."""
    from formulations.pipeline_placement import FAMILY
    from formulations.pipeline_placement.definition.simulate import simulate_plan

    step = simulate_plan(instance, FAMILY.plan_from_json(instance, plan))
    return [[p.stage, p.kind, p.index, p.start_s, p.end_s] for p in step.passes]


#: For each problem whose plans are schedules, or can be simulated, what its passes are.
_TASKS: Mapping[str, Callable[[Any, Mapping[str, Any]], Sequence[Task]]] = {
    "microbatch_schedule": lambda _, plan: cast("Sequence[Task]", plan["tasks"]),
    "pipeline_placement": simulated_tasks,
}


def _round_up(seconds: float) -> float:
    """The next number of the form 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(seconds))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= seconds * (1 - 1e-9))


def text_gantt(tasks: Sequence[Task], width: int = WIDTH) -> list[str]:
    """A line for each stage: forward passes as the last digit of their micro-batch, backward ones as a letter.

    Weight gradients are capital letters.

    >>> text_gantt([[0, "F", 0, 0, 1], [1, "F", 0, 1, 2], [1, "B", 0, 2, 4], [0, "B", 0, 4, 6]], 6)
    ['0 |0...aa|', '1 |.0aa..|', 'forward 0-9, backward a-j, idle .; a column is 1 s']
    """
    end = max((task[4] for task in tasks), default=0.0)
    if not end:
        return []
    last = max(task[0] for task in tasks)
    column = _round_up(end / width)
    width = math.ceil(end / column - 1e-9)
    rows = [["."] * width for _ in range(last + 1)]
    for stage, kind, index, start, stop in tasks:
        sign = _SIGNS[kind][index % 10]
        for place in range(
            max(0, round(start / column)), min(width, max(round(stop / column), round(start / column) + 1))
        ):
            rows[stage][place] = sign
    lines = [f"{stage:>{len(str(last))}} |{''.join(row)}|" for stage, row in enumerate(rows)]
    weights = ", weight gradient A-J" if any(task[1] == "W" for task in tasks) else ""
    return [*lines, f"forward 0-9, backward a-j{weights}, idle .; a column is {column:.4g} s"]
