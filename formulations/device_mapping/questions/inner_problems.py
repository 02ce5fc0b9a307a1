"""The subproblems that Algorithm 1 solves inside."""

from formulations.contract.family import lazy
from formulations.contract.inner_problems import Inside

_code = lazy("formulations.device_mapping")

INSIDE = (
    Inside(
        method="parmesan",
        problem="device_mapping",
        says="target decisions of Algorithm 1",
        arise=_code.questions.studies.decisions.of_parmesan,
        exactly=_code.exact.solve,
    ),
)
