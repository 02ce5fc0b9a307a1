"""The subproblems that GraphPipe's planner solves inside."""

from formulations.contract.family import lazy
from formulations.contract.inner_problems import Inside

_code = lazy("formulations.stage_graph")


INSIDE = (
    Inside(
        method="graphpipe",
        problem="stage_graph",
        says="parts of the graph that its recursion visits, on each number of devices",
        arise=_code.questions.studies.inside.parts_of_graphpipe,
        exactly=_code.exact.solve,
    ),
    Inside(
        method="graphpipe",
        problem="microbatch_schedule",
        says="schedule of its plan for each micro-batch size",
        arise=_code.questions.studies.inside.schedules_of_graphpipe,
    ),
)
