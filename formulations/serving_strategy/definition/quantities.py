"""What a plan decides, as decisions: from these follow brute force, requirements, and distinct plans."""

from formulations.contract.decisions import Decisions
from formulations.contract.quantities import Quantity
from formulations.serving_strategy.definition.plan import plan_of_cuts
from formulations.serving_strategy.definition.problem import degrees
from instances.problems.serving_strategy import ServingInstance


def _domains(instance: ServingInstance) -> dict[str, object]:
    return {
        "replicas": range(1, instance.num_devices + 1),
        "tp_degree": degrees(instance),
        "batch": instance.batches,
        "cuts": [range(2)] * (len(instance.layers) - 1),
    }


DECISIONS = Decisions(
    plan_of_cuts,
    _domains,  # type: ignore[arg-type]
    ("replicas", "tp_degree", "batch", "cuts"),
    frozenset({"replicas", "tp_degree", "batch"}),
)
VOCABULARY = (*DECISIONS.vocabulary(), Quantity("pp_degree", "stages of the pipeline", lambda _, plan: plan.pp_degree))
