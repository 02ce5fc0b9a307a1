"""What devices share besides tensors (states and weights, sequences, contexts, experts), and what that costs."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from formulations.stage_partitioning.definition.trainers import CORE, recomputed_part
from formulations.training_strategy.definition.plan import StrategyPlan
from instances.problems.stage_partitioning import Layer, Tmpc, of_sequences
from instances.problems.training_strategy import (
    MOST_SHARED,
    Exchanged,
    StrategyInstance,
    held_per_weight,
    shared_per_weight,
)
from instances.rules import NodeId


class Members(NamedTuple):
    """Of the devices that send to each other, how many a machine has: fewest of those that several have, and most.

    ``fewest`` is 0 where a machine has all of them. Groups at several places have the least and the most of all.
    """

    fewest: int = 1
    most: int = 1


class Shared(NamedTuple):
    """What devices share besides tensors; plans with equal ones run a layer in the same ways.

    ``level`` of ``sharding`` over so many ``replicas`` d c, of a pipeline or not; ``sequences`` or not; the degrees of
    ``context`` and ``expert`` parallelism. How the machines have two stages that follow each other, each of so many
    ``groups`` that share and sum, those with an equal part of the sums in all groups, replicas of an expert, and those
    that share a sample's tokens and experts (``of_ring``, ``of_tokens``). Of what is sent behind the passes, gradients
    are the share ``scattered`` where states are shared.
    """

    level: int = 0
    replicas: int = 1
    in_pipeline: bool = False
    sequences: bool = False
    context: int = 1
    expert: int = 1
    scattered: float = 0.5
    groups: int = 1
    of_stages: Members = Members()
    of_group: Members = Members()
    of_groups: Members = Members()
    of_experts: Members = Members()
    of_ring: Members = Members()
    of_tokens: Members = Members()


def shared_in(instance: StrategyInstance, plan: StrategyPlan) -> Shared:
    """That of a plan: one replica shares nothing, and levels below 3 are the same with a pipeline."""
    p, t, d, c, e = plan.parallelism.values()
    replicas, machine = d * c, instance.devices_per_machine
    level = plan.sharding if replicas > 1 else 0
    groups = plan.shard_groups if level and has_groups(plan) else 1
    whole = replicas if level or e > 1 else 1
    made = Shared(level, whole, level == MOST_SHARED and p > 1, plan.sequence_parallel, c, e, groups=groups)
    if machine is not None:
        stage, replica = plan.apart
        tensor, context, data, expert = (1, t), (t, c), (replica, d), (t, e)
        group, others, stages = (replica, d // groups), (replica * d // groups, groups), (stage, p)
        same = replica // c * e, max(1, replicas // e)
        of_group = members(machine, [context, group], [tensor, others, stages])
        made = made._replace(
            of_stages=members(machine, [(stage, min(2, p))], [tensor, context, data, (stage, p - 1)]),
            of_group=of_group,
            of_groups=members(machine, [others], [tensor, context, group, stages]),
            of_experts=of_group if e == 1 else members(machine, [same], [tensor, expert, stages]),
            of_ring=members(machine, [context], [tensor, data, stages]),
            of_tokens=members(machine, [expert], [tensor, same, stages]),
        )
    gradients, updated = sums(instance, made) if level else (0.5, 0.5)
    return made._replace(scattered=gradients / (gradients + updated))


def sums(instance: StrategyInstance, by: Shared) -> tuple[float, float]:
    """Time of what is sent behind the passes for a byte of dense weights: gradients, and updated weights.

    Gradients are reduce-scattered in a group, and what each device has of them all-reduced over the groups.
    """
    size = by.replicas // by.groups
    within = 2 * (size - 1) / size / bandwidth(instance, by.of_group)
    among = 4 * (by.groups - 1) / (by.groups * size) / bandwidth(instance, by.of_groups)
    return instance.gradients_per_weight * (within + among), within


def members(machine: int, group: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> Members:
    """Of all groups of devices by some degrees, innermost first, one for each device by the other degrees.

    A degree is the distance of its devices, and their number. What machines have of the outermost one repeats.
    """
    *inner, (apart, n) = group
    period = machine // math.gcd(machine, apart)
    begins = ((each % machine, min(count, machine // math.gcd(machine, each))) for each, count in others)
    return _members(machine, (*inner, (apart, min(n, 2 * period + n % period))), tuple(begins))


@cache
def _members(machine: int, group: tuple[tuple[int, int], ...], others: tuple[tuple[int, int], ...]) -> Members:
    ranks, begins, fewest, most = [0], {0}, 0, 1
    for apart, n in group:
        ranks = [own + apart * i for own in ranks for i in range(n)]
    for apart, n in others:
        begins = {(own + apart * i) % machine for own in begins for i in range(n)}
    for begin in begins:
        found = Counter((begin + rank) // machine for rank in ranks).values()
        most = max(most, *found)
        if len(found) > 1:
            fewest = min(fewest or len(ranks), *found)
    return Members(fewest, most)


def bandwidth(instance: StrategyInstance, each: Members) -> float:
    """Of a device in a ring: those of a machine have a port each, and as many rings use them, and links inside.

    A sum over machines takes 4 (D-1)/D * weights / min(B_in, n B) with n of its D devices in each, for sending and
    receiving; with one, nothing is sent inside. Source: reconstructed, NCCL's rings of a network card each (README.md).
    """
    inside, outer = instance.inner_bandwidth, instance.flat.bandwidth
    return outer if inside is None or each.most == 1 else min(inside, each.fewest * outer or inside)


def ways(instance: StrategyInstance, layer: Layer, t: int, by: Shared) -> tuple[Tmpc, ...]:
    """The TMPCs that a plan may choose for a layer at degree t, as one of its d replicas runs them.

    Of what replicas share a device holds a d-th part, d being those of a group (`Shared.groups`). With c = 2 (d-1)/d *
    weights / B for sending and receiving all weights once, and g bytes of gradients for each of weights, level 2
    scatters gradients in each backward pass, which takes g c at least; level 3 gathers weights in both passes, so they
    take c and (1 + g) c at least (with sums among groups, at both levels), and holds, behind the first layer's static
    bytes, the weights of two layers and the gradients of one, the largest. In a pipeline level 3 gathers weights before
    the batch and scatters gradients behind it: both are held whole besides the shares. Behind the passes 2 g c are sent
    at level 0, (1 + g) c above it (and sums among groups), so what is sent in the last pass counts twice.

    Source: Rajbhandari et al. 2020, sections 5.1 to 5.3 and 7 (ZeRO, stages 1 to 3); in a pipeline, at level 2
    Galvatron 2.4.0 with ``--no_async_grad_reduce`` (core/runtime/pipeline/pipeline.py), at level 3 torchtitan 0.3.0
    (distributed/fsdp.py) and torch.distributed.pipelining.
    """
    found = of_sequences(layer.tmpcs.get(t, ()), by.sequences)
    g = instance.gradients_per_weight
    is_plain = g == 1 and instance.host_bandwidth is None
    if (by in (Shared(), Shared(sequences=True)) and is_plain) or not found:
        return found
    level, in_pipeline, c, e, d = by.level, by.in_pipeline, by.context, by.expert, by.replicas // by.groups
    forward = min(x.time for x in found) / c / 3
    ring, tokens = _exchanges(instance, layer, t, by)
    exchanged = ring + tokens
    per_weight = shared_per_weight(instance, level)
    # Sums of gradients are (d-1)/d of what stands in weight_bytes, of all replicas at the bandwidth of stages.
    of_group, of_stages = bandwidth(instance, by.of_group), bandwidth(instance, by.of_stages)
    slower, scale = of_group / bandwidth(instance, by.of_experts), of_stages / of_group * ((1 + g) / 2 if level else g)
    most = among = 0.0
    if by.groups > 1:
        gradients, within = sums(instance, by)
        scale, among = (gradients + within) * of_stages * by.replicas / (4 * (by.replicas - 1)), gradients - g * within
    if level == MOST_SHARED and not in_pipeline and layer.id == instance.chain[0].id:
        most = (2 + g) * max(
            sum(_weights(instance, each, x, t, e)) for each in instance.flat.layers for x in each.tmpcs.get(t, ())
        )

    def run(x: Tmpc) -> Tmpc:
        dense, experts = _weights(instance, layer, x, t, e)
        own, of_experts = dense * (d - 1) / d, experts * (d / e - 1) / (d / e)
        summed, sent_sums = own + of_experts, own + of_experts * slower
        static = x.static_bytes - (e - 1) * experts * held_per_weight(instance)
        static += most - per_weight * summed + ((1 + g) * (dense + experts) if in_pipeline else 0.0)
        if instance.host_bandwidth is not None:
            static -= instance.offloaded * instance.sharded_per_weight * updated(instance, layer, x, t, by)
        part = recomputed_part(x.id)
        again = ring if part == CORE else exchanged if not part and x.time / c / 3 > forward else 0.0
        time, first = x.time / c + 3 * exchanged + again, forward + exchanged
        if level > 1 and not in_pipeline:
            sent = 2 * sent_sums / of_group
            time += max(0.0, (g + (level == MOST_SHARED)) * sent + among * (dense + experts) - (time - first))
            time += max(0.0, sent - first) if level == MOST_SHARED else 0.0
        weights = sent_sums * d / (d - 1) if e > 1 and d > 1 else x.weight_bytes
        return replace(
            x,
            time=time,
            weight_bytes=weights * scale,
            activation_bytes=x.activation_bytes / c,
            static_bytes=static,
            sync_forward_bytes={node: size / c for node, size in x.sync_forward_bytes.items()},
            sync_backward_bytes={node: size / c for node, size in x.sync_backward_bytes.items()},
        )

    return tuple(map(run, found))


def weight_time(layer: Layer, t: int, found: Sequence[Tmpc], context: int = 1) -> float:
    """Time of the gradients of a layer's weights (W): as declared at degree t, else a third of the layer's."""
    return layer.weight_times[t] / context if t in layer.weight_times else 1 / 3 * min(x.time for x in found)


def updated(instance: StrategyInstance, layer: Layer, x: Tmpc, t: int, by: Shared) -> float:
    """Bytes of a layer's weights that a device updates: its part of them, where optimizer states are shared."""
    dense, experts = _weights(instance, layer, x, t, by.expert)
    d = by.replicas // by.groups
    return dense / d + experts / (d / by.expert) if by.level else dense + experts


