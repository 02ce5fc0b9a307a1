"""The subproblems that GraphPipe's planner solves inside."""

from __future__ import annotations

from formulations.contract.family import lazy
from formulations.contract.inner_problems import Inside

_STUDY = "formulations.stage_graph.questions.studies.inside"

INSIDE = (
    Inside(
        method="graphpipe",
        problem="stage_graph",
        says="parts of the graph that its recursion visits, on each number of devices",
        arise=lazy(f"{_STUDY}:parts_of_graphpipe"),
        exactly=lazy("formulations.stage_graph.exact:solve"),
    ),
    Inside(
        method="graphpipe",
        problem="microbatch_schedule",
        says="schedule of its plan for each micro-batch size",
        arise=lazy(f"{_STUDY}:schedules_of_graphpipe"),
    ),
)
