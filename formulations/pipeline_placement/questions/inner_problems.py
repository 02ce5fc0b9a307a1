"""The problems that runs of two phases solve inside."""

from formulations.contract.family import lazy
from formulations.contract.inner_problems import Inside

_code = lazy("formulations.pipeline_placement")

INSIDE = (
    Inside(
        method="turns",
        problem="device_mapping",
        says="mapping of each round, and of each move that is looked at",
        arise=_code.questions.studies.mappings.of_turns,
    ),
    Inside(
        method="parmesan",
        problem="device_mapping",
        says="mapping of its partition",
        arise=_code.questions.studies.mappings.of_parmesan,
        exactly=_code.models.two_phase.solve_best_mapping,
    ),
    Inside(
        method="parmesan",
        problem="operator_partitioning",
        says="partition of its first phase",
        arise=_code.questions.studies.mappings.first_phase_of_parmesan,
        exactly=_code.models.two_phase.solve_best_partition,
    ),
)
