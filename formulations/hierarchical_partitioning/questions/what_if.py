"""What may be in conflict in an instance of hierarchical partitioning, and what may repair it.

The crude memory model counts as many micro-batches as the devices can hold at most: more machines, devices or
micro-batches then need more memory, so that their numbers stay.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from formulations.contract.rounding import plural
from formulations.contract.what_if import (
    Change,
    Member,
    More,
    more_memory,
    once,
    one_requirement_less,
    requirement_members,
    rules_among,
    stage_rows,
    without_requirements,
)
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan, spans
from formulations.hierarchical_partitioning.definition.problem import flatten, most_memory, sample_times
from formulations.stage_partitioning.definition.problem import stage_memory, suffix_sums
from formulations.stage_partitioning.definition.settings import PER_SECOND
from formulations.stage_partitioning.questions import what_if as flat_questions
from formulations.stage_partitioning.questions.why_infeasible import most_devices, unlimited_devices
from instances.parameters import MAX_COUNT
from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel, Objective
from instances.problems.stage_partitioning import StageInstance
from instances.rules import NodeId

_MODEL = "memory-model"


def members(instance: HierarchicalInstance) -> tuple[Member, ...]:
    """Rules and requirements, then the layers, those that need little first."""
    K1, K2, model = instance.devices_per_machine, instance.num_machines, instance.memory_model
    flat = {each.name: each for each in flat_questions.members(replace(instance.flat, num_devices=K1))}
    found = []
    if model is MemoryModel.CRUDE:
        text = "a stage holds its share of as many micro-batches as the devices can take (memory model crude)"
        found.append(Member("rule", _MODEL, text))
    else:
        found.append(flat["microbatches"])
    found += requirement_members(instance)
    if model is not MemoryModel.CRUDE:
        found.append(Member("rule", "machines", f"there {'is' if K2 == 1 else 'are'} {plural(K2, 'machine')}"))
        found.append(Member("rule", "devices", f"a machine has {plural(K1, 'device')}"))
    if model is not MemoryModel.NONE:
        found.append(flat["memory"])
    return (*found, *(each for each in flat.values() if each.kind == "layer"))


def relax(instance: HierarchicalInstance, dropped: frozenset[Member]) -> list[HierarchicalInstance]:
    """The instance without some rules, and with layers that need nothing and run at every degree.

    Machines are then as many as the micro-batches, devices of a machine as many as these and the largest degree can
    take, and micro-batches as many as all devices.
    """
    names, kept = rules_among(dropped), without_requirements(instance, dropped)
    kept = replace(kept, objective=Objective.STEADY)  # plans that keep the rules are the same ones
    if _MODEL in names:
        kept = replace(kept, memory_model=MemoryModel.PRECISE)
    flat, K1, K2 = kept.flat, kept.devices_per_machine, kept.num_machines
    if "devices" in names:
        K1 = max(K1, unlimited_devices(flat))
    if "machines" in names:
        K2 = max(K2, flat.num_microbatches)
    rest = frozenset(each for each in dropped if each.name not in ("devices", "machines", _MODEL))
    [flat] = flat_questions.relax(replace(flat, num_devices=min(K1 * K2 * _above(kept), MAX_COUNT)), rest)
    return [_place(kept, flat, K1, K2)]


def _above(instance: HierarchicalInstance) -> int:
    """Devices of level 3, each of which has as many machines."""
    return instance.all_machines // instance.num_machines


def _place(instance: HierarchicalInstance, flat: StageInstance, inner: int, machines: int) -> HierarchicalInstance:
    """The instance with a flat one on machines; of as many of them as an instance may declare."""
    above = _above(instance)
    machines = max(1, min(machines, MAX_COUNT // (inner * above)))
    flat = replace(flat, num_devices=inner * machines * above)
    return replace(instance, flat=flat, devices_per_machine=inner, num_machines=machines)


def repairs(instance: HierarchicalInstance, layers: Sequence[NodeId]) -> list[list[Change[HierarchicalInstance]]]:
    """More memory, machines, devices or micro-batches, a TMPC more, smaller micro-batches, a rule less."""
    crude, none = (instance.memory_model is model for model in (MemoryModel.CRUDE, MemoryModel.NONE))
    found = [] if none else [[_memory(instance)]]
    wanted = ["tmpc", "microbatch-size"]
    if crude:
        precise = replace(instance, memory_model=MemoryModel.PRECISE)
        found.append([once(_MODEL, "memory counted with --memory-model precise", precise)])
    else:
        found += [[_machines(instance)], [_devices(instance)]]
        wanted.append("microbatches")
    for group in flat_questions.repairs(instance.flat, layers):
        if group and group[0].name in wanted:
            found.append([_lift(instance, each) for each in group])
    return [*found, *([each] for each in one_requirement_less(instance))]


def _lift(instance: HierarchicalInstance, change: Change[Any]) -> Change[HierarchicalInstance]:
    return replace(change, changed=lambda amount: replace(instance, flat=change.changed(amount)))


def _memory(instance: HierarchicalInstance) -> Change[HierarchicalInstance]:
    [memory] = next(iter(flat_questions.repairs(instance.flat, [])))
    return replace(_lift(instance, memory), needed=lambda plan: most_memory(instance, plan))


def _machines(instance: HierarchicalInstance) -> Change[HierarchicalInstance]:
    usable = instance.flat.num_microbatches
    most = min(usable, MAX_COUNT // (instance.devices_per_machine * _above(instance)))
    return Change(
        "machines",
        lambda amount: plural(int(amount), "machine"),
        lambda amount: _place(instance, instance.flat, instance.devices_per_machine, int(amount)),
        range(instance.num_machines + 1, most + 1),
        untried=f"more than {most} machines" if most < usable else "",
    )


def _devices(instance: HierarchicalInstance) -> Change[HierarchicalInstance]:
    usable = most_devices(instance.flat)
    most = min(usable, MAX_COUNT // instance.all_machines)
    return Change(
        "devices",
        lambda amount: f"{plural(int(amount), 'device')} in each machine",
        lambda amount: _place(instance, instance.flat, int(amount), instance.num_machines),
        range(instance.devices_per_machine + 1, most + 1),
        untried=f"more than {most} devices in each machine" if most < usable else "",
    )


def resources(instance: HierarchicalInstance) -> list[More[HierarchicalInstance]]:
    """One more GiB on each device, one more machine, one more device in each, one more GB/s inside and between them."""
    gigabyte = 1e9 / PER_SECOND[instance.flat.time_unit]
    found = []
    if instance.memory_model is not MemoryModel.NONE:
        found.append(more_memory(_memory(instance)))
    K1, K2 = instance.devices_per_machine, instance.num_machines
    found.append(More(replace(_machines(instance), steps=()), "one more machine", K2 + 1))
    found.append(More(replace(_devices(instance), steps=()), "one more device in each machine", K1 + 1))
    for name, where in (("inner_bandwidth", "inside machines"), ("outer_bandwidth", "of each machine's link")):
        more = getattr(instance, name) + gigabyte
        found.append(More(_bandwidth(instance, name), f"one more GB/s {where}", more))
    return found


def _bandwidth(instance: HierarchicalInstance, name: str) -> Change[HierarchicalInstance]:
    def changed(amount: float) -> HierarchicalInstance:
        flat = replace(instance.flat, bandwidth=amount) if name == "outer_bandwidth" else instance.flat
        fields: dict[str, Any] = {name: amount}
        return replace(instance, flat=flat, **fields)

    return Change(name.replace("_", "-"), lambda amount: f"{amount:g}", changed)


def rows(instance: HierarchicalInstance, plan: HierarchicalPlan) -> list[dict[str, Any]]:
    """Time and memory of every superstage."""
    times, held = sample_times(instance, plan), _superstage_bytes(instance, plan)
    machines = [span.replicas for span in spans(plan)[0]]
    room = math.inf if instance.memory_model is MemoryModel.NONE else instance.flat.memory_bytes
    own = (
        {
            "nodes": [node for stage in superstage.inner for node in stage.nodes],
            "machines": count,
            "devices_per_machine": superstage.num_devices,
        }
        for superstage, count in zip(plan.stages, machines, strict=True)
    )
    return stage_rows(own, "time_per_sample", times, held, [room] * len(held))


def _superstage_bytes(instance: HierarchicalInstance, plan: HierarchicalPlan) -> list[float]:
    """Bytes of the device of each superstage that holds most; 0 where the memory model counts nothing."""
    model, whole = instance.memory_model, flatten(plan)
    if model is MemoryModel.NONE:
        return [0.0] * len(plan.stages)
    if model is MemoryModel.CRUDE:
        return [most_memory(instance, HierarchicalPlan((each,))) for each in plan.stages]
    sums = suffix_sums(whole)
    held = iter([stage_memory(instance.flat, stage, s) for stage, s in zip(whole.stages, sums, strict=True)])
    return [max(itertools.islice(held, len(superstage.inner))) for superstage in plan.stages]
