"""Stage partitioning with TMPC choice: the definition, naively and without any solver.

Source: Piper, sections 3.1 to 3.6 and "TPS of a fixed configuration" in section 4.
"""

import math

from formulations.contract.violation import Violation
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from instances.problems.stage_partitioning import CostModel, StageInstance, Tmpc
from instances.rules import NodeId
from instances.units import of_room

#: A stage fits if its memory is at most M times this: float noise of published byte counts, far below one byte.
MEMORY_SLACK = 1 + 1e-12


def allowed_dp_degrees(instance: StageInstance) -> tuple[int, ...]:
    """Data-parallel degrees a stage may have, ascending.

    Paper: any d <= min(N, K). Released code: divisors of N only. Both at most ``max_dp_degree``.
    """
    largest = min(instance.num_microbatches, instance.num_devices)
    if instance.max_dp_degree is not None:
        largest = min(largest, instance.max_dp_degree)
    released = instance.cost_model is not CostModel.PAPER
    return tuple(d for d in range(1, largest + 1) if not released or instance.num_microbatches % d == 0)


def suffix_sums(plan: StagePlan) -> list[int]:
    """s of every stage: data-parallel degrees of this and all later stages, summed."""
    sums: list[int] = []
    for stage in reversed(plan.stages):
        sums.append(stage.dp_degree + (sums[-1] if sums else 0))
    return sums[::-1]


