"""All bounds of an instance, the cheap ones first: a method of its own, and how the exact methods begin."""

from functools import partial

from formulations.contract.family import Answer
from formulations.device_mapping.annealing.baselines import pipeline_major, stage_major
from formulations.device_mapping.bounds.combinatorial import (
    assignment_bound,
    greatest_refutable,
    groupings,
    refutes_target,
)
from formulations.device_mapping.data.arrays import arrays
from formulations.device_mapping.data.costs import single_bound
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.models.bisect_gap import Decide, Gap, Verdict, objective_values
from formulations.device_mapping.models.machine_groups import places_of
from formulations.device_mapping.models.model_choice import TargetModels
from instances.problems.device_mapping import DeviceMapping
from solvers.outcome import Limits, Prover, Stop, Watch

#: Seconds for one target of the relaxation to groups, and halvings.
_GROUP_S, _HALVINGS = 2.0, 24


def begin(instance: DeviceMapping, limits: Limits, watch: Watch, prover: str) -> TargetModels:
    """The gap between consecutive mappings and no bound.

    ``prover``: whose proof a model's refutation is.
    """
    given = arrays(instance)
    gap = Gap(given, watch, objective_values(given), limits.gap, prover)
    for plan in (stage_major(instance), pipeline_major(instance)):
        gap.offer(plan)
    return TargetModels(given, gap, limits)


def raise_bound(models: TargetModels) -> dict[str, float]:
    """Report all bounds of this module to the watch; returns those that were computed, in seconds."""
    given, gap, watch = models.arrays, models.gap, models.gap.watch
    found: dict[str, float] = {}
    found["bound_single_nodes"] = single_bound(given)
    watch.bound(found["bound_single_nodes"], Prover.BOUNDS)
    if not (gap.is_closed or watch.stopped()):
        found["bound_assignment"] = assignment_bound(given)
        watch.bound(found["bound_assignment"], Prover.BOUNDS)
    if not (gap.is_closed or watch.stopped()):
        consistent = greatest_refutable(
            gap.lower,
            gap.upper,
            lambda target: refutes_target(given, target, watch.stopped),
            lambda: not watch.stopped(),
        )
        found["bound_consistency"] = consistent
        watch.bound(consistent, Prover.BOUNDS)
    for number, groups in enumerate(groupings(given)):
        if gap.is_closed or watch.stopped():
            break
        found[f"bound_groups_{number}"] = _by_halving(models.gap, partial(models.places, places_of(given, groups)))
    return found


def _by_halving(gap: Gap, decide: Decide) -> float:
    """Raise the bound by a relaxation that refutes targets; returns the greatest refuted one."""
    low, high = gap.lower, gap.upper
    for _ in range(_HALVINGS):
        target = gap.target(low, high, 0.5)
        if target is None or gap.watch.stopped() or high - low < 1e-6 * high:
            break
        if gap.decide(decide, target, _GROUP_S) in (Verdict.REFUTED, Verdict.EXCLUDED):
            low = gap.lower
        else:
            high = target
    return gap.lower


def solve(instance: DeviceMapping, limits: Limits, watch: Watch) -> Answer[Mapping]:
    """The better consecutive mapping with the best bound that no exact model is needed for."""
    if watch.stopped():
        return Answer(stop=watch.why())
    models = begin(instance, limits, watch, Prover.BOUNDS)
    found = raise_bound(models)
    return answer(models, watch.why(Stop.COMPLETED), found)


def answer(models: TargetModels, stop: Stop, found: dict[str, float]) -> Answer[Mapping]:
    """What a run holds, with counts that explain its effort."""
    watch = models.gap.watch
    return Answer(
        watch.best_plan,
        watch.best_bound,
        stop=Stop.PROVED if models.gap.is_closed else stop,
        solver=models.solver,
        stats={
            **dict(sorted(models.gap.counts.items())),
            "branches": models.branches,
            "conflicts": models.conflicts,
            **found,
        },
    )
