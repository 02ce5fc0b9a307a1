"""What each step of Parmesan's flow loses against the optimum: clustering, dynamic program, refinement."""

from typing import Any

from formulations.compiled.array_types import Words
from formulations.operator_partitioning.costs.chains import Found, Search
from formulations.operator_partitioning.costs.costs import load_bound
from formulations.operator_partitioning.costs.downsets import all_downsets
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate
from instances.problems.operator_partitioning import OperatorInstance
from solvers.outcome import Stop, Watch

#: Downsets of the whole graph up to which the optimum is looked for.
_MAX_DOWNSETS = 100_000


def losses(
    instance: OperatorInstance, clustered: Words, first: OperatorPlan, last: OperatorPlan, watch: Watch
) -> dict[str, Any]:
    """Objectives after each step, and what the steps lose, as parts of the optimum.

    ``clustered``: the downsets that split no cluster: the best chain of them is what clustering has left.
    ``first``, ``last``: the plans of the dynamic program and of the refinement.
    Returns: ``optimum`` and ``clustered`` (``None`` where not proved), ``dynamic_program``, ``refined``; and relative
    to the optimum ``clustering_loss``, ``dynamic_program_loss``, ``refinement_gain`` and ``loss`` (all together).
    """
    values: dict[str, float | None] = {
        "optimum": _optimum(_best(instance, all_downsets(instance, _MAX_DOWNSETS), last, watch)),
        "clustered": _optimum(_best(instance, clustered, None, watch)),
        "dynamic_program": evaluate(instance, first),
        "refined": evaluate(instance, last),
    }
    steps = {
        "clustering_loss": ("clustered", "optimum"),
        "dynamic_program_loss": ("dynamic_program", "clustered"),
        "refinement_gain": ("dynamic_program", "refined"),
        "loss": ("refined", "optimum"),
    }
    optimum = values["optimum"]
    found: dict[str, Any] = dict(values)
    for name, (worse, better) in steps.items():
        above, below = values[worse], values[better]
        found[name] = None
        if optimum and above is not None and below is not None:
            found[name] = (above - below) / optimum
    return found


def _best(instance: OperatorInstance, bits: Any, start: OperatorPlan | None, watch: Watch) -> Found | None:
    if bits is None or watch.stopped():
        return None
    return Search(instance, bits, watch).least(load_bound(instance), start, report=False)


def _optimum(found: Found | None) -> float | None:
    """The value of a search that came to its end."""
    if found is None or found.plan is None or found.stop is not Stop.PROVED:
        return None
    return found.value