def update_times(instance: StrategyInstance, by: Shared, degrees: Iterable[int]) -> Mapping[tuple[int, NodeId], float]:
    """What layers add behind sums of gradients where states are on the host: there, updates, and back.

    Source: Megatron's ``--optimizer-cpu-offload`` (core/optimizer/cpu_offloading/hybrid_optimizer.py), without
    ``--overlap-cpu-optimizer-d2h-h2d``: three steps, one after the other. The term: reconstructed.
    """
    if instance.host_bandwidth is None:
        return instance.updates
    on_host = 0.0 if instance.host_updates is None else 1 / instance.host_updates
    per_byte = instance.offloaded * ((1 + instance.gradients_per_weight) / instance.host_bandwidth + on_host)
    ways = {
        (t, x.id): (x, of_sequences(x.tmpcs.get(t, ()), by.sequences)) for x in instance.flat.layers for t in degrees
    }
    return {at: per_byte * updated(instance, x, own[0], at[0], by) for at, (x, own) in ways.items() if own}


def _weights(instance: StrategyInstance, layer: Layer, x: Tmpc, t: int, e: int) -> tuple[float, float]:
    """Weights of a device that are no experts', and those of its share of the experts."""
    own = instance.exchanged.get(layer.id, Exchanged())
    experts = own.expert_weight_bytes / t
    return x.weight_bytes - experts, experts / e


