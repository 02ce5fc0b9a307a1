"""Training strategies: the definition, naively and without any solver.

A plan has pp_degree p, tp_degree t, cp_degree c and dp_degree d: d pipelines of p devices, each of them c t real ones,
run N/d micro-batches each, in the orders of a schedule that trainers run. The layers are cut into p V chunks; device i
has chunks i, i + p, and so on, or in a V chunks i and 2p - 1 - i. The objective is the time of one batch: the simulated
iteration of a pipeline, and behind it the longest sum of gradients over the c d devices of equal weights (B on
several machines: `sharing.bandwidth`)::

    simulate(chunks, orders) + max over devices of 4 (c d-1)/(c d) * weights / B

A micro-batch takes a chunk the compute times of its layers and, as in Piper's cost model, what crosses its boundaries,
sent and received; in a V what stays on a device takes nothing. Of that the forward pass is a third (an instance has
only the sum), the backward pass the rest. Where a schedule splits it, half of it are weight gradients (W). If some
layers say how long theirs take at the degree (`Layer.weight_times`), W is the sum of these, and of a third of the other
layers' times; B is what it leaves, with all that comes back. A TMPC that takes longer than the fastest one of its layer
and degree recomputes activations: the difference belongs to B.

Where replicas share optimizer states, each of them updates its part of the weights: gradients are reduce-scattered and
weights all-gathered, which together send what an all-reduce does. More that they share is sent beside passes (`ways`).

Where optimizer states are on the host, each device sends it their gradients and gets their weights back, with one
replica, too: that follows the sum on each device (`host_time`).

With ``overlaps_gradients`` an all-reduce, or the scattered half, does not wait for all devices (`Behind`)::

    max over devices of the end of its passes and sums + max over devices of what is left

Source: Narayanan et al. 2021, section 2.2, and Qi et al. 2024 for the schedules (`formulations.simulation.orders`);
Piper, section 4, for times and sums of gradients; for overlap, Megatron-LM's distributed_data_parallel.py, which has
buckets on the first pipeline rank's first chunk alone, as the others' sums end before.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from formulations.contract.violation import Violation
from formulations.simulation.iteration import Iteration, Stages, simulate
from formulations.simulation.orders import SCHEDULES, Action
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.sharing import (
    bandwidth,
    has_groups,
    no_experts,
    offers_sequences,
    shared_in,
    shares_of_sums,
    update_times,
    ways,
    weight_time,
)
from instances.problems.stage_partitioning import Tmpc
from instances.problems.training_strategy import Schedule, StrategyInstance
from instances.rules import NodeId
from instances.units import of_room


@dataclass(frozen=True)
class ChunkTimes:
    """Times of a micro-batch's passes through a chunk; ``weight`` is 0 where it is part of ``backward``."""

    forward: float
    backward: float
    weight: float = 0.0


def chunk_times(instance: StrategyInstance, plan: StrategyPlan, chunk: Sequence[NodeId]) -> ChunkTimes:
    """Times of a chunk, in the instance's unit."""
    flat, inside, by = instance.flat, set(chunk), shared_in(instance, plan)
    near = _near(plan, chunk)
    rate = bandwidth(instance, by.of_stages)
    fastest, again, transfers = [], [], []
    for node in chunk:
        least = min(x.time for x in _ways(instance, plan, node))
        fastest.append(least)
        again.append(chosen(instance, plan, node).time - least)
    for edge in flat.edges:
        if edge.target in inside and edge.source not in near:
            sync = chosen(instance, plan, edge.target).sync_forward_bytes.get(edge.source, 0.0)
            transfers.append(2 * (edge.bytes / by.context + sync) / rate)
        if edge.source in inside and edge.target not in near:
            sync = chosen(instance, plan, edge.source).sync_backward_bytes.get(edge.target, 0.0)
            transfers.append(2 * (edge.bytes / by.context + sync) / rate)
    third, recomputation = math.fsum([*fastest, *transfers]) / 3, math.fsum(again)
    weight = third if SCHEDULES[plan.schedule].is_split else 0.0
    if weight and any(plan.tp_degree in layer.weight_times for layer in flat.layers):
        weight = math.fsum(_weight_time(instance, plan, node) for node in chunk)
    return ChunkTimes(third, max(0.0, 2 * third - weight) + recomputation, weight)


def _near(plan: StrategyPlan, chunk: Sequence[NodeId]) -> set[NodeId]:
    """Layers to which and from which a chunk sends nothing: its own, and in a V all of its device."""
    if SCHEDULES[plan.schedule].layout == "vee":
        for own in plan.held:
            chunks = [plan.chunks[g] for g in own]
            if tuple(chunk) in chunks:
                return {node for each in chunks for node in each}
    return set(chunk)


