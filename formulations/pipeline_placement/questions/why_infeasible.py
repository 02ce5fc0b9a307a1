"""What would make an instance of pipeline placement feasible."""

from formulations.operator_partitioning.costs.shapes import shortage
from formulations.operator_partitioning.questions.why_infeasible import lacking_memory
from instances.problems.pipeline_placement import PlacementInstance
from solvers.outcome import Limits, Watch


def why_infeasible(instance: PlacementInstance, _limits: Limits, watch: Watch) -> tuple[str, dict[str, float]]:
    """What the partition lacks: every partition can be placed. The network says how many stages there are."""
    short = shortage(instance.operators)
    return lacking_memory(instance.operators, watch) if short is None else (f"{short}: no memory would suffice", {})