def _exchanges(instance: StrategyInstance, layer: Layer, t: int, by: Shared) -> tuple[float, float]:
    """A third of what a layer's devices exchange for a micro-batch, for attention and for experts.

    As much again twice in the backward pass. What is computed again exchanges its own once more; an MLP has none.
    Keys and values go around one ring of c devices, and their gradients with them. Tokens go to e devices and come
    back, to those in the machine while to the others, and so do their gradients: of these a third counts in each part.
    """
    own = instance.exchanged.get(layer.id, Exchanged())
    c, e, outer, (fewest, most) = by.context, by.expert, instance.flat.bandwidth, by.of_tokens
    ring = (c - 1) / c * own.kv_bytes / t / bandwidth(instance, by.of_ring._replace(fewest=min(1, by.of_ring.fewest)))
    away, near = e - (fewest or e), (most - 1) / (instance.inner_bandwidth or outer)
    return ring, 4 / 3 * own.token_bytes / (t * c * e) * max(away / outer, near)


def shares_of_sums(instance: StrategyInstance, by: Shared) -> tuple[float, float]:
    """Of what gradients' sums send, the share that may be sent beside passes, and the one that follows them all.

    Where replicas share states, a part of it are gradients, scattered; the others are weights that have been updated,
    which FSDP without a pipeline gathers in the next passes. Without overlap nothing is sent beside passes.
    """
    if not instance.overlaps_gradients:
        return 0.0, 1.0
    if by.level == 0:
        return 1.0, 0.0
    return by.scattered, 0.0 if by.level == MOST_SHARED and not by.in_pipeline else 1 - by.scattered