def gradient_sum(instance: StrategyInstance, plan: StrategyPlan, chunk: Sequence[NodeId]) -> float:
    """Time of a chunk's all-reduce of gradients over the d replicas, or of what takes its place; Piper's count."""
    weights = math.fsum(chosen(instance, plan, node).weight_bytes for node in chunk)
    rate = bandwidth(instance, shared_in(instance, plan).of_stages)
    return 4 * (plan.replicas - 1) / plan.replicas * weights / rate


def host_time(instance: StrategyInstance, plan: StrategyPlan, chunk: Sequence[NodeId]) -> float:
    """What a chunk's states on the host take behind its sum of gradients; 0 where they are on devices."""
    found = update_times(instance, shared_in(instance, plan), (plan.tp_degree,))
    return math.fsum(found.get((plan.tp_degree, node), 0.0) for node in chunk)


class Behind(NamedTuple):
    """What gradients take: when each device has summed those that may be summed beside passes, and what is left.

    A chunk's sum begins when its last micro-batch has been through the backward pass (W, where that is split); a
    device's sums follow each other in the order of these passes. Those of the first chunk begin in that pass: a layer's
    gradients are there once it and the layers behind it are done, in the least time of a layer, so what is
    recomputed and what is received hide nothing. In a pipeline of FSDP the pass hides nothing either.
    """

    ends: tuple[float, ...]
    left: tuple[float, ...]

    @property
    def time(self) -> float:
        """When weights are updated: no device has them before all have summed, as norms of gradients are of all."""
        return max(self.ends) + max(self.left)


def behind(instance: StrategyInstance, plan: StrategyPlan, ran: Iteration) -> Behind:
    """The sums of gradients beside and behind the passes of an iteration."""
    by = shared_in(instance, plan)
    beside, left = shares_of_sums(instance, by)
    sums = [gradient_sum(instance, plan, chunk) for chunk in plan.chunks]
    ends = []
    for order in ran.orders:
        last: dict[int, float] = {}
        for action in (action for action in order if action.kind != "F"):
            last.pop(action.stage, None)  # chunks in the order of their last passes
            last[action.stage] = ran.end_s[action]
        clock = 0.0
        for stage, end in last.items():
            own = beside * sums[stage]
            clock = max(clock + own, end + (own if stage else exposed_sum(instance, plan)))
        ends.append(clock)
    after = [left * own + host_time(instance, plan, chunk) for own, chunk in zip(sums, plan.chunks, strict=True)]
    return Behind(tuple(ends), tuple(math.fsum(after[g] for g in own) for own in plan.held))


def exposed_sum(instance: StrategyInstance, plan: StrategyPlan) -> float:
    """What of the first chunk's sum beside passes its last backward pass does not hide: at least its last layer's."""
    by = shared_in(instance, plan)
    beside, _ = shares_of_sums(instance, by)
    if by.in_pipeline:
        return beside * gradient_sum(instance, plan, plan.chunks[0])
    is_split = SCHEDULES[plan.schedule].is_split
    sent: list[float] = []
    hidden: list[float] = []
    most = 0.0
    for layer in instance.chain:
        if layer.id in plan.chunks[0]:
            sent.append(beside * gradient_sum(instance, plan, [layer.id]))
            most = max(most, math.fsum(sent) - math.fsum(hidden))
            least = min(x.time for x in _ways(instance, plan, layer.id))
            hidden.append(_weight_time(instance, plan, layer.id) if is_split else 2 / 3 * least)
    return most


def chosen(instance: StrategyInstance, plan: StrategyPlan, node: NodeId) -> Tmpc:
    """The TMPC of a layer; ``ValueError`` if there is none."""
    if node not in instance.flat.index:
        raise ValueError(f"the instance has no node {node!r}")
    found = _find(instance, plan, node)
    if found is None:
        raise ValueError(f"node {node!r} has no TMPC {plan.tmpcs.get(node)!r} {_of(plan)}")
    return found


def orders(instance: StrategyInstance, plan: StrategyPlan) -> tuple[tuple[Action, ...], ...]:
    """The actions of each device of a pipeline; ``ValueError`` if the schedule has none for these numbers."""
    m = instance.flat.num_microbatches // plan.dp_degree
    return SCHEDULES[plan.schedule].orders(plan.pp_degree, m, plan.virtual_stages)


def iteration(instance: StrategyInstance, plan: StrategyPlan) -> Iteration:
    """The simulated iteration of one of the pipelines; errors as of `evaluate`."""
    if len(plan.chunks) != plan.pp_degree * plan.virtual_stages:
        raise ValueError(f"the plan has {len(plan.chunks)} chunks")
    by_device = orders(instance, plan)
    times = [chunk_times(instance, plan, chunk) for chunk in plan.chunks]
    stages = Stages(
        tuple(each.forward for each in times),
        tuple(each.backward for each in times),
        SCHEDULES[plan.schedule].edges(plan.pp_degree, plan.virtual_stages),
        tuple(each.weight for each in times) if SCHEDULES[plan.schedule].is_split else (),
    )
    return simulate(stages, by_device)


