"""The knapsacks that Piper's dynamic program solves inside."""

from formulations.contract.family import lazy
from formulations.contract.inner_problems import Inside

_code = lazy("formulations.stage_partitioning")

INSIDE = (
    Inside(
        method="piper",
        problem="tmpc_knapsack",
        says="choice of TMPCs for each stage, degrees and number of micro-batches in flight",
        walk=_code.questions.studies.subproblems.Subproblems,
    ),
)