def of_shared(instance: StrategyInstance, by: Shared, t: int | None = None) -> StrategyInstance:
    """The instance of plans that share this: what is static is what one device holds, and nothing is left to share.

    Of degree ``t`` alone, if it is given. Such plans cost the same in both, and no plan of other degrees has a part in
    it. So whatever bounds plans of one instance without sharing bounds these.
    """
    layers = tuple(
        replace(
            layer,
            tmpcs={s: ways(instance, layer, s, by) for s in layer.tmpcs if t in (None, s)},
            weight_times={s: time / by.context for s, time in layer.weight_times.items()},
        )
        for layer in instance.flat.layers
    )
    edges = tuple(replace(edge, bytes=edge.bytes / by.context) for edge in instance.flat.edges)
    flat = replace(instance.flat, layers=layers, edges=edges, bandwidth=bandwidth(instance, by.of_stages))
    nothing: dict[str, Any] = {"sharded_per_weight": 0.0, "sharding": (), "cp_degrees": (1,), "ep_degrees": (1,)}
    nothing |= {"gradients_per_weight": 1.0, "shard_groups": (1,), "host_bandwidth": None}
    nothing["updates"] = update_times(instance, by, instance.flat.tp_degrees if t is None else (t,))
    return replace(instance, flat=flat, exchanged={}, devices_per_machine=None, inner_bandwidth=None, **nothing)


def offers_sequences(instance: StrategyInstance, t: int) -> bool:
    """Whether some layer has the choice to share sequences at degree t."""
    return any(len({x.shares_sequence for x in layer.tmpcs.get(t, ())}) > 1 for layer in instance.flat.layers)


def no_experts(plan: StrategyPlan) -> str | None:
    """Why devices cannot share experts; ``None`` if they can."""
    e = plan.ep_degree
    if plan.replicas % e:
        return f"{e} devices share experts; expected a divisor of {plan.replicas}, those of the same dense weights"
    if plan.dp_outermost and plan.pp_degree > 1 and e != plan.cp_degree:
        return f"{e} devices share experts and {plan.cp_degree} tokens; expected as many where dp is outermost"
    if e > 1 and plan.shard_groups > 1:
        return f"{e} devices share experts in {plan.shard_groups} groups that share states; expected one group"
    if e > 1 and plan.tp_degree > 1 and not plan.sequence_parallel:
        return f"{plan.tp_degree} tensor-parallel devices each send all tokens to experts; expected shared sequences"
    return None


def has_groups(plan: StrategyPlan) -> bool:
    """Whether replicas can be so many groups: of equally many, of which each has something to share."""
    r = plan.shard_groups
    return r == 1 or (plan.sharding > 0 and plan.dp_degree % r == 0 and plan.replicas > r)
