"""Stage graphs: the definition, naively and without any solver.

Source: GraphPipe, section 3 (C1 to C4, Equations 1 and 2). The paper does not say what a stage costs; that is a choice
of this project, written down here and in the README of the problem package.
"""

import math
from collections.abc import Iterable

from formulations.contract.violation import Violation
from formulations.microbatch_schedule.definition import in_flight
from formulations.simulation.simulate_graph import GraphTrace, PassGraph, kfkb, run
from formulations.stage_graph.definition.plan import Stage, StagePlan
from instances.graph import find_cycle, topological_order
from instances.problems.microbatch_schedule import ScheduleEdge, ScheduleInstance, ScheduleStage
from instances.problems.stage_graph import Shard, StageGraph
from instances.units import of_room


def data_edges(instance: StageGraph, stages: Iterable[Stage]) -> tuple[tuple[int, int], ...]:
    """Pairs of stages with a tensor from the first to the second, ascending."""
    stage_of = {node: index for index, stage in enumerate(stages) for node in stage.nodes}
    pairs = {(stage_of.get(edge.source, -1), stage_of.get(edge.target, -1)) for edge in instance.edges}
    return tuple(sorted((before, after) for before, after in pairs if before != after and min(before, after) >= 0))


def evaluate(instance: StageGraph, plan: StagePlan) -> float:
    """Seconds per sample (TPS) of the slowest stage, or seconds of an iteration, as the instance's objective says.

    `ValueError` if the plan has no stage, or breaks a rule that its cost needs.
    Source: GraphPipe, Equation 1.
    """
    if not plan.stages or _structure(instance, plan):
        raise ValueError("; ".join(map(str, _structure(instance, plan))) or "the plan has no stage")
    if instance.objective == "iteration":
        return iteration_s(instance, plan)
    return bottleneck_s(instance, plan)


def bottleneck_s(instance: StageGraph, plan: StagePlan) -> float:
    """Seconds per sample of the slowest stage."""
    return max(tps(instance, plan, stage) for stage in range(len(plan.stages)))


def schedule_of(instance: StageGraph, plan: StagePlan) -> ScheduleInstance:
    """The plan's stages as an instance of micro-batch scheduling: when does every pass run?

    Sending is part of a pass, so links take no time of their own.
    """
    stages = []
    for index, stage in enumerate(plan.stages):
        forward, backward = pass_times(instance, plan, index)
        stages.append(ScheduleStage(forward, backward, stage.microbatch, stage.k, stage.in_flight))
    edges = tuple(ScheduleEdge(before, after) for before, after in plan.edges)
    return ScheduleInstance(instance.name, instance.minibatch, tuple(stages), edges)


