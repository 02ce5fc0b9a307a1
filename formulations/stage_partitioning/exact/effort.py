"""How much work the methods would have with an instance, predicted without building anything; and the choice.

Thresholds measured in November 2026 on two shared cores (one thread, numba kernels warm).
"""

from formulations.compiled.downsets import all_downsets, too_many
from formulations.stage_partitioning import model_size
from formulations.stage_partitioning.exact.required import refusal
from formulations.stage_partitioning.methods import MAX_DOWNSETS, MAX_LABELS, MAX_TABLE
from instances.problems.stage_partitioning import StageInstance
from instances.requirements import requirements_of
from solvers.outcome import Limits

#: Steps of the exact method's inner loop in a second (17,914 downsets of GNMT: 0.15 to 3 s).
_STEPS_PER_S = 5e8

#: How long the exact search may take for the dispatcher to choose it where no limit is given.
_PATIENCE_S = 600.0


def downset_count(instance: StageInstance) -> int | None:
    """Number of downsets, or ``None`` if there are more than ``MAX_DOWNSETS``."""
    found = all_downsets(instance, MAX_DOWNSETS)
    return None if found is None else len(found)


def max_sum(instance: StageInstance) -> int:
    """The largest sum of data-parallel degrees that a plan can have."""
    return min(instance.num_microbatches, instance.num_devices)


def exact_supports(instance: StageInstance) -> str | None:
    """Whether the exact method can hold its table."""
    count = downset_count(instance)
    if count is None:
        return f"{too_many(len(instance.layers), MAX_DOWNSETS)}; linearised searches a few orders"
    if count * (max_sum(instance) + 1) > MAX_LABELS:
        return f"{count} downsets times {max_sum(instance)} micro-batches do not fit; try --microbatches or linearised"
    return refusal(instance, count) if instance.requirements else None


def exact_effort(instance: StageInstance) -> float:
    """Pairs of downsets, times degrees: one threshold test without any pruning."""
    count = downset_count(instance) or MAX_DOWNSETS
    return 0.5 * count * count * max(1, len(instance.tp_degrees))


def labels_effort(instance: StageInstance) -> float:
    """Downsets, times degrees, times the sums of a downset's labels and what is walked of its pairs."""
    count = downset_count(instance) or MAX_DOWNSETS
    return float(count * max(1, len(instance.tp_degrees)) * (max_sum(instance) + count / 2000))


def table_supports(instance: StageInstance) -> str | None:
    """Whether the published program's table dp[D][k][s] is small enough to start."""
    count = downset_count(instance)
    if count is None:
        return f"{too_many(len(instance.layers), MAX_DOWNSETS)}; linearised searches a few orders"
    entries = count * (max_sum(instance) + 1) * (instance.num_devices + 1)
    if entries > MAX_TABLE:
        return f"dp[D][k][s] would have {entries:.2g} entries before pruning; at most {MAX_TABLE:.0e} are started"
    return None


def table_effort(instance: StageInstance) -> float:
    """Pairs of downsets, times degrees, and the entries of the table."""
    count = downset_count(instance) or MAX_DOWNSETS
    return exact_effort(instance) + count * (max_sum(instance) + 1.0) * (instance.num_devices + 1)


def linearised_effort(instance: StageInstance) -> float:
    """Pairs of downsets of a few orders in a few rounds, times degrees."""
    return 100.0 * len(instance.layers) ** 2 * max(1, len(instance.tp_degrees))


def realizable_supports(instance: StageInstance) -> str | None:
    """Whether the instance requires the plan of a trainer, and nothing else."""
    if not _requires_trainer(instance):
        return "it takes instances with one requirement realizable(TRAINER), as --realizable makes them"
    return "it does not count activations that layers of several stages keep" if instance.shared_activations else None


def _requires_trainer(instance: StageInstance) -> bool:
    found = requirements_of(instance)
    return len(found) == 1 and found[0].quantity == "realizable" and not found[0].holds(0) and found[0].holds(1)


def choose(instance: StageInstance, limits: Limits, exact: bool) -> tuple[str, str]:
    """The dispatcher's choice and its reason (`formulations.contract.family.Family.choose`)."""
    if _requires_trainer(instance):
        return "realizable", "only plans that the trainer can run: degrees and cuts are enumerated"
    reason = exact_supports(instance)
    if reason is None:
        count, seconds = downset_count(instance), 15 * exact_effort(instance) / _STEPS_PER_S
        if exact or seconds <= (_PATIENCE_S if limits.time_s is None else limits.time_s):
            return "exact", f"{count} downsets: few enough for the exact threshold search"
        return "linearised", f"{count} downsets may take {seconds:.0f} s: linearised searches a few orders"
    if exact and (model_size.assignment_supports(instance) or model_size.blocks_too_large(instance)) is None:
        return "cpsat", reason
    return ("exact", reason) if exact else ("linearised", reason)
