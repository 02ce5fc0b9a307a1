"""The subproblems that Parmesan's flow solves inside."""

from formulations.contract.family import lazy
from formulations.contract.inner_problems import Inside

_code = lazy("formulations.operator_partitioning")


def _inside(method: str, says: str, arise: str, exactly: str | None = None) -> Inside:
    return Inside(
        method=method,
        problem="operator_partitioning",
        says=says,
        arise=getattr(_code.questions.studies.inside, arise),
        exactly=None if exactly is None else getattr(_code.paper.parmesan, exactly),
    )


INSIDE = (
    _inside("parmesan", "clustered graph, and each move of the refinement", "steps_of_parmesan", "solve_best_chain"),
    _inside("dp", "states of the dynamic program", "states_of_dp"),
    _inside("refine", "moves of the refinement from the even cut", "moves_of_refine"),
)