def stage_memory(instance: StageInstance, stage: Stage, s: int) -> float:
    """Bytes on each device of a stage: sum of a * ceil(s/d) + b over its nodes (section 3.5).

    The cost model ``runtime`` adds `carried_bytes` * ceil(s/d).
    """
    in_flight = -(-s // stage.dp_degree)
    chosen = [_tmpc_of(instance, stage, node) for node in stage.nodes]
    activations = [*(x.activation_bytes for x in chosen), *carried_bytes(instance, stage)]
    return math.fsum([size * in_flight for size in activations] + [x.static_bytes for x in chosen])


def carried_bytes(instance: StageInstance, stage: Stage) -> list[float]:
    """Activations of a micro-batch that a stage keeps and that ``activation_bytes`` of a layer elsewhere count.

    A tensor that several layers keep is in each of their stages once. Where the first of its layers is not in the
    stage, the first one that is there counts it, if it runs with one of the tensor's TMPCs.

    Source: This project: what `planner run` holds.
    """
    inside, found = set(stage.nodes), []
    for tensor in instance.shared_activations:
        first = next((node for node in tensor.layers if node in inside), tensor.layers[0])
        if first != tensor.layers[0] and stage.tmpcs.get(first) in tensor.tmpcs:
            found.append(tensor.bytes)
    return found


def time_terms(instance: StageInstance, stage: Stage) -> dict[str, list[float]]:
    """What a stage spends its time per sample on: computing, transfers across its boundary, synchronised weights.

    Source: Piper, section 4, "TPS of a fixed configuration". The released program charges the data-parallel
    synchronisation once per batch of N micro-batches: 4 (d-1)/d w / (N B) instead of 4 (d-1)/d^2 w / B.
    """
    inside = set(stage.nodes)
    d, B, N = stage.dp_degree, instance.bandwidth, instance.num_microbatches
    compute: list[float] = []
    transfer: list[float] = []
    synchronisation: list[float] = []
    for node in stage.nodes:
        x = _tmpc_of(instance, stage, node)
        compute.append(x.time / d)
        shared = N if instance.cost_model is not CostModel.PAPER else d
        synchronisation.append(4 * (d - 1) / d * x.weight_bytes / shared / B)
    for edge in instance.edges:
        if edge.target in inside and edge.source not in inside:
            x = _tmpc_of(instance, stage, edge.target)
            transfer.append(2 * (edge.bytes + x.sync_forward_bytes.get(edge.source, 0.0)) / d / B)
        if edge.source in inside and edge.target not in inside:
            x = _tmpc_of(instance, stage, edge.source)
            transfer.append(2 * (edge.bytes + x.sync_backward_bytes.get(edge.target, 0.0)) / d / B)
    return {"compute": compute, "transfer": transfer, "synchronisation": synchronisation}


def stage_time(instance: StageInstance, stage: Stage) -> float:
    """Time per sample of one stage, in the instance's time unit: the sum of all `time_terms`."""
    return math.fsum(term for terms in time_terms(instance, stage).values() for term in terms)


def evaluate(instance: StageInstance, plan: StagePlan) -> float:
    """Time per sample of a plan, in the instance's time unit: the slowest stage.

    ``instance``, ``plan``: ``violations(instance, plan)`` must be empty.
    `ValueError` if the plan names a node or TMPC that the instance does not have, or has no stage.
    Source: Piper, section 3.2.
    """
    if not plan.stages:
        raise ValueError("the plan has no stage")
    return max(stage_time(instance, stage) for stage in plan.stages)


def violations(instance: StageInstance, plan: StagePlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks; empty if it is feasible.

    Rules: ``cover`` (every node in exactly one stage, no stage empty), ``tmpc`` (a TMPC of T(v, t) for every node),
    ``order`` (no edge runs backwards, so stages are contiguous), ``dp_degree``, ``devices`` (sum of d t <= K),
    ``microbatches`` (sum of d <= N, or = N), ``memory`` (<= M on every device), ``required`` (what the instance
    requires beyond).
    """
    found = [*_cover(instance, plan), *_tmpcs(instance, plan)]
    if found:  # the other rules speak of the nodes and TMPCs of a whole partition
        return tuple(found)
    stage_of = {node: position for position, stage in enumerate(plan.stages) for node in stage.nodes}
    for edge in instance.edges:
        if stage_of[edge.source] > stage_of[edge.target]:
            found.append(
                Violation(
                    "order",
                    f"edge {edge.source} -> {edge.target} runs from stage {stage_of[edge.source]} "
                    f"back to stage {stage_of[edge.target]}",
                )
            )
    allowed = set(allowed_dp_degrees(instance))
    found += [
        Violation("dp_degree", f"stage {position} has d = {stage.dp_degree}, which the instance does not allow")
        for position, stage in enumerate(plan.stages)
        if stage.dp_degree not in allowed
    ]
    devices = sum(stage.dp_degree * stage.tp_degree for stage in plan.stages)
    if devices > instance.num_devices:
        found.append(Violation("devices", f"the stages take {devices} devices of {instance.num_devices}"))
    total = sum(stage.dp_degree for stage in plan.stages)
    N = instance.num_microbatches
    if total > N or (instance.exactly and total != N):
        rule = "exactly" if instance.exactly else "at most"
        found.append(Violation("microbatches", f"data-parallel degrees sum to {total}; expected {rule} {N}"))
    for position, (stage, s) in enumerate(zip(plan.stages, suffix_sums(plan), strict=True)):
        if stage.dp_degree < 1:
            continue
        memory = stage_memory(instance, stage, s)
        if memory > instance.memory_bytes * MEMORY_SLACK:
            held = -(-s // stage.dp_degree)
            found.append(
                Violation(
                    "memory",
                    f"stage {position} needs {of_room(memory, instance.memory_bytes)} with "
                    f"{held} micro-batch{'' if held == 1 else 'es'} in flight",
                )
            )
    return tuple(found)


def _cover(instance: StageInstance, plan: StagePlan) -> list[Violation]:
    found = []
    count = dict.fromkeys(instance.index, 0)
    for position, stage in enumerate(plan.stages):
        if not stage.nodes:
            found.append(Violation("cover", f"stage {position} is empty"))
        for node in stage.nodes:
            if node not in count:
                found.append(
                    Violation("cover", f"stage {position} names node {node!r}, which the instance does not have")
                )
            else:
                count[node] += 1
    found += [
        Violation("cover", f"node {node!r} is in {times} stages; expected exactly one")
        for node, times in count.items()
        if times != 1
    ]
    return found


def _tmpcs(instance: StageInstance, plan: StagePlan) -> list[Violation]:
    found = []
    for position, stage in enumerate(plan.stages):
        for node in stage.nodes:
            if node in instance.index and _find(instance, stage, node) is None:
                found.append(
                    Violation(
                        "tmpc",
                        f"stage {position} runs node {node!r} with TMPC {stage.tmpcs.get(node)!r}, "
                        f"which it does not have at t = {stage.tp_degree}",
                    )
                )
    return found


def _find(instance: StageInstance, stage: Stage, node: NodeId) -> Tmpc | None:
    layer = instance.layers[instance.index[node]]
    wanted = stage.tmpcs.get(node)
    return next((x for x in layer.tmpcs.get(stage.tp_degree, ()) if x.id == wanted), None)


def _tmpc_of(instance: StageInstance, stage: Stage, node: NodeId) -> Tmpc:
    if node not in instance.index:
        raise ValueError(f"the instance has no node {node!r}")
    found = _find(instance, stage, node)
    if found is None:
        raise ValueError(f"node {node!r} has no TMPC {stage.tmpcs.get(node)!r} at t = {stage.tp_degree}")
    return found