def evaluate(instance: StrategyInstance, plan: StrategyPlan) -> float:
    """Time of one iteration, which is a batch of N micro-batches, in the instance's time unit.

    `ValueError` if the plan names a node or TMPC that the instance does not have, its chunks are not p V, or the
    schedule has no order for its numbers.
    """
    ran = iteration(instance, plan)
    if instance.overlaps_gradients:
        return behind(instance, plan, ran).time
    after = [gradient_sum(instance, plan, chunk) + host_time(instance, plan, chunk) for chunk in plan.chunks]
    return ran.with_gradients(after, "barrier")


def made_again(instance: StrategyInstance, plan: StrategyPlan, node: NodeId) -> float:
    """Bytes that a layer makes again where layers do so in turn: what it does not keep of the most that it could."""
    if not instance.makes_again_in_turn:
        return 0.0
    return max(x.activation_bytes for x in _ways(instance, plan, node)) - chosen(instance, plan, node).activation_bytes


def peak_memory(instance: StrategyInstance, plan: StrategyPlan) -> list[float]:
    """Bytes that each device of a pipeline holds at most: what is static, and activations at every moment of its order.

    A forward pass takes its chunk's activations, B gives them back, or W where the backward pass is split. Besides
    there is what one layer makes again (`made_again`).
    """
    gives_back = "W" if SCHEDULES[plan.schedule].is_split else "B"
    chunks = [[chosen(instance, plan, node) for node in chunk] for chunk in plan.chunks]
    found = []
    for own, order in zip(plan.held, orders(instance, plan), strict=True):
        held, moments = dict.fromkeys(own, 0), {tuple(0 for _ in own)}
        for action in order:
            held[action.stage] += (action.kind == "F") - (action.kind == gives_back)
            moments.add(tuple(held.values()))
        again = max(made_again(instance, plan, node) for stage in own for node in plan.chunks[stage])
        static = [again, *(x.static_bytes for stage in own for x in chunks[stage])]
        found.append(
            max(
                math.fsum(
                    [*static, *(n * x.activation_bytes for n, g in zip(counts, own, strict=True) for x in chunks[g])]
                )
                for counts in moments
            )
        )
    return found


