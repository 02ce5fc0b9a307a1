"""Schedules: which pass of which micro-batch runs when, as a Gantt chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: A pass: stage, "F" or "B", index of the micro-batch, start and end in seconds (docs/interface.md).
Task = Sequence[Any]

#: Backward passes are dark, forward passes light.
_FILL = {"F": "0.88", "B": "0.60"}
#: More passes than this are drawn without the numbers of their micro-batches.
_NUMBERED = 400


def gantt(axes: Any, tasks: Sequence[Task], num_stages: int) -> Any:
    """A row for each stage, the first on top; forward passes light, backward passes dark, with their micro-batches.

    Parameters
    ----------
    tasks
        ``[stage, "F" or "B", index, start_s, end_s]``, as plans of ``microbatch_schedule`` have them.
    """
    for stage, kind, index, start, end in tasks:
        label = {"F": "forward", "B": "backward"}[kind]
        known = axes.get_legend_handles_labels()[1] if len(tasks) <= _NUMBERED else [label]
        axes.barh(
            stage,
            end - start,
            left=start,
            height=0.8,
            color=_FILL[kind],
            edgecolor="black",
            linewidth=0.4,
            label=None if label in known else label,
        )
        if len(tasks) <= _NUMBERED:
            axes.text((start + end) / 2, stage, str(index), ha="center", va="center", fontsize=6, clip_on=True)
    axes.set_yticks(range(num_stages))
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set(xlabel="time, s", ylabel="stage")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")
    return axes
