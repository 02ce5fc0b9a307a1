"""The subproblems that Algorithm 1 solves inside."""

from __future__ import annotations

from formulations.contract.family import lazy
from formulations.contract.inner_problems import Inside

INSIDE = (
    Inside(
        method="parmesan",
        problem="device_mapping",
        says="target decisions of Algorithm 1",
        arise=lazy("formulations.device_mapping.questions.studies.decisions:of_parmesan"),
        exactly=lazy("formulations.device_mapping.exact:solve"),
    ),
)