def simulate(instance: StageGraph, plan: StagePlan) -> GraphTrace:
    """An iteration with all stages in the order F^l (B^k F^k)* B^rest."""
    graph = PassGraph(schedule_of(instance, plan))
    orders = [kfkb(graph.counts[s], each.in_flight // each.microbatch, each.k) for s, each in enumerate(plan.stages)]
    return run(graph, orders)


def iteration_s(instance: StageGraph, plan: StagePlan) -> float:
    """Seconds of a simulated iteration and the slowest all-reduce.

    `ValueError` if the stages wait for each other, as they keep too few samples in flight.
    """
    trace = simulate(instance, plan)
    if trace.stuck:
        raise ValueError("the stages wait for each other")
    return trace.iteration_s + max(all_reduce_s(instance, stage) for stage in plan.stages)


def tps(instance: StageGraph, plan: StagePlan, stage: int) -> float:
    """Seconds per sample of a stage: passes of a micro-batch, and its share of the all-reduce of an iteration."""
    busy = sum(pass_times(instance, plan, stage))
    return busy / plan.stages[stage].microbatch + all_reduce_s(instance, plan.stages[stage]) / instance.minibatch


def replica_samples(microbatch: int, devices: int) -> int:
    """Samples of a micro-batch on the fullest of a stage's replicas: ceil(b / r).

    >>> replica_samples(3, 2)
    2
    """
    return -(-microbatch // devices)


def held_samples(minibatch: int, microbatch: int, devices: int, in_flight: int) -> int:
    """Samples in flight on the fullest replica: ceil(b / r) of each of the ceil(i / b) micro-batches in flight.

    Every micro-batch is split in the same way, so a replica that is the fullest once is the fullest each time. The
    samples of all replicas together may be fewer than r times as many.

    >>> held_samples(12, 3, 2, 6)
    4
    """
    return -(-min(in_flight, minibatch) // microbatch) * replica_samples(microbatch, devices)


def pass_times(instance: StageGraph, plan: StagePlan, stage: int) -> tuple[float, float]:
    """Seconds of the forward and of the backward pass of a micro-batch; each sends and receives as many bytes.

    The fullest replica sets the pace (`replica_samples`). Nothing overlaps: the stage's tensors come in and go out one
    after another, and so do the all-reduces among the devices that share a replica.

    Source: Of tensor parallelism Piper, section 3.6 (X.p) and Appendix B, as `_message_s` says. GraphPipe names no more
    than "a subroutine of applying tensor parallelism" (section 8).
    """
    own = plan.stages[stage]
    samples, shards = replica_samples(own.microbatch, own.replicas), shards_of(instance, own)
    moved = math.fsum(_message_s(instance, plan, own, edge, samples) for edge in range(len(instance.edges)))
    reduced = [reduce_s(instance, shard, samples) for shard in shards]
    forward = math.fsum([*(shard.forward.at(samples) for shard in shards), *reduced, moved])
    backward = math.fsum([*(shard.backward.at(samples) for shard in shards), *reduced, moved])
    return forward, backward


def shards_of(instance: StageGraph, stage: Stage) -> list[Shard]:
    """What each device has of the stage's operators; ``ValueError`` if one does not declare the degree."""
    for node in stage.nodes:
        if stage.tp_degree not in instance.operators[node].shards:
            raise ValueError(f"operator {node} has no tensor-parallel degree {stage.tp_degree}")
    return [instance.operators[node].shards[stage.tp_degree] for node in stage.nodes]


def reduce_s(instance: StageGraph, shard: Shard, samples: int) -> float:
    """Seconds of a pass in which the devices that share an operator all-reduce ``reduced_bytes``, as a ring.

    Source: reconstructed; Piper takes it as part of X.p.
    """
    t = shard.degree
    if not shard.reduced_bytes:
        return 0.0
    volume = 2 * (t - 1) / t * shard.reduced_bytes * samples
    return volume / instance.reduce_bandwidth(t) + 2 * t * instance.latency_s


def _message_s(instance: StageGraph, plan: StagePlan, own: Stage, edge: int, samples: int) -> float:
    """Seconds of a tensor at one of its ends, in either pass.

    One device of a replica has it or its gradient from outside and spreads it among those that share the operator: for
    each byte they take `Shard.spread_inputs` or ``spread_outputs`` bytes besides. The latency counts once.

    Source: Of tensor parallelism Piper, Appendix B: c(u, v) + X.c^fw(u, v) and c(v, w) + X.c^bw(v, w), in section 4
    twice each.
    """
    source, target = instance.edges[edge].source, instance.edges[edge].target
    if (source in own.nodes) == (target in own.nodes):
        return 0.0
    leaves = source in own.nodes
    outside, inside = (target, source) if leaves else (source, target)
    other = next((stage for stage in plan.stages if outside in stage.nodes), None)
    if other is None:
        raise ValueError(f"operator {outside} is in no stage")
    bandwidth = _link(instance, own, other) if leaves else _link(instance, other, own)
    shard = instance.operators[inside].shards[own.tp_degree]
    spread = shard.spread_outputs if leaves else shard.spread_inputs
    return instance.latency_s + instance.edges[edge].bytes_per_sample * (1 + spread) * samples / bandwidth


def _link(instance: StageGraph, source: Stage, target: Stage) -> float:
    """Bytes per second between two stages: the slowest of their links, in both directions (gradients go back)."""
    if instance.device_graph is None:
        return instance.bandwidth_bytes_per_s
    links = instance.device_graph.bandwidth_bytes_per_s
    pairs = [(u, v) for u in source.device_ids for v in target.device_ids]
    slowest = min(min(links[u][v], links[v][u]) for u, v in pairs)
    return slowest or math.nan


def all_reduce_s(instance: StageGraph, stage: Stage) -> float:
    """Seconds of a stage's ring all-reduce of its weights, once in an iteration; 0 for one replica.

    Of t devices that share a replica each sums its own part of the gradients with those of the other replicas that have
    the same part, all at once (Piper, section 4: X.w is on each device). Among all devices of the stage lie the rings.
    """
    degree = stage.replicas
    if degree == 1:
        return 0.0
    bandwidth = instance.reduce_bandwidth(stage.devices)
    if instance.device_graph is not None:
        links = instance.device_graph.bandwidth_bytes_per_s
        bandwidth = min(links[u][v] for u in stage.device_ids for v in stage.device_ids if u != v) or math.nan
    weights = math.fsum(shard.weight_bytes for shard in shards_of(instance, stage))
    return 2 * (degree - 1) / degree * weights / bandwidth + 2 * degree * instance.latency_s


def memory_bytes(instance: StageGraph, stage: Stage) -> float:
    """Bytes on the fullest device of a stage: copies of the weights, and what its samples in flight keep there.

    A sample keeps the operators' activations and the tensors that come in from other stages, whole on each of the
    devices that share a replica. The samples are those that `pass_times` counts, once for each micro-batch in flight.

    Source: The paper gives no formula (Equation 2 names a function alone): this project's choice. Of tensor parallelism
    Piper, section 3.6: each device begins "with a full copy of each input activation".
    """
    shards = shards_of(instance, stage)
    weights = math.fsum(shard.weight_bytes for shard in shards)
    kept = math.fsum(
        [
            *(shard.activation_bytes for shard in shards),
            *(e.bytes_per_sample for e in instance.edges if e.target in stage.nodes and e.source not in stage.nodes),
        ]
    )
    held = held_samples(instance.minibatch, stage.microbatch, stage.replicas, stage.in_flight)
    return instance.weight_copies * weights + held * kept


def room_bytes(instance: StageGraph, stage: Stage) -> float:
    """Memory of the least device of a stage."""
    return min((instance.memory_of(device) for device in stage.device_ids), default=instance.memory_bytes)


def least_in_flight(instance: StageGraph, plan: StagePlan, stage: int) -> int:
    """Samples that a stage must keep in flight so that its successors need not wait; never more than B.

    The successors keep what the plan declares. With one size and 1F1B this is one micro-batch more than they keep.

    Source: GraphPipe, Appendix A.1, corrected for the ratio of the passes; the exact procedure where sizes are no
    powers of two.
    """
    own = plan.stages[stage]
    after = {plan.stages[target] for source, target in plan.edges if source == stage}
    successors = [in_flight.Successor(other.in_flight, other.microbatch, other.k) for other in after]
    if own.k == 1 and all((other.microbatch, other.k) == (own.microbatch, 1) for other in after):
        least = max((other.in_flight for other in after), default=0) + own.microbatch
    elif all(_is_power_of_two(number) for other in (own, *after) for number in (other.microbatch, other.k)):
        least = in_flight.rule(successors, own.microbatch, own.k, instance.pass_ratio)
    else:
        each = [in_flight.exact(other, own.microbatch, own.k, instance.pass_ratio) for other in successors]
        least = max([own.k * own.microbatch, *each])
    return min(least, instance.minibatch)


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def depth(plan: StagePlan) -> int:
    """Stages on the longest path of the plan's edges."""
    longest = [1] * len(plan.stages)
    for stage in topological_order(len(plan.stages), plan.edges)[::-1]:
        longest[stage] += max((longest[target] for source, target in plan.edges if source == stage), default=0)
    return max(longest)


def violations(instance: StageGraph, plan: StagePlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks.

    ``nodes``, ``partition`` and ``convex`` (C1), ``edges`` (C2), ``acyclic`` (section 3: the stage graph is a DAG),
    ``devices`` and ``idle`` (C3, with idle devices declared), ``tp_degree`` (each operator of a stage declares it),
    ``schedule``, ``microbatch`` and ``in_flight`` (C4), ``links`` and ``memory`` (Equation 2). Later rules are examined
    only where the earlier ones give them a meaning.
    """
    found = _structure(instance, plan)
    if found or not plan.stages:
        return found or (Violation("partition", "the plan has no stage"),)
    late = (*_flow(instance, plan), *_links(instance, plan))
    return (*_partition(instance, plan), *late, *_memory(instance, plan))


def _structure(instance: StageGraph, plan: StagePlan) -> tuple[Violation, ...]:
    """Numbers out of range: with these nothing can be computed."""
    found = []
    for index, stage in enumerate(plan.stages):
        unknown = [node for node in stage.nodes if not 0 <= node < instance.num_operators]
        if unknown or not stage.nodes:
            message = f"stage {index} has {f'no operator {unknown[0]}' if unknown else 'no operators'}"
            found.append(Violation("nodes", message))
        if len(set(stage.nodes)) != len(stage.nodes):
            found.append(Violation("partition", f"stage {index} names an operator twice"))
        found += _device_rules(instance, index, stage)
        lacking = [] if unknown else [v for v in stage.nodes if stage.tp_degree not in instance.operators[v].shards]
        if lacking:
            message = f"stage {index} has tp_degree {stage.tp_degree}, which operator {lacking[0]} does not declare"
            found.append(Violation("tp_degree", message))
        elif stage.tp_degree < 1 or stage.devices % stage.tp_degree:
            message = f"stage {index} has {stage.devices} devices; expected a multiple of tp_degree {stage.tp_degree}"
            found.append(Violation("tp_degree", message))
        if stage.microbatch not in instance.microbatch_sizes:
            rule = f"one of {', '.join(map(str, instance.microbatch_sizes))}"
            found.append(Violation("microbatch", f"stage {index} has micro-batches of {stage.microbatch}; {rule}"))
        elif stage.k < 1 or stage.k * stage.microbatch > instance.minibatch:
            found.append(
                Violation("schedule", f"stage {index} has k = {stage.k}; expected 1 to {instance.minibatch}/b")
            )
    for before, after in plan.edges:
        if not (0 <= before < len(plan.stages) and 0 <= after < len(plan.stages)) or before == after:
            found.append(Violation("edges", f"({before}, {after}) is no pair of stages"))
    used = [device for stage in plan.stages for device in stage.device_ids]
    if len(set(used)) != len(used):
        found.append(Violation("devices", "a device belongs to two stages"))
    return tuple(found)


def _device_rules(instance: StageGraph, index: int, stage: Stage) -> list[Violation]:
    if stage.devices < 1:
        return [Violation("devices", f"stage {index} has {stage.devices} devices; expected at least 1")]
    if instance.device_graph is None:
        return [Violation("devices", f"stage {index} names devices, which are identical")] if stage.device_ids else []
    if len(stage.device_ids) != stage.devices or not all(0 <= d < instance.num_devices for d in stage.device_ids):
        return [Violation("devices", f"stage {index} must name {stage.devices} of {instance.num_devices} devices")]
    return []


def _partition(instance: StageGraph, plan: StagePlan) -> list[Violation]:
    """C1, C2, acyclic and C3."""
    found = []
    for node in range(instance.num_operators):
        holders = [index for index, stage in enumerate(plan.stages) if node in stage.nodes]
        if len(holders) != 1:
            found.append(Violation("partition", f"operator {node} is in {len(holders)} stages; expected 1"))
    for index, stage in enumerate(plan.stages):
        outside = _on_the_way(instance, set(stage.nodes))
        if outside is not None:
            found.append(Violation("convex", f"stage {index} is left through operator {outside} and entered again"))
    missing = sorted(set(data_edges(instance, plan.stages)) - set(plan.edges))
    found += [Violation("edges", f"a tensor goes from stage {u} to stage {v}, no edge does") for u, v in missing]
    cycle = find_cycle(len(plan.stages), plan.edges)
    if cycle:
        found.append(Violation("acyclic", f"stages {', '.join(map(str, cycle))} wait for each other"))
    total = sum(stage.devices for stage in plan.stages)
    if total > instance.num_devices:
        found.append(Violation("devices", f"{total} devices are used; there are {instance.num_devices}"))
    elif plan.idle_devices != instance.num_devices - total:
        message = f"{plan.idle_devices} devices are declared idle; {instance.num_devices - total} are"
        found.append(Violation("idle", message))
    return found


def _on_the_way(instance: StageGraph, nodes: set[int]) -> int | None:
    """An operator outside the set on a path between two of its operators, or ``None``."""
    reached, leading = set(nodes), set(nodes)
    for edge in sorted(instance.edges, key=lambda each: each.source):
        if edge.source in reached:
            reached.add(edge.target)
    for edge in sorted(instance.edges, key=lambda each: -each.target):
        if edge.target in leading:
            leading.add(edge.source)
    return min((reached & leading) - nodes, default=None)


def _flow(instance: StageGraph, plan: StagePlan) -> list[Violation]:
    """What the declared schedule allows, replicas with nothing to do, and samples in flight (C4)."""
    found = []
    sizes, blocks = {stage.microbatch for stage in plan.stages}, {stage.k for stage in plan.stages}
    if instance.schedule == "uniform" and len(sizes) > 1:
        found.append(Violation("schedule", f"micro-batches of {', '.join(map(str, sorted(sizes)))}; expected one size"))
    if instance.schedule != "kfkb" and blocks != {1}:
        found.append(Violation("schedule", f"k of {max(blocks)}; expected 1 (1F1B)"))
    for index, stage in enumerate(plan.stages):
        if stage.replicas > stage.microbatch:
            who = "devices" if stage.tp_degree == 1 else "replicas"
            message = f"stage {index} has {stage.replicas} {who} for micro-batches of {stage.microbatch}"
            found.append(Violation("devices", message))
        least = least_in_flight(instance, plan, index)
        if not least <= stage.in_flight <= instance.minibatch or stage.in_flight % stage.microbatch:
            expected = f"a multiple of {stage.microbatch} from {least} to {instance.minibatch}"
            found.append(Violation("in_flight", f"stage {index} keeps {stage.in_flight} samples; expected {expected}"))
    return found


def _links(instance: StageGraph, plan: StagePlan) -> list[Violation]:
    if instance.device_graph is None:
        return []
    pairs = [(u, v) for u, v in data_edges(instance, plan.stages)]
    broken = [pair for pair in pairs if math.isnan(_link(instance, plan.stages[pair[0]], plan.stages[pair[1]]))]
    found = [Violation("links", f"stages {u} and {v} exchange tensors without a link") for u, v in broken]
    for index, stage in enumerate(plan.stages):
        if math.isnan(all_reduce_s(instance, stage)):
            found.append(Violation("links", f"devices of stage {index} are not linked"))
    return found


def _memory(instance: StageGraph, plan: StagePlan) -> list[Violation]:
    """Equation 2, on every device."""
    found = []
    for index, stage in enumerate(plan.stages):
        used = memory_bytes(instance, stage)
        room = room_bytes(instance, stage)
        if used > room:
            found.append(Violation("memory", f"stage {index} needs {of_room(used, room)} on a device"))
    return found
