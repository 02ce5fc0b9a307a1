"""What each process of a run does: which stage it runs, which samples pass through it, in which order.

A sample is what the model takes at once, one call of it. In stage partitioning it is a micro-batch, and micro-batch m
is run by replica m mod d of every stage (Piper), as it is where stages are of operators (Parmesan). In a stage graph it
is a sample of the mini-batch: every micro-batch of b samples is split over the r devices of a stage, the first of them
get one more where r does not divide b (GraphPipe). Nothing here needs torch.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.simulation.orders import SCHEDULES
from formulations.simulation.simulate_graph import kfkb
from instances.generators.transformer import RECOMPUTE, SEQUENCE, VANILLA
from instances.problems.operator_partitioning import OperatorInstance, TrainingMemory
from instances.problems.pipeline_placement import PlacementInstance
from instances.problems.stage_partitioning import CostModel
from instances.problems.training_strategy import shared_per_weight
from instances.rules import NodeId
from planner.process.errors import UsageError
from planner.training.capture.choices import WORKING_SET
from planner.training.runtime.origin import granularity_of

#: TMPCs of imported instances that are split by columns and rows, and those that share sequences besides.
_SPLIT, _SEQUENCES = (VANILLA, RECOMPUTE), (SEQUENCE, f"{SEQUENCE}, {RECOMPUTE}")


@dataclass(frozen=True)
class Pass:
    """A pass of one process over the samples of a micro-batch that it has.

    ``kind``: F forward, B backward, W the gradients of weights. Where a stage has passes W, its B makes the gradients
    of what it received alone.
    """

    kind: str
    index: int
    samples: tuple[int, ...]

    @property
    def is_forward(self) -> bool:
        """Whether it is a forward pass."""
        return self.kind == "F"


@dataclass(frozen=True)
class Duty:
    """What one process does for a stage: the passes of a replica of it, in order.

    ``bytes_planned``: bytes that it sends in an iteration, by the model of the plan: to other stages, which the first
    process of a replica does alone, and of what comes from them on to the next process of the replica.
    ``held_planned``: bytes of activations that it holds at most, by the model of the plan.
    ``forward_s``, ``backward_s``, ``weight_s``: seconds of a pass F, B and W, by the model of the plan; what it sends
    is not part of it.
    ``shard``, ``degree``: which of the replica's processes it is, and how many they are (tensor parallelism); their
    ranks follow each other.
    ``memory_planned``: bytes of all that it holds, by the model of the plan; ``None`` where that is not what a run has.
    ``gradient_planned``: bytes that it sends to sum gradients in an iteration, by the model of the plan: 2 (d-1)/d w
    for w bytes of weights in d replicas, as rings send them. Each layer's weights count, and nothing goes to other
    stages.
    ``states_planned``: bytes of optimizer states that it holds, by the model of the plan, where replicas share them.
    ``device``: the device that the plan has it on; ``None``: that of its process's number.
    """

    stage: int
    replica: int
    passes: tuple[Pass, ...]
    bytes_planned: float
    held_planned: float
    forward_s: float
    backward_s: float
    shard: int = 0
    degree: int = 1
    gradient_planned: float = 0.0
    memory_planned: float | None = None
    device: int | None = None
    weight_s: float = 0.0
    states_planned: float = 0.0

    @property
    def order(self) -> str:
        """The kinds of its passes, such as FFBFBB."""
        return "".join(task.kind for task in self.passes)

    def seconds(self, kind: str) -> float:
        """Those of a pass, by the model of the plan."""
        return {"F": self.forward_s, "B": self.backward_s, "W": self.weight_s}[kind]

    def __str__(self) -> str:
        shard = f", shard {self.shard}" if self.degree > 1 else ""
        device = "" if self.device is None else f", device {self.device}"
        return f"stage {self.stage}, replica {self.replica}{shard}{device}"


@dataclass(frozen=True)
class Layout:
    """A plan as processes.

    ``stage_of``: stage of every node of the instance.
    ``recomputed``: nodes whose activations are computed again in the backward pass.
    ``duties``: what each process does; those of a stage follow each other.
    ``num_samples``: samples of an iteration.
    ``edges``: pairs of stages with a tensor from the first to the second, ascending.
    ``is_relayed``: tensors go on from each stage to the next one, up to the last one that takes them, instead of
    straight to each.
    ``keeps_inputs``: a stage whose nodes are recomputed keeps its own inputs, and computes all of them again at once.
    ``turns``: for each process, where it has several stages (virtual ones), whose pass comes next, by the number of the
    duty. Empty: each duty is a process of its own.
    ``shares_states``: replicas share the optimizer's states, and make a step (ZeRO 1), those of each of
    ``shard_groups`` groups.
    ``scatters``: each process keeps its share of the gradients of each backward pass (ZeRO 2).
    ``sequences``: nodes between whose products the processes of a replica share sequences.
    """

    stage_of: Mapping[NodeId, int]
    recomputed: frozenset[NodeId]
    duties: tuple[Duty, ...]
    num_samples: int
    edges: tuple[tuple[int, int], ...]
    is_relayed: bool = False
    keeps_inputs: bool = False
    turns: tuple[tuple[int, ...], ...] = ()
    shares_states: bool = False
    sequences: frozenset[NodeId] = frozenset()
    shard_groups: int = 1
    scatters: bool = False

    @cached_property
    def _ranks(self) -> dict[int, int]:
        return {number: rank for rank, own in enumerate(self.turns) for number in own}

    @property
    def num_processes(self) -> int:
        """How many processes run it."""
        return len(self.turns) or len(self.duties)

    def rank_of(self, duty: int) -> int:
        """The process of a duty."""
        return self._ranks.get(duty, duty)

    def duties_of(self, rank: int) -> list[int]:
        """The duties of a process."""
        return sorted(set(self.turns[rank])) if self.turns else [rank]

    def passes_of(self, rank: int) -> list[tuple[int, Pass]]:
        """What a process does, in order: passes, with the number of the duty of each."""
        left = {number: iter(self.duties[number].passes) for number in self.duties_of(rank)}
        turns = self.turns[rank] if self.turns else (rank,) * len(self.duties[rank].passes)
        return [(number, next(left[number])) for number in turns]

    def owners(self) -> dict[tuple[int, int], int]:
        """The duty that runs a sample and speaks for its replica, by (stage, sample)."""
        return {
            (duty.stage, sample): number
            for number, duty in enumerate(self.duties)
            if not duty.shard
            for each in duty.passes
            for sample in each.samples
        }


def layout(instance: Any, plan: Any, family: str, orders: Sequence[str] | None = None) -> Layout:
    """The processes of a plan that breaks no rule of its instance.

    ``orders``: for each stage the passes of its replicas as a word such as ``FFBFBB``; ``None``: 1F1B, and the plan's
    own kFkB.
    `UsageError` if plans of this problem cannot be run, it is not known how a stage's tensors are split, or the orders
    have other passes than the plan.
    """
    if family not in _LAYOUTS:
        raise UsageError.at("INSTANCE", family, f"an instance of one of {', '.join(_LAYOUTS)}")
    made = _LAYOUTS[family](instance, plan)
    return made if orders is None else _reorder(made, orders)


def graph_of(instance: Any) -> Any:
    """What an instance has in common with the model that it was made of: its layers, or its operators and tensors."""
    return instance.operators if isinstance(instance, PlacementInstance) else getattr(instance, "flat", instance)


def orders_of(schedule: SchedulePlan) -> list[str]:
    """The passes of each stage of a plan of micro-batch scheduling, by start."""
    last = max((task.stage for task in schedule.passes), default=-1)
    stages = range(last + 1)
    return ["".join("F" if task.is_forward else "B" for task in schedule.by_stage.get(stage, [])) for stage in stages]


def _reorder(made: Layout, orders: Sequence[str]) -> Layout:
    count = made.duties[-1].stage + 1
    if made.turns:
        raise UsageError.at("--passes", f"{count} stages", "a plan of one stage on each process")
    if len(orders) != count:
        raise UsageError.at("--passes", f"{len(orders)} stages", f"the {count} stages of the plan")
    duties = []
    for duty in made.duties:
        forward = sorted((task for task in duty.passes if task.is_forward), key=lambda task: task.index)
        order = orders[duty.stage]
        if not order.count("F") == order.count("B") == len(forward):
            rule = f"{len(forward)} forward and backward passes, as replica {duty.replica} has in the plan"
            raise UsageError.at("--passes", f"{order or 'nothing'} of stage {duty.stage}", rule)
        passes = _passes([task.samples for task in forward], order)
        duties.append(replace(duty, passes=passes, backward_s=duty.backward_s + duty.weight_s, weight_s=0.0))
    return replace(made, duties=tuple(duties))


def _of_stage_partitioning(instance: Any, plan: Any) -> Layout:
    from formulations.stage_partitioning.definition.problem import suffix_sums

    return _of_stages(instance, plan, suffix_sums(plan))


def _of_flushed_partitioning(instance: Any, plan: Any) -> Layout:
    """1F1B as without flushes, which a run has anyway; with GPipe all micro-batches are in flight."""
    if instance.schedule == "gpipe":
        return _of_stages(instance.flat, plan, [instance.flat.num_microbatches] * len(plan.stages))
    return _of_stage_partitioning(instance.flat, plan)


def _of_training_strategy(instance: Any, plan: Any) -> Layout:
    """Chunks as stages, in the schedule's order: a process runs those of its device."""
    from formulations.training_strategy.definition.plan import as_stages

    p, d, t, N = plan.pp_degree, plan.dp_degree, plan.tp_degree, instance.flat.num_microbatches
    count, schedule = len(plan.chunks), SCHEDULES[plan.schedule]
    if plan.cp_degree * plan.ep_degree > 1:
        degrees = f"cp_degree {plan.cp_degree}, ep_degree {plan.ep_degree}"
        raise UsageError.at("PLAN", degrees, "1 of both, which are run")
    if d > 1 and plan.sharding > (2 if p == t == 1 else 1):
        rule = "at most 1, or 2 in one stage without tensor parallelism: others sum gradients behind all passes"
        raise UsageError.at("PLAN", f"sharding {plan.sharding}", rule)
    if instance.host_bandwidth is not None:
        raise UsageError.at("PLAN", "optimizer states on the host", "on devices, where they are run")
    actions = schedule.orders(p, N // d, plan.virtual_stages)
    home = schedule.devices(p, plan.virtual_stages)
    words = ["".join(action.kind for action in actions[home[stage]] if action.stage == stage) for stage in range(count)]
    # In a V the plan counts nothing between the chunks of a device.
    near = home if schedule.layout == "vee" else range(count)
    made = _of_stages(instance.flat, as_stages(plan), [d * most_in_flight(word) for word in words], words, near)
    if plan.sharding and d > 1:
        duties = tuple(_sharing(duty, d, d // plan.shard_groups, plan.sharding, instance) for duty in made.duties)
        made = replace(made, duties=duties, shares_states=True, scatters=plan.sharding > 1)
        made = replace(made, shard_groups=plan.shard_groups)
    if plan.dp_outermost:
        next_stage, next_replica = plan.apart
        places = [home[x.stage] * next_stage + x.replica * next_replica + x.shard for x in made.duties]
        duties = tuple(replace(x, device=place) for x, place in zip(made.duties, places, strict=True))
        made = replace(made, duties=duties)
    if plan.virtual_stages == 1:
        return made
    turns = (
        tuple((action.stage * d + replica) * t + shard for action in actions[device])
        for device in range(p)
        for replica in range(d)
        for shard in range(t)
    )
    # What a device holds is counted over its chunks, and so is not what each of them holds.
    duties = tuple(replace(duty, memory_planned=None) for duty in made.duties)
    return replace(made, duties=duties, turns=tuple(turns))


def _sharing(duty: Duty, d: int, shares: int, level: int, instance: Any) -> Duty:
    """A duty, one of d replicas, that holds one of so many shares of what replicas share at a level."""
    weights = duty.gradient_planned * d / (2 * (d - 1))
    states, memory = instance.sharded_per_weight * weights, duty.memory_planned
    if memory is not None:
        memory -= shared_per_weight(instance, level) * weights * (shares - 1) / shares
    gathered = weights * (shares - 1) / shares
    passes = duty.order.count("B") if level > 1 else 1
    sums = gathered + passes * (duty.gradient_planned - gathered)
    return replace(duty, states_planned=states / shares, memory_planned=memory, gradient_planned=sums)


def most_in_flight(order: str) -> int:
    """Micro-batches that an order such as FFBFBB holds at most: up to B, or W where it has that."""
    change = {"F": 1, "W" if "W" in order else "B": -1}
    return max(itertools.accumulate((change.get(kind, 0) for kind in order), initial=0))


def _of_stages(
    instance: Any,
    plan: Any,
    in_flight: Sequence[int],
    orders: Sequence[str] | None = None,
    near: Sequence[int] | None = None,
) -> Layout:
    """Stages of Piper's with so many micro-batches in flight behind the input of each, on all of its replicas.

    ``orders`` are those of each stage, else 1F1B. A pass W takes what its layers declare. Stages of one number of
    ``near`` send each other nothing; without these numbers all do.
    """
    from formulations.stage_partitioning.definition.problem import carried_bytes
    from formulations.training_strategy.definition.sharing import weight_time

    layers = {layer.id: layer for layer in instance.layers}
    stage_of = {node: number for number, stage in enumerate(plan.stages) for node in stage.nodes}
    duties, recomputed, sequences = [], set(), set()
    reserve = float(instance.options.get(WORKING_SET, 0.0))
    for number, (stage, s) in enumerate(zip(plan.stages, in_flight, strict=True)):
        chosen = {
            node: next(x for x in layers[node].tmpcs[stage.tp_degree] if x.id == stage.tmpcs[node])
            for node in stage.nodes
        }
        _expect_known_split(instance, stage, f"of stage {number}")
        recomputed |= {node for node, x in chosen.items() if "recomp" in x.id}
        crossing = [edge for edge in instance.edges if (edge.source in chosen) != (edge.target in chosen)]
        if near is not None:
            crossing = [e for e in crossing if near[stage_of[e.source]] != near[stage_of[e.target]]]
        shared = {node for node, x in chosen.items() if x.id in _SEQUENCES}
        sequences |= shared
        parts = [edge for edge in crossing if shared & {edge.source, edge.target}]
        moved = math.fsum(edge.bytes for edge in crossing if edge not in parts)
        each_moved = math.fsum(edge.bytes for edge in parts) / stage.tp_degree
        spread = math.fsum(
            chosen[edge.source].sync_backward_bytes.get(edge.target, 0.0)
            if edge.source in chosen
            else chosen[edge.target].sync_forward_bytes.get(edge.source, 0.0)
            for edge in crossing
        )
        d, t, N = stage.dp_degree, stage.tp_degree, instance.num_microbatches
        unit = 1e-3 if instance.time_unit == "ms" else 1.0
        least = {node: min(x.time for x in layers[node].tmpcs[stage.tp_degree]) for node in stage.nodes}
        once = math.fsum(least[node] if "recomp" in x.id else x.time for node, x in chosen.items()) * unit
        seconds = math.fsum(x.time for x in chosen.values()) * unit
        weights = math.fsum(weight_time(layers[node], t, layers[node].tmpcs[t]) for node in chosen) * unit
        held = -(-s // d)
        kept = math.fsum([*(x.activation_bytes for x in chosen.values()), *carried_bytes(instance, stage)]) * held
        for replica, shard in itertools.product(range(d), range(t)):
            own = range(replica, N, d)
            order = kfkb(len(own), held, 1) if orders is None else orders[number]
            apart = weights if "W" in order else 0.0
            sent = moved * (shard == 0) + each_moved + spread * (shard < max(1, t - 1))
            duties.append(
                Duty(
                    number,
                    replica,
                    _passes([(m,) for m in own], order),
                    sent * len(own),
                    kept,
                    once / 3,
                    seconds - once / 3 - apart,
                    shard,
                    t,
                    2 * (d - 1) / d * math.fsum(x.weight_bytes for x in chosen.values()),
                    math.fsum([kept, reserve, *(x.static_bytes for x in chosen.values())]),
                    weight_s=apart,
                )
            )
    edges = {(stage_of[edge.source], stage_of[edge.target]) for edge in instance.edges}
    joined = tuple(sorted((u, v) for u, v in edges if u != v))
    relayed = instance.cost_model is CostModel.RUNTIME
    count, kept_apart = instance.num_microbatches, frozenset(sequences)
    return Layout(stage_of, frozenset(recomputed), tuple(duties), count, joined, relayed, sequences=kept_apart)


def _expect_known_split(instance: Any, stage: Any, where: str) -> None:
    """`UsageError` if a stage is tensor-parallel in another way than by columns and rows, as they are imported."""
    if stage.tp_degree == 1:
        return
    if granularity_of(instance) is None:
        rule = "1: how tensors are split is known of imported models alone"
        raise UsageError.at("PLAN", f"tp_degree {stage.tp_degree} {where}", rule)
    for node, tmpc in stage.tmpcs.items():
        if tmpc not in (*_SPLIT, *_SEQUENCES):
            rule = f"{', '.join(_SPLIT)} or those of {SEQUENCE}, which are run"
            raise UsageError.at("PLAN", f"TMPC {tmpc} of node {node} {where}", rule)


def _of_stage_graph(instance: Any, plan: Any) -> Layout:
    from formulations.stage_graph.definition.problem import data_edges

    name = instance.id_of
    stage_of = {name(node): number for number, stage in enumerate(plan.stages) for node in stage.nodes}
    duties = []
    for number, stage in enumerate(plan.stages):
        if stage.tp_degree > 1:
            rule = "1: runs of stage graphs share no operators among devices"
            raise UsageError.at("PLAN", f"tp_degree {stage.tp_degree} of stage {number}", rule)
        inside = set(stage.nodes)
        crossing = [edge for edge in instance.edges if (edge.source in inside) != (edge.target in inside)]
        kept = math.fsum(
            [
                *(instance.operators[node].activation_bytes for node in inside),
                *(edge.bytes_per_sample for edge in crossing if edge.target in inside),
            ]
        )
        b, r, count = stage.microbatch, stage.devices, instance.minibatch // stage.microbatch
        order = kfkb(count, stage.in_flight // b, stage.k)
        first = 0
        for replica in range(r):
            share = b // r + (replica < b % r)
            samples = [tuple(range(p * b + first, p * b + first + share)) for p in range(count)]
            first += share
            duties.append(
                Duty(
                    number,
                    replica,
                    _passes(samples, order),
                    math.fsum(edge.bytes_per_sample for edge in crossing) * share * count,
                    -(-min(stage.in_flight, instance.minibatch) // b) * share * kept,
                    math.fsum(instance.operators[node].forward.at(share) for node in inside),
                    math.fsum(instance.operators[node].backward.at(share) for node in inside),
                    gradient_planned=2
                    * (r - 1)
                    / r
                    * math.fsum(instance.operators[node].weight_bytes for node in inside),
                )
            )
    return Layout(stage_of, frozenset(), tuple(duties), instance.minibatch, data_edges(instance, plan.stages))


def _of_placement(instance: Any, plan: Any) -> Layout:
    graph, devices = instance.operators, plan.mapping.devices
    return _of_operators(graph, plan.partition, instance.microbatches * graph.replicas, devices)


def _of_operator_partitioning(instance: Any, plan: Any) -> Layout:
    counts = sorted(set(plan.replicas))
    if len(counts) > 1:
        rule = "as many of every stage: no order of passes is known otherwise"
        raise UsageError.at("PLAN", f"stages of {', '.join(map(str, counts))} replicas", rule)
    each = (instance.training or TrainingMemory()).microbatches
    return _of_operators(instance, plan, instance.step_microbatches or each * counts[0])


def _of_operators(
    instance: OperatorInstance, plan: Any, N: int, devices: Sequence[Sequence[int]] | None = None
) -> Layout:
    """Stages of Parmesan's, with as many replicas each, and N micro-batches of all of these.

    Passes are in the schedule by which memory is counted, and a third of a stage's time is the forward pass, as in the
    simulated step. What is held is the inputs of `memory_terms`, and with stages that do not compute again the
    activations, for the micro-batches of the process.
    """
    from formulations.operator_partitioning.definition.problem import crossing_bytes, memory_bytes, memory_terms

    training, volumes, duties = instance.training, crossing_bytes(instance, plan), []
    again = training is not None and training.recompute
    for number, (members, d) in enumerate(zip(plan.stages, plan.replicas, strict=True)):
        operators, from_end = [instance.operators[each] for each in members], len(plan.stages) - number
        moved = math.fsum(volume for pair, volume in volumes.items() if number in pair) / 2
        seconds = math.fsum(each.compute_s for each in operators)
        weights = math.fsum(each.parameter_bytes for each in operators)
        memory = None if training is None else memory_bytes(instance, members, from_end)
        for replica in range(d):
            own, held, in_flight = range(replica, N, d), 0.0, from_end
            if training is not None:
                of_run = replace(instance, training=replace(training, microbatches=len(own)))
                terms = memory_terms(of_run, members, from_end)
                held = math.fsum([*terms["inputs"], *([] if again else terms["activations"])])
                in_flight = N if training.schedule == "gpipe" else from_end
            duties.append(
                Duty(
                    number,
                    replica,
                    _passes([(m,) for m in own], kfkb(len(own), in_flight, 1)),
                    moved * len(own),
                    held,
                    seconds / 3,
                    seconds * 2 / 3,
                    gradient_planned=2 * (d - 1) / d * weights,
                    memory_planned=memory,
                    device=None if devices is None else devices[number][replica],
                )
            )
    stage_of = {instance.operators[each].id: number for number, stage in enumerate(plan.stages) for each in stage}
    recomputed = frozenset(stage_of if again else ())
    return Layout(stage_of, recomputed, tuple(duties), N, tuple(sorted(volumes)), keeps_inputs=True)


_LAYOUTS: Mapping[str, Callable[[Any, Any], Layout]] = {
    "stage_partitioning": _of_stage_partitioning,
    "flushed_partitioning": _of_flushed_partitioning,
    "training_strategy": _of_training_strategy,
    "stage_graph": _of_stage_graph,
    "operator_partitioning": _of_operator_partitioning,
    "pipeline_placement": _of_placement,
}


def _passes(samples: Sequence[tuple[int, ...]], order: str) -> tuple[Pass, ...]:
    """The passes of an order such as ``FFBFBB``, the micro-batches of each kind in turn."""
    begun = dict.fromkeys("FBW", 0)
    found = []
    for kind in order:
        found.append(Pass(kind, begun[kind], samples[begun[kind]]))
        begun[kind] += 1
    return tuple(found)


@dataclass(frozen=True)
class Timing:
    """A pass of a duty (by its number, ``rank``) with its start and end, in seconds."""

    rank: int
    kind: str
    index: int
    start_s: float
    end_s: float


def simulate(made: Layout, seconds: Mapping[tuple[int, str, int], float] | None = None) -> list[Timing]:
    """When each pass would run by the plan's own times, tensors moved in no time.

    ``seconds`` are those of each pass, by (duty, kind, index), in place of the plan's.

    `UsageError` if the processes would wait for each other for ever.
    """
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for u, v in made.edges:
        after.setdefault(u, []).append(v)
        before.setdefault(v, []).append(u)
    ends: dict[tuple[int, str, int], float] = {}  # (stage, kind, sample)
    todo = [made.passes_of(rank) for rank in range(made.num_processes)]
    clock, done = [0.0] * len(todo), [0] * len(todo)
    owners, found, ready = made.owners(), list[Timing](), list(range(len(todo)))
    while ready:
        rank = ready.pop()
        while done[rank] < len(todo[rank]):
            number, task = todo[rank][done[rank]]
            duty = made.duties[number]
            others = {"F": before, "B": after}.get(task.kind, {}).get(duty.stage, [])
            own = {"B": "F", "W": "B"}.get(task.kind)
            givers = [*((giver, task.kind) for giver in others), *([] if own is None else [(duty.stage, own)])]
            waits = [(*giver, sample) for giver in givers for sample in task.samples]
            if any(wait not in ends for wait in waits):
                break
            start = max([clock[rank], *(ends[wait] for wait in waits)])
            each = duty.seconds(task.kind) if seconds is None else seconds[number, task.kind, task.index]
            clock[rank] = start + each
            found.append(Timing(number, task.kind, task.index, start, clock[rank]))
            done[rank] += 1
            takers = {"F": after, "B": before}.get(task.kind, {}).get(duty.stage, [])
            for sample in task.samples:
                ends[duty.stage, task.kind, sample] = clock[rank]
                firsts = [owners[taker, sample] for taker in takers]
                ready += [made.rank_of(first + shard) for first in firsts for shard in range(made.duties[first].degree)]
    stuck = [todo[rank][count][0] for rank, count in enumerate(done) if count < len(todo[rank])]
    if stuck:
        stage = made.duties[stuck[0]].stage
        raise UsageError.at("the order of passes", f"one in which stage {stage} waits for ever", "one that ends")
    return sorted(found, key=lambda each: (each.start_s, each.rank))
