"""Training strategies: a chain of layers, the machines of a trainer, and the schedules that it may run.

Nouns only; the objective is in the family's ``problem.py``. Source: the space of Megatron-LM (Narayanan et al. 2021),
with uniform degrees.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any

from instances.errors import InstanceError, expect, expect_unique
from instances.exchange import FileOf, in_files
from instances.graph import topological_order
from instances.problems import stage_partitioning
from instances.problems.stage_partitioning import AroundFlat, CostModel, Layer, StageInstance, Tmpc
from instances.requirements import expect_none
from instances.rules import Amount, Bandwidth, Count, Flag, Index, NodeId, member_of

#: The highest level of sharding: optimizer states, gradients and weights.
MOST_SHARED = 3
#: Notes of imported models: devices of a machine, and bandwidths of a device in it and between machines.
MACHINE, INNER, OUTER = "devices-per-machine", "inner-bandwidth", "outer-bandwidth"
#: Sums of bytes are that far from what a file has: weights that are all experts', states that are all that is held.
ROUNDED = 1e-12


class Schedule(StrEnum):
    """Orders of passes that trainers run, by the names of `formulations.simulation.orders.SCHEDULES`."""

    ONE_F_ONE_B = "1f1b"
    GPIPE = "gpipe"
    INTERLEAVED = "interleaved"
    ZB_H1 = "zb-h1"
    ZB_H2 = "zb-h2"
    ZB_V = "zb-v"
    DUALPIPE_V = "dualpipe-v"


@dataclass(frozen=True)
class Exchanged:
    """What the devices of a layer exchange in a forward pass of a micro-batch, all of it together.

    Parameters
    ----------
    kv_bytes
        Keys and values, which go around a ring of devices that share the tokens.
    token_bytes
        What tokens send to their experts; as much comes back.
    expert_weight_bytes
        Those of the layer's weights that are experts', at degree 1; at degree t each device has a t-th part.
    experts
        How many there are; 0 if the layer has none.
    """

    kv_bytes: Amount = 0.0
    token_bytes: Amount = 0.0
    expert_weight_bytes: Amount = 0.0
    experts: Index = 0


@in_files(
    "schedules",
    "virtual_stages",
    "sharded_per_weight?",
    "gradients_per_weight?",
    "host_bandwidth?",
    "host_updates?",
    "offloaded?",
    "sharding?",
    "shard_groups?",
    "cp_degrees?",
    "ep_degrees?",
    "exchanged?",
    "devices_per_machine?",
    "inner_bandwidth?",
    "any_degree_order?",
    "overlaps_gradients?",
    "makes_again_in_turn?",
    "flat",
    problem="training_strategy",
    absent={"schedules": (Schedule.ONE_F_ONE_B,), "virtual_stages": 1},
    types={"flat": Annotated[Mapping[str, Any], FileOf(StageInstance, "a file of Piper's release")]},
)
@dataclass(frozen=True)
class StrategyInstance(AroundFlat):
    """A flat instance whose N micro-batches are one batch, for a trainer with the same degrees in all stages.

    Parameters
    ----------
    flat
        A chain: in topological order an edge leads from each layer to the next one; others may skip layers.
    schedules
        Those that a plan may choose from.
    virtual_stages
        Most chunks of layers of a device, under ``interleaved``; more than 1 if and only if the schedules have it.
    sharded_per_weight
        Bytes of optimizer states per byte of weights, of which each of d replicas holds a share of 1/d. They are part
        of ``static_bytes``. 0: every replica holds them whole.
    gradients_per_weight
        Bytes of gradients per byte of weights, held and summed: 2 where those of 16-bit weights have 32 bits.
    host_bandwidth
        Optimizer states are on the host, which each device sends gradients to, behind their sum, and gets updated
        weights from, one after the other, in bytes per unit of time. ``None``: they are on the devices.
    host_updates
        Bytes of weights that the host updates for a device in a unit of time. ``None``: updates take no time.
    offloaded
        The share of the states, gradients and weights that this is of, more than 0.
    updates
        By tensor degree and layer, what that takes a device; of instances made for plans that share nothing more, and
        in no file.
    sharding
        Levels that a plan may choose from of what its replicas share: 0 nothing, 1 optimizer states, 2 gradients as
        well, 3 weights as well (ZeRO's stages; 3 is FSDP). Empty: 1 where there are such states, else 0.
    shard_groups
        Numbers of groups of replicas that a plan may choose from: each group shares all that is shared, and has the
        states of the others (hybrid sharding, HSDP). Empty: every divisor of the replicas.
    cp_degrees, ep_degrees
        Degrees of context parallelism (devices share the tokens of a sample) and of expert parallelism (they share the
        experts of a layer) that a plan may choose from.
    exchanged
        By layer, what its devices exchange then. Layers that are not named exchange nothing.
    devices_per_machine, inner_bandwidth
        Devices that are joined by another bandwidth than those of different machines (`flat.bandwidth`); ``None``: all
        are joined by one.
    any_degree_order
        A plan chooses the order of degrees on the devices, innermost first: tp, cp, ep, dp, pp, or with the last two
        exchanged. Else it is the former.
    overlaps_gradients
        Gradients are summed beside the last backward passes, as far as these last (`definition.problem.Behind`).
    makes_again_in_turn
        What a layer does not keep, of what its TMPC of most activations keeps, a device has while the layer makes it
        again: besides all else that of the largest layer. Else static bytes have it, of all layers.
    """

    schedules: tuple[Annotated[Schedule, member_of(Schedule)], ...] = (Schedule.ONE_F_ONE_B,)
    virtual_stages: Count = 1
    sharded_per_weight: Amount = 0.0
    gradients_per_weight: Amount = 1.0
    host_bandwidth: Bandwidth | None = None
    host_updates: Bandwidth | None = None
    offloaded: Amount = 1.0
    updates: Mapping[tuple[int, NodeId], float] = field(default_factory=dict)
    sharding: tuple[Index, ...] = ()
    shard_groups: tuple[Count, ...] = (1,)
    cp_degrees: tuple[Count, ...] = (1,)
    ep_degrees: tuple[Count, ...] = (1,)
    exchanged: Mapping[NodeId, Exchanged] = field(default_factory=dict)
    devices_per_machine: Count | None = None
    inner_bandwidth: Bandwidth | None = None
    any_degree_order: Flag = False
    overlaps_gradients: Flag = False
    makes_again_in_turn: Flag = False

    @property
    def options(self) -> Mapping[str, str | int | float | bool]:
        """How the flat instance was made, the schedules, and the virtual stages."""
        schedules = ",".join(self.schedules)
        flags = {"overlap-gradients": self.overlaps_gradients, "any-degree-order": self.any_degree_order}
        shared: dict[str, str | float] = {name: True for name, is_set in flags.items() if is_set}
        if self.sharded_per_weight:
            shared["shard-optimizer"] = self.sharded_per_weight
        if self.gradients_per_weight != 1:
            shared["gradients-per-weight"] = self.gradients_per_weight
        if self.host_bandwidth is not None:
            shared |= {"offload-optimizer": self.host_bandwidth, "offload-fraction": self.offloaded}
            shared |= {} if self.host_updates is None else {"host-updates": self.host_updates}
        if self.sharding:
            shared["sharding"] = ",".join(map(str, self.sharding))
        for name, degrees in (("cp", self.cp_degrees), ("ep", self.ep_degrees), ("shard-groups", self.shard_groups)):
            if degrees != (1,):
                shared[name] = ",".join(map(str, degrees)) or "any"
        if self.devices_per_machine is not None and self.inner_bandwidth is not None:
            shared |= {MACHINE: self.devices_per_machine, INNER: self.inner_bandwidth}
        return {**self.flat.options, "schedule": schedules, "virtual-stages": self.virtual_stages, **shared}

    @property
    def levels(self) -> tuple[int, ...]:
        """What a plan may choose of ``sharding``."""
        return self.sharding or (int(self.sharded_per_weight > 0),)

    def groups(self, replicas: int) -> tuple[int, ...]:
        """What a plan of so many replicas may choose of ``shard_groups``."""
        return self.shard_groups or tuple(r for r in range(1, replicas + 1) if replicas % r == 0)

    @cached_property
    def chain(self) -> tuple[Layer, ...]:
        """The layers from the input side on."""
        order = topological_order(len(self.flat.layers), self.flat.edge_indices)
        return tuple(self.flat.layers[position] for position in order)


def check(instance: StrategyInstance, where: str) -> None:
    """The rules of the flat instance, and those of a trainer with the same degrees in all stages.

    Raises
    ------
    InstanceError
        If the flat instance is no chain, has requirements or ``exactly`` or the cost model ``runtime``; if TMPCs of a
        layer at one degree differ in weights, or in volumes to synchronise where all or none of them share sequences;
        if they hold less than what replicas share; if gradients of weights take more than backward passes; if schedules
        or levels of sharding are missing, named twice, or do not go with the virtual stages or the optimizer states.
    """
    flat = instance.flat
    stage_partitioning.check(flat, f"{where}: flat")
    expect_none(flat, where, "flat")
    expect(not flat.exactly, where, "exactly", True, "false: a batch has N micro-batches whatever the degrees")
    rule = "paper or released: runtime counts tensors of several layers"
    expect(flat.cost_model is not CostModel.RUNTIME, where, "cost_model", str(flat.cost_model), rule)
    joined = {(edge.source, edge.target) for edge in flat.edges}
    for one, other in pairwise(layer.id for layer in instance.chain):
        rule = "a chain: an edge from each layer to the next in topological order (--linearize id adds them; graphs: "
        rule += "--problem stage_partitioning)"
        expect((one, other) in joined, where, "edges", f"without {one} -> {other}", rule)
    expect_unique([str(each) for each in instance.sharding], where, "sharding")
    expect(
        max(instance.levels) <= MOST_SHARED,
        where,
        "sharding",
        list(instance.sharding),
        f"levels from 0 to {MOST_SHARED}",
    )
    has_states = instance.sharded_per_weight > 0 or max(instance.levels) == 0
    rule = "0 alone without sharded_per_weight, the states that are shared first (--shard-optimizer)"
    expect(has_states, where, "sharding", list(instance.sharding), rule)
    for layer in flat.layers:
        for degree, tmpcs in layer.tmpcs.items():
            most, spent = 2 / 3 * min((x.time for x in tmpcs), default=0.0), layer.weight_times.get(degree, 0.0)
            at = f"flat: weight_times of node {layer.id}, degree {degree}"
            expect(spent <= most * (1 + ROUNDED), where, at, spent, f"at most {most:g}, its least backward pass")
            for kind in (False, True):
                kept = [x for x in tmpcs if x.shares_sequence == kind]
                for tmpc in kept[1:]:
                    _expect_equal(kept[0], tmpc, f"node {layer.id}, degree {degree}", where)
            for tmpc in tmpcs:
                most = max(*instance.levels, int(instance.host_bandwidth is not None))
                shared = shared_per_weight(instance, most) * tmpc.weight_bytes
                rule = f"at least {shared:g}, what replicas share by sharded_per_weight and sharding"
                at = f"flat: static_bytes of node {layer.id}, degree {degree}, TMPC {tmpc.id}"
                expect(shared <= tmpc.static_bytes * (1 + ROUNDED), where, at, tmpc.static_bytes, rule)
    expect(bool(instance.schedules), where, "schedules", [], "at least one schedule")
    expect_unique([str(each) for each in instance.schedules], where, "schedules")
    rule = "none without sharded_per_weight, the states that are there (--shard-optimizer)"
    expect(
        instance.host_bandwidth is None or instance.sharded_per_weight > 0,
        where,
        "host_bandwidth",
        instance.host_bandwidth,
        rule,
    )
    expect(0 < instance.offloaded <= 1, where, "offloaded", instance.offloaded, "more than 0, at most 1")
    for name, least in (("host_updates", None), ("offloaded", 1)):
        used, rule = getattr(instance, name), "none without host_bandwidth (--offload-optimizer)"
        expect(used == least or instance.host_bandwidth is not None, where, name, used, rule)
    _check_exchanged(instance, where)
    is_interleaved = Schedule.INTERLEAVED in instance.schedules
    rule = "at least 2 with the schedule interleaved, and 1 without it"
    expect(is_interleaved == (instance.virtual_stages > 1), where, "virtual_stages", instance.virtual_stages, rule)


def _check_exchanged(instance: StrategyInstance, where: str) -> None:
    """Degrees are distinct and divide what is shared; weights of experts are held with gradients and states."""
    flat, exchanged = instance.flat, instance.exchanged
    levels = instance.devices_per_machine, instance.inner_bandwidth
    expect(
        (levels[0] is None) == (levels[1] is None), where, "inner_bandwidth", levels[1], "beside devices_per_machine"
    )
    for name in ("cp_degrees", "ep_degrees", "shard_groups"):
        degrees = getattr(instance, name)
        expect_unique([str(each) for each in degrees], where, name)
        expect(bool(degrees) or name == "shard_groups", where, name, [], "at least one degree, such as 1")
    known = {node: own for node, own in exchanged.items() if node in flat.index}
    expect(len(known) == len(exchanged), where, "exchanged", sorted(map(str, exchanged)), "ids of nodes")
    context, expert = max(instance.cp_degrees), max(instance.ep_degrees)
    has_context = context == 1 or any(own.kv_bytes for own in known.values())
    expect(has_context, where, "cp_degrees", context, "1 where exchanged has no kv_bytes")
    tokens = flat.options.get("seq-len", flat.options.get("sequence-length"))
    for degree in instance.cp_degrees:
        fits = degree == 1 or not isinstance(tokens, int) or tokens % (2 * degree) == 0
        expect(fits, where, "cp_degrees", degree, f"degrees c with 2 c dividing {tokens} tokens, for equal causal work")
    has_experts = expert == 1 or any(own.experts for own in known.values())
    expect(has_experts, where, "ep_degrees", expert, "1 where exchanged has no experts")
    for node, own in known.items():
        for degree in instance.ep_degrees:
            rule = f"degrees that divide {own.experts}, the experts of node {node}"
            expect(own.experts % degree == 0, where, "ep_degrees", degree, rule)
        for t, found in flat.layers[flat.index[node]].tmpcs.items():
            for x in found:
                held = held_per_weight(instance) * own.expert_weight_bytes / t
                rule = f"at least {held:g}: weights, gradients and states of experts"
                fits = expert == 1 or held <= x.static_bytes * (1 + ROUNDED)
                expect(fits, where, f"flat: static_bytes of node {node}, degree {t}", x.static_bytes, rule)
                rule = f"at least {own.expert_weight_bytes / t:g}, those of its experts"
                fits = own.expert_weight_bytes / t <= x.weight_bytes * (1 + ROUNDED)
                expect(fits, where, f"flat: weight_bytes of node {node}, degree {t}", x.weight_bytes, rule)


def shared_per_weight(instance: StrategyInstance, level: int) -> float:
    """Bytes that replicas share at a level of sharding, for each byte of weights."""
    parts = (0.0, instance.sharded_per_weight, instance.gradients_per_weight, 1.0)
    return sum(parts[: level + 1])


def held_per_weight(instance: StrategyInstance) -> float:
    """Bytes that training holds for each byte of weights: these, gradients and states."""
    return shared_per_weight(instance, MOST_SHARED)


def _expect_equal(one: Tmpc, other: Tmpc, of: str, where: str) -> None:
    """TMPCs of one degree keep or recompute activations: they neither move weights nor what passes between layers."""
    for name in ("weight_bytes", "sync_forward_bytes", "sync_backward_bytes"):
        if getattr(one, name) != getattr(other, name):
            field = f"flat: {name} of {of}, TMPC {other.id}"
            raise InstanceError.at(where, field, getattr(other, name), f"{getattr(one, name)}, as in TMPC {one.id}")


def of_chain(
    flat: StageInstance, schedules: tuple[Schedule, ...] = (Schedule.ONE_F_ONE_B,), virtual_stages: int = 1
) -> StrategyInstance:
    """The instance of a flat one; `InstanceError` if it breaks a rule."""
    made = StrategyInstance(flat, schedules, virtual_stages)
    check(made, "instance")
    return made
