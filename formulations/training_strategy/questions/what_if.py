"""What may be in conflict in an instance of training strategy, what may repair it, and of what there may be more."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from formulations.contract.rounding import plural
from formulations.contract.what_if import (
    Change,
    Member,
    More,
    layers_among,
    once,
    one_requirement_less,
    requirement_members,
    rules_among,
    stage_rows,
    without_requirements,
)
from formulations.stage_partitioning.questions import what_if as flat_questions
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import chunk_times, peak_memory
from formulations.training_strategy.definition.settings import shareable
from formulations.training_strategy.degrees import all_degrees
from formulations.training_strategy.trainer_chain import space_of
from instances.parameters import MAX_AMOUNT, MAX_COUNT
from instances.problems.stage_partitioning import Layer, StageInstance
from instances.problems.training_strategy import Schedule, StrategyInstance
from instances.requirements import Requirement
from instances.rules import NodeId

#: What of the flat instance's repairs is none here: plans do not have stages whose degrees sum to the micro-batches.
_FLAT_ALONE = {"microbatches", "cost-model", "devices"}
#: Numbers that a plan may have to choose where none is 1; what they are of, and that of 1.
_SEVERAL = {
    "ep": ("ep_degrees", "{} devices share the experts of a layer", "experts that devices do not share"),
    "shard-groups": ("shard_groups", "replicas share in {} groups each", "replicas that share in one group"),
}

#: Quantities of degrees in the order in which a reader asks what another value would cost.
_DECIDED = (
    *("tp_degree", "pp_degree", "dp_degree", "cp_degree", "ep_degree"),
    *("sharding", "shard_groups", "sequence_parallel", "virtual_stages"),
)


def members(instance: StrategyInstance) -> tuple[Member, ...]:
    """The schedules without 1F1B; what is shared; what has to be; and as in the flat instance."""
    flat, found = flat_questions.members(instance.flat), []
    if Schedule.ONE_F_ONE_B not in instance.schedules:
        found.append(Member("rule", "schedule", f"the schedule is {' or '.join(instance.schedules)}"))
    if not {*shareable(instance)} <= {*instance.levels}:
        found.append(Member("rule", "sharding", f"replicas share at level {' or '.join(map(str, instance.levels))}"))
    found += [
        Member("rule", name, says.format(" or ".join(map(str, getattr(instance, field)))))
        for name, (field, says, _) in _SEVERAL.items()
        if _alone(instance, field) is not None
    ]
    found += requirement_members(instance)
    found += [each for each in flat if each.name in ("max-dp", "devices", "memory") and each.kind == "rule"]
    shares = ", before any of it is shared" if max(instance.levels) or max(instance.cp_degrees) > 1 else ""
    return (*found, *(replace(each, says=each.says + shares) for each in flat if each.kind == "layer"))


def relax(instance: StrategyInstance, dropped: frozenset[Member]) -> list[StrategyInstance]:
    """The instance without some rules, and with layers that need nothing and run at every degree.

    The names of a layer's TMPCs stay, as trainers read from them what is recomputed.
    """
    names, free, flat = rules_among(dropped), layers_among(dropped), instance.flat
    kept = without_requirements(instance, dropped)
    if "schedule" in names:
        kept = replace(kept, schedules=(*kept.schedules, Schedule.ONE_F_ONE_B))
    if "sharding" in names:
        kept = replace(kept, sharding=_levels(instance))
    for field in (field for name, (field, *_) in _SEVERAL.items() if name in names):
        kept = _alone(kept, field) or kept
    if "max-dp" in names:
        flat = replace(flat, max_dp_degree=None)
    if "devices" in names:
        flat = replace(flat, num_devices=max(flat.num_devices, _most_devices(replace(kept, flat=flat))))
    if "memory" in names:
        flat = replace(flat, memory_bytes=MAX_AMOUNT)
    if free:
        flat = replace(flat, layers=tuple(_free(instance, each) if each.id in free else each for each in flat.layers))
        own = {v: replace(each, expert_weight_bytes=0.0) if v in free else each for v, each in kept.exchanged.items()}
        kept = replace(kept, exchanged=own)
    return [replace(kept, flat=flat)]


def _most_devices(instance: StrategyInstance) -> int:
    """As many as plans can use: a device of a pipeline for each layer, and the largest degrees."""
    flat = instance.flat
    most = len(flat.layers) * _degrees(instance)[-1] * max(instance.cp_degrees)
    return min(MAX_COUNT, most * (flat.max_dp_degree or flat.num_microbatches))


def _alone(instance: StrategyInstance, field: str) -> StrategyInstance | None:
    """The instance with 1 as well among numbers that plans choose from; ``None`` if it is there."""
    own = getattr(instance, field)
    changes: dict[str, Any] = {field: (1, *own)}
    return None if not own or 1 in own else replace(instance, **changes)


def _levels(instance: StrategyInstance) -> tuple[int, ...]:
    return tuple(sorted({*instance.levels, *shareable(instance)}))


def _degrees(instance: StrategyInstance) -> list[int]:
    """All at which some layer runs, and 1."""
    return sorted({1, *(t for layer in instance.flat.layers for t in layer.tmpcs)})


def _free(instance: StrategyInstance, layer: Layer) -> Layer:
    nothing: dict[str, Any] = {"time": 0.0, "weight_bytes": 0.0, "activation_bytes": 0.0, "static_bytes": 0.0}
    least = layer.tmpcs[min(layer.tmpcs)]
    found = {t: tuple(replace(x, **nothing) for x in layer.tmpcs.get(t) or least) for t in _degrees(instance)}
    return replace(layer, tmpcs=found, weight_times={})


def repairs(instance: StrategyInstance, layers: Sequence[NodeId]) -> list[list[Change[StrategyInstance]]]:
    """Those of the flat instance that are some here, 1F1B, more that is shared, a requirement less."""
    groups = flat_questions.repairs(instance.flat, layers)
    found = [[_lift(instance, each) for each in group if each.name not in _FLAT_ALONE] for group in groups]
    found.append([_devices(instance)])
    if Schedule.ONE_F_ONE_B not in instance.schedules:
        more = replace(instance, schedules=(*instance.schedules, Schedule.ONE_F_ONE_B))
        found.append([once("schedule", "the schedule 1F1B", more)])
    if (levels := _levels(instance)) != tuple(sorted(instance.levels)):
        text = f"replicas that share at level {' or '.join(map(str, levels))}"
        found.append([once("sharding", text, replace(instance, sharding=levels))])
    ones = ((name, text, _alone(instance, field)) for name, (field, _, text) in _SEVERAL.items())
    found += [[once(name, text, fewer)] for name, text, fewer in ones if fewer is not None]
    return [*filter(None, found), *([each] for each in one_requirement_less(instance))]


def _lift(instance: StrategyInstance, change: Change[Any]) -> Change[StrategyInstance]:
    """A change of the flat instance; what a plan needs is its peak."""
    needed = None if change.needed is None else lambda plan: max(peak_memory(instance, plan))
    return replace(change, changed=lambda amount: _with(instance, change.changed(amount)), needed=needed)


def _with(instance: StrategyInstance, flat: StageInstance) -> StrategyInstance:
    """With another flat instance: what is faster between machines is so in them, too, but where that was slower."""
    inner = instance.inner_bandwidth
    if inner is not None and inner >= instance.flat.bandwidth:
        inner = max(inner, flat.bandwidth)
    return replace(instance, flat=flat, inner_bandwidth=inner)


def _devices(instance: StrategyInstance) -> Change[StrategyInstance]:
    K, most = instance.flat.num_devices, _most_devices(instance)
    return Change(
        "devices",
        lambda amount: plural(int(amount), "device"),
        lambda amount: _with(instance, replace(instance.flat, num_devices=int(amount))),
        range(K + 1, most + 1),
        untried=f"more than {most} devices" if most == MAX_COUNT else "",
    )


def resources(instance: StrategyInstance) -> list[More[StrategyInstance]]:
    """One more GiB on each device, one more device, one more GB/s."""
    found = []
    for more in flat_questions.resources(instance.flat):
        change = _devices(instance) if more.change.name == "devices" else _lift(instance, more.change)
        found.append(More(change, more.unit, more.amount))
    return found


def rows(instance: StrategyInstance, plan: StrategyPlan) -> list[dict[str, Any]]:
    """Layers of every device of a pipeline, its time for a micro-batch, and its memory."""
    times = [chunk_times(instance, plan, chunk) for chunk in plan.chunks]
    spent = [sum(times[g].forward + times[g].backward + times[g].weight for g in held) for held in plan.held]
    own = [{"nodes": [v for g in held for v in plan.chunks[g]]} for held in plan.held]
    limits = [instance.flat.memory_bytes] * plan.pp_degree
    return stage_rows(own, "time_per_microbatch", spent, peak_memory(instance, plan), limits)


def decisions(instance: StrategyInstance) -> list[Requirement]:
    """Each degree, level of sharding and schedule that some plan has, whatever fits: of those on most devices."""
    space = space_of(instance)
    every = all_degrees(instance if space is None else space.instance)
    plans = [each.plan() for each in every if space is None or space.runs(each)]
    most = max((plan.num_devices for plan in plans), default=0)
    plans = [plan for plan in plans if plan.num_devices == most]
    values = {name: sorted({int(getattr(plan, name)) for plan in plans}) for name in _DECIDED}
    found = [Requirement(name, (), "==", value) for name, own in values.items() for value in own]
    return [*found, *(Requirement("schedule", (str(each),), "==", 1, True) for each in instance.schedules)]
