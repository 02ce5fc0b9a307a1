"""How much work the methods would have with an instance, predicted without building anything; and the choice."""

from formulations.compiled.downsets import too_many
from formulations.operator_partitioning.costs.downsets import all_downsets
from formulations.operator_partitioning.costs.shapes import instances_by_shape
from formulations.operator_partitioning.methods import MAX_DOWNSETS, MODEL_BOOLEANS, NEAR
from instances.problems.operator_partitioning import OperatorInstance
from solvers.outcome import Limits

#: Downsets up to which a proof is a matter of seconds.
_QUICK_DOWNSETS = 20_000
#: Booleans of a flushed step up to which a proof mostly is.
_QUICK_BOOLEANS = 2_000


def downset_count(instance: OperatorInstance) -> int | None:
    """Number of downsets, or ``None`` if there are too many."""
    found = all_downsets(instance, MAX_DOWNSETS)
    return None if found is None else len(found)


def exact_supports(instance: OperatorInstance) -> str | None:
    """Whether the slowest stage decides, and all downsets can be enumerated; with a given S some are enough."""
    if instance.flushed:
        return "it has no chains for a step of a flushed pipeline; cpsat and milp do"
    return None if instance.num_stages is not None else _too_many(instance)


def _too_many(instance: OperatorInstance) -> str | None:
    words = (
        f"{too_many(len(instance.operators), MAX_DOWNSETS)}; parmesan does without them, as does cpsat on small graphs"
    )
    return words if downset_count(instance) is None else None


def table_supports(instance: OperatorInstance) -> str | None:
    """Whether replicas are given as well: the table has the same number for every stage."""
    if instance.num_stages is not None and instance.num_devices is not None:
        return "replicas differ by stage (--variable-replicas); expected as many of each"
    return exact_supports(instance) or _too_many(instance)


def exact_effort(instance: OperatorInstance) -> float:
    """Pairs of downsets, thirty times, for every (S, R); of graphs with too many of them those near some plans."""
    count = downset_count(instance) or 3 * NEAR
    return 15.0 * count * count * max(1, len(instances_by_shape(instance)))


def model_supports(instance: OperatorInstance) -> str | None:
    """Whether the assignment model is small enough; it is of a given S."""
    if instance.num_stages is None:
        return "the number of stages is free; give --stages"
    size = model_size(instance)
    return f"{size} Booleans; expected at most {MODEL_BOOLEANS}" if size > MODEL_BOOLEANS else None


def model_size(instance: OperatorInstance) -> int:
    """Booleans of the assignment model."""
    stages = instance.num_stages or 1
    pairs = sum(1 if len(t.targets) == 1 else stages for t in instance.tensors)
    feeding = stages * (stages - 1) // 2 if instance.flushed else 0
    return stages * (2 * len(instance.operators) + 2 * pairs) + stages * (instance.num_devices or 0) + feeding


def model_effort(instance: OperatorInstance) -> float:
    """Booleans of the assignment model, as a measure of the solver's work."""
    return 1e5 * model_size(instance)


def flow_effort(instance: OperatorInstance) -> float:
    """Fusions, and pairs of downsets of the clustered graph."""
    return 1e3 * len(instance.operators) + 1e8


def choose(instance: OperatorInstance, _limits: Limits, exact: bool) -> tuple[str, str]:
    """The exact search where downsets are few, else Parmesan's flow."""
    reason = exact_supports(instance)
    if instance.flushed:
        if model_supports(instance) is None and (exact or model_size(instance) <= _QUICK_BOOLEANS):
            return "cpsat", "a step of a flushed pipeline is minimised by models"
        return ("cpsat" if exact else "parmesan"), "the model of a flushed step is large"
    if reason is None:
        count = downset_count(instance)
        if count is None:
            words = too_many(len(instance.operators), MAX_DOWNSETS)
            is_modelled = exact and model_supports(instance) is None
            return ("cpsat", words) if is_modelled else ("exact", f"{words}; those near Parmesan's plan are searched")
        if exact or count <= _QUICK_DOWNSETS:
            return "exact", f"{count} downsets: few enough to search all chains of them"
        return "parmesan", f"{count} downsets may take minutes; --exact searches for a proof"
    return ("exact" if exact else "parmesan"), reason
