"""What may be in conflict in a stage graph and its devices, what may repair it, and which numbers may be off."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from formulations.contract.rounding import bytes_text
from formulations.contract.what_if import (
    Change,
    Factor,
    Member,
    More,
    layers_among,
    more_bandwidth,
    more_memory,
    named,
    once,
    one_requirement_less,
    other_memory,
    requirement_members,
    rules_among,
    stage_rows,
    without_requirements,
)
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import memory_bytes, room_bytes, tps
from formulations.stage_graph.questions.alternatives import memory
from instances.parameters import MAX_AMOUNT, MAX_COUNT
from instances.problems.stage_graph import AffineTime, Operator, StageGraph, TableTime
from instances.requirements import requirements_of

_IDLE = "idle_devices"


def members(instance: StageGraph) -> tuple[Member, ...]:
    """Rules and requirements, then the operators, those that need little first."""
    K, graph, found = instance.num_devices, instance.device_graph, []
    if instance.microbatches:
        sizes = ", ".join(map(str, instance.microbatch_sizes))
        found.append(Member("rule", "microbatches", f"micro-batches have {sizes} samples"))
    if graph is not None and any(not link for row in graph.bandwidth_bytes_per_s for link in row):
        found.append(Member("rule", "links", "devices without a link exchange nothing"))
    found += requirement_members(instance)
    found.append(Member("rule", "devices", f"there {'is 1 device' if K == 1 else f'are {K} devices'}"))
    room = "the device graph's bytes" if graph is not None else bytes_text(instance.memory_bytes)
    found.append(Member("rule", "memory", f"a device has {room}"))
    copies, shards = instance.weight_copies, (each.shards.values() for each in instance.operators)
    needs = [min(copies * shard.weight_bytes + shard.activation_bytes for shard in own) for own in shards]
    order = sorted(range(instance.num_operators), key=needs.__getitem__)
    return (*found, *(Member("layer", instance.id_of(node), _need_text(instance, node, needs[node])) for node in order))


def _need_text(instance: StageGraph, node: int, needed: float) -> str:
    shown = named(instance.id_of(node), instance.operators[node].name)
    return f"operator {shown} needs at least {bytes_text(needed)} on each of its devices"


def relax(instance: StageGraph, dropped: frozenset[Member]) -> list[StageGraph]:
    """The instance without some rules, and with operators that need nothing and take in nothing.

    Without the number of devices there are as many as every operator's replicas can be, each with the largest memory
    and with links, and idle ones as required; without sizes a micro-batch may be any divisor of the mini-batch.
    """
    names, free = rules_among(dropped), {instance.index[node] for node in layers_among(dropped)}
    kept = without_requirements(instance, dropped)
    graph = kept.device_graph
    if "microbatches" in names:
        kept = replace(kept, microbatches=())
    if "memory" in names:
        kept = replace(kept, memory_bytes=MAX_AMOUNT)
        graph = graph and replace(graph, memory_bytes=(MAX_AMOUNT,) * kept.num_devices)
    if "devices" in names:
        if graph is not None:
            kept, graph = replace(kept, memory_bytes=max(graph.memory_bytes)), None
        least, most = _idle(kept)
        kept = _any_idle(kept) if most is None or least <= most else kept
        kept = replace(kept, num_devices=max(instance.num_devices, min(_usable(instance), MAX_COUNT)))
    if "links" in names and graph is not None:
        rows = tuple(tuple(link or 1.0 for link in row) for row in graph.bandwidth_bytes_per_s)
        graph = replace(graph, bandwidth_bytes_per_s=rows)
    operators = tuple(_of_no_bytes(each) if node in free else each for node, each in enumerate(kept.operators))
    edges = tuple(replace(each, bytes_per_sample=0.0) if each.target in free else each for each in kept.edges)
    return [replace(kept, device_graph=graph, operators=operators, edges=edges)]


def _of_no_bytes(operator: Operator) -> Operator:
    shards = tuple(replace(each, weight_bytes=0.0, activation_bytes=0.0) for each in operator.tensor_parallel)
    return replace(operator, weight_bytes=0.0, activation_bytes=0.0, tensor_parallel=shards)


def repairs(instance: StageGraph, _: Sequence[int | str]) -> list[list[Change[StageGraph]]]:
    """More memory, more devices (where all are the same), other micro-batches, links, a requirement less."""
    found = [_memory(instance)]
    if instance.device_graph is None:
        found.append(_devices(instance))
    if instance.microbatches:
        text = "micro-batches of any size that divides the mini-batch"
        found.append(once("microbatches", text, replace(instance, microbatches=())))
    return [*([each] for each in found), *([each] for each in one_requirement_less(instance))]


def _memory(instance: StageGraph) -> Change[StageGraph]:
    graph = instance.device_graph

    def with_memory(amount: float) -> StageGraph:
        if graph is None:
            return replace(instance, memory_bytes=amount)
        rooms = tuple(max(own, amount) for own in graph.memory_bytes)
        return replace(instance, device_graph=replace(graph, memory_bytes=rooms))

    return other_memory(
        instance.memory_bytes if graph is None else min(graph.memory_bytes),
        with_memory,
        lambda plan: memory(instance, plan),
        says="{} on each device" if graph is None else "at least {} on each device",
    )


def _devices(instance: StageGraph) -> Change[StageGraph]:
    """More devices, as many as plans can use and requirements want idle; with more of them there are no other plans.

    A plan that uses u devices, from ``least`` to ``most`` of them idle, is one of K devices where u + ``least`` <= K <=
    u + ``most``. So some number from one more than declared up to K has a plan if one uses at least ``used`` and at
    most K - ``least``; and the first such number is the first for which there is such a plan.
    """
    K, (least, most) = instance.num_devices, _idle(instance)
    used = 1 if most is None else max(1, K + 1 - most)
    first = max(K + 1, used + least)
    is_possible = most is None or (least <= most and used <= _usable(instance))
    last = max(first, _usable(instance) + least) if is_possible else 0

    def within(amount: float) -> StageGraph:
        devices = int(amount) - least
        more = () if most is None else (f"idle_devices <= {devices - used}",)
        return replace(_any_idle(instance, *more), num_devices=devices)

    return Change(
        "devices",
        lambda amount: f"{amount:.0f} devices",
        lambda amount: replace(instance, num_devices=int(amount)),
        range(first, min(last, MAX_COUNT) + 1),
        within=within,
        untried=f"more than {MAX_COUNT} devices" if last > MAX_COUNT else "",
    )


def _usable(instance: StageGraph) -> int:
    """No plan uses more devices: every operator a stage of its own, with a replica for each sample, shared by most."""
    return instance.minibatch * sum(max(each.shards) for each in instance.operators)


def _idle(instance: StageGraph) -> tuple[int, int | None]:
    """How many idle devices are required at least and at most (``None``: any number)."""
    wanted = [each for each in requirements_of(instance) if each.quantity == _IDLE]
    least = max([0, *(each.amount for each in wanted if each.relation != "<=")])
    return least, min((each.amount for each in wanted if each.relation != ">="), default=None)


def _any_idle(instance: StageGraph, *more: str) -> StageGraph:
    """The instance with these requirements in place of those on idle devices."""
    kept = (str(each) for each in requirements_of(instance) if each.quantity != _IDLE)
    return replace(instance, requirements=(*kept, *more))


def resources(instance: StageGraph) -> list[More[StageGraph]]:
    """One more GiB on each device, one more device, one more GB/s, where all devices are the same."""
    if instance.device_graph is not None:
        return []
    faster: Callable[[float], StageGraph] = lambda amount: replace(instance, bandwidth_bytes_per_s=amount)  # noqa: E731
    found = [more_memory(_memory(instance)), more_bandwidth(instance.bandwidth_bytes_per_s, faster)]
    if instance.num_devices < MAX_COUNT:
        found.insert(1, More(replace(_devices(instance), steps=()), "one more device", instance.num_devices + 1))
    return found


def rows(instance: StageGraph, plan: StagePlan) -> list[dict[str, Any]]:
    """Time per sample and memory of every stage."""
    times = [tps(instance, plan, stage) for stage in range(len(plan.stages))]
    held, rooms = ([of(instance, stage) for stage in plan.stages] for of in (memory_bytes, room_bytes))
    own = (
        {
            "operators": [instance.id_of(node) for node in stage.nodes],
            "devices": stage.devices,
            "microbatch": stage.microbatch,
        }
        for stage in plan.stages
    )
    return stage_rows(own, "time_s_per_sample", times, held, rooms)


def factors(instance: StageGraph) -> list[Factor[StageGraph]]:
    """All bandwidths together, and both passes of every operator."""
    found = [Factor("bandwidth", "bandwidth", partial(_faster, instance))]
    for node in range(instance.num_operators):
        name = f"time of operator {instance.id_of(node)}"
        found.append(Factor(name, name, partial(_scale_operator, instance, node)))
    return found


def _faster(instance: StageGraph, times: float) -> StageGraph:
    inner, graph = instance.inner_bandwidth_bytes_per_s, instance.device_graph
    if graph is not None:
        rows = tuple(tuple(link * times for link in row) for row in graph.bandwidth_bytes_per_s)
        graph = replace(graph, bandwidth_bytes_per_s=rows)
    return replace(
        instance,
        bandwidth_bytes_per_s=instance.bandwidth_bytes_per_s * times,
        inner_bandwidth_bytes_per_s=None if inner is None else inner * times,
        device_graph=graph,
    )


def _scale_operator(instance: StageGraph, node: int, factor: float) -> StageGraph:
    operators = list(instance.operators)
    operators[node] = _scale_times(operators[node], factor)
    return replace(instance, operators=tuple(operators))


def _scale_times(operator: Operator, factor: float) -> Operator:
    forward, backward = _slower(operator.forward, factor), _slower(operator.backward, factor)
    shards = tuple(
        replace(each, forward=_slower(each.forward, factor), backward=_slower(each.backward, factor))
        for each in operator.tensor_parallel
    )
    return replace(operator, forward=forward, backward=backward, tensor_parallel=shards)


def _slower(time: AffineTime | TableTime, factor: float) -> AffineTime | TableTime:
    if isinstance(time, AffineTime):
        return AffineTime(time.fixed_s * factor, time.per_sample_s * factor)
    return replace(time, seconds=tuple(each * factor for each in time.seconds))


def noisy(instance: StageGraph, draw: Callable[[], float]) -> StageGraph:
    """A factor on all bandwidths, and one on both passes of every operator."""
    operators = tuple(_scale_times(each, draw()) for each in instance.operators)
    return replace(_faster(instance, draw()), operators=operators)