def violations(instance: StrategyInstance, plan: StrategyPlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks; empty if it is feasible.

    Rules: ``cover`` (every layer in exactly one chunk, no chunk empty, p V chunks), ``tmpc`` (a TMPC at t for every
    layer, of those that share sequences if the plan does and the layer has the choice), ``order`` (no edge runs
    backwards), ``devices`` (p t c d <= K), ``dp_degree`` (d divides N, and is at most ``max_dp_degree``), ``sharding``
    (one of the instance's levels; sequences where a layer has the choice; c and e among the instance's degrees, e a
    divisor of c d, and sequences are shared if e and t are more than 1; groups that share among the instance's numbers,
    a divisor of d, with several devices in each and no shared experts; dp outermost if the instance takes any order,
    and of several stages if c = e), ``schedule``
    (one of the instance's, with as many chunks on a device as it and the instance take, and an order for these
    numbers), ``memory`` (<= M on every device).
    """
    found = [*_cover(instance, plan), *_tmpcs(instance, plan)]
    if found:  # the other rules speak of the layers and TMPCs of a whole partition
        return tuple(found)
    flat = instance.flat
    chunk_of = {node: position for position, chunk in enumerate(plan.chunks) for node in chunk}
    found += [
        Violation("order", f"edge {edge.source} -> {edge.target} runs back from chunk {chunk_of[edge.source]}")
        for edge in flat.edges
        if chunk_of[edge.source] > chunk_of[edge.target]
    ]
    if plan.num_devices > flat.num_devices:
        found.append(Violation("devices", f"the plan takes {plan.num_devices} devices of {flat.num_devices}"))
    most = flat.num_microbatches if flat.max_dp_degree is None else flat.max_dp_degree
    if flat.num_microbatches % plan.dp_degree or plan.dp_degree > most:
        rule = f"expected a divisor of {flat.num_microbatches} micro-batches, at most {most}"
        return (*found, Violation("dp_degree", f"{plan.dp_degree} replicas; {rule}"))
    found += _sharing(instance, plan)
    reason = _no_schedule(instance, plan)
    if reason is not None:
        return (*found, Violation("schedule", reason))
    for device, memory in enumerate(peak_memory(instance, plan)):
        if memory > flat.memory_bytes * MEMORY_SLACK:
            found.append(Violation("memory", f"device {device} needs {of_room(memory, flat.memory_bytes)}"))
    return tuple(found)


def _cover(instance: StrategyInstance, plan: StrategyPlan) -> list[Violation]:
    found = []
    count = dict.fromkeys(instance.flat.index, 0)
    if len(plan.chunks) != plan.pp_degree * plan.virtual_stages:
        wanted = f"{plan.pp_degree} x {plan.virtual_stages}"
        found.append(Violation("cover", f"the plan has {len(plan.chunks)} chunks; expected {wanted}"))
    for position, chunk in enumerate(plan.chunks):
        if not chunk:
            found.append(Violation("cover", f"chunk {position} is empty"))
        for node in chunk:
            if node in count:
                count[node] += 1
            else:
                found.append(Violation("cover", f"chunk {position} names node {node!r}, which the instance has not"))
    found += [
        Violation("cover", f"node {node!r} is in {times} chunks; expected exactly one")
        for node, times in count.items()
        if times != 1
    ]
    return found


def _tmpcs(instance: StrategyInstance, plan: StrategyPlan) -> list[Violation]:
    return [
        Violation("tmpc", f"node {node!r} has no TMPC {plan.tmpcs.get(node)!r} {_of(plan)}")
        for chunk in plan.chunks
        for node in chunk
        if node in instance.flat.index and _find(instance, plan, node) is None
    ]


def _find(instance: StrategyInstance, plan: StrategyPlan, node: NodeId) -> Tmpc | None:
    return next((x for x in _ways(instance, plan, node) if x.id == plan.tmpcs.get(node)), None)


def _weight_time(instance: StrategyInstance, plan: StrategyPlan, node: NodeId) -> float:
    layer = instance.flat.layers[instance.flat.index[node]]
    return weight_time(layer, plan.tp_degree, _ways(instance, plan, node), shared_in(instance, plan).context)


def _ways(instance: StrategyInstance, plan: StrategyPlan, node: NodeId) -> tuple[Tmpc, ...]:
    return ways(instance, instance.flat.layers[instance.flat.index[node]], plan.tp_degree, shared_in(instance, plan))


def _of(plan: StrategyPlan) -> str:
    return f"at t = {plan.tp_degree}{', with sequences shared' if plan.sequence_parallel else ''}"


def _sharing(instance: StrategyInstance, plan: StrategyPlan) -> Iterator[Violation]:
    for name, own, known in (
        ("level", plan.sharding, instance.levels),
        ("context-parallel degree", plan.cp_degree, instance.cp_degrees),
        ("expert-parallel degree", plan.ep_degree, instance.ep_degrees),
    ):
        if own not in known:
            yield Violation("sharding", f"{name} {own}; expected one of {', '.join(map(str, known))}")
    groups = instance.groups(plan.dp_degree)
    if plan.shard_groups not in groups or not has_groups(plan):
        rule = f"one of {', '.join(map(str, groups))} that divides d, of replicas that share something"
        yield Violation("sharding", f"{plan.shard_groups} groups; expected {rule}")
    order = "replicas are outermost; expected stages (--any-degree-order)"
    fault = order if plan.dp_outermost and not instance.any_degree_order else no_experts(plan)
    if fault is not None:
        yield Violation("sharding", fault)
    if plan.sequence_parallel and not offers_sequences(instance, plan.tp_degree):
        yield Violation("sharding", f"no layer has the choice to share sequences {_of(plan)}")


def _no_schedule(instance: StrategyInstance, plan: StrategyPlan) -> str | None:
    """Why the plan's schedule cannot be run, if it cannot."""
    p, V, m = plan.pp_degree, plan.virtual_stages, instance.flat.num_microbatches // plan.dp_degree
    if plan.schedule not in instance.schedules:
        return f"{plan.schedule}; expected one of {', '.join(instance.schedules)}"
    return refusal(plan.schedule, p, m, V, instance.virtual_stages)


def chunk_counts(schedule: Schedule, most: int) -> range:
    """How many chunks a device may have: several if interleaved, ``most`` at most, two in a V, else one."""
    if SCHEDULES[schedule].layout == "vee":
        return range(2, 3)
    return range(2, most + 1) if schedule is Schedule.INTERLEAVED else range(1, 2)


def most_chunks(instance: StrategyInstance) -> int:
    """Chunks of layers that a device may have."""
    return max(chunk_counts(each, instance.virtual_stages)[-1] for each in instance.schedules)


def refusal(schedule: Schedule, p: int, m: int, V: int, most: int) -> str | None:
    """Why p devices of V chunks, of which ``most`` are allowed, do not run m micro-batches by a schedule."""
    counts = chunk_counts(schedule, most)
    if 1 not in counts and (V not in counts or p < 2):
        numbers = " to ".join(dict.fromkeys(("2", str(counts.stop - 1))))
        return f"{schedule}: {V} chunks on each of {p} devices; expected {numbers} on at least 2 devices"
    return SCHEDULES[schedule].refusal(p, m, V)
