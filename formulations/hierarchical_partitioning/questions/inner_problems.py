"""The subproblems that Appendix E's recursion solves inside."""

from formulations.contract.family import lazy
from formulations.contract.inner_problems import Inside

_code = lazy("formulations.hierarchical_partitioning")

INSIDE = (
    Inside(
        method="piper-hierarchical",
        problem="stage_partitioning",
        says="split of each superstage inside a machine",
        arise=_code.questions.studies.inside.splits,
    ),
)
