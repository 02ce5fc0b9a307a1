"""Training strategies: the definition, naively and without any solver.

A strategy's time is that of its layer assignment (formulations/layer_assignment) with the times, cut costs and rings
that its degrees, micro-batch and placement give.

Source: AMP's supplement, section 6.2; the single terms are reconstructed from the published predictions.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from formulations.amp_strategy.definition.plan import Degrees, StrategyPlan
from formulations.contract.violation import Violation
from formulations.layer_assignment.definition import problem as assignment
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import Terms
from instances.problems.amp_strategy import MEGATRON, ORIENTED, SLOWEST, AmpInstance
from instances.problems.layer_assignment import LayerAssignmentInstance, TiedParameters


def strategies(instance: AmpInstance) -> Iterator[Degrees]:
    """All degrees: tensor parallelism inside a node and profiled, all devices in use, a whole number of micro-batches.

    Source: AMP's supplement, section 6.2, enumerate_degrees(); that tp divides a node is reconstructed.
    """
    devices = instance.num_devices
    for tp_degree in sorted(_profiled_degrees(instance)):
        if instance.devices_per_node % tp_degree:
            continue
        for dp_degree in _divisors(devices // tp_degree):
            if instance.global_batch % dp_degree:
                continue
            for microbatch in _divisors(instance.global_batch // dp_degree):
                yield Degrees(microbatch, tp_degree, dp_degree, devices // tp_degree // dp_degree)


def placements(instance: AmpInstance, degrees: Degrees) -> tuple[tuple[int, ...], ...]:
    """The placements that the instance allows, Megatron's first: the device of each rank."""
    return _placements(
        instance.placement, len(instance.nodes), instance.devices_per_node, degrees.tp_degree, degrees.dp_degree
    )


@lru_cache(maxsize=256)
def _placements(kind: str, columns: int, rows: int, tp_degree: int, dp_degree: int) -> tuple[tuple[int, ...], ...]:
    found = [tuple(range(rows * columns))]
    if kind == MEGATRON:
        return tuple(found)
    for tiling in _tilings(rows, columns, tp_degree, dp_degree):
        devices: list[int] = []
        for row, column, height, width in tiling:
            across = kind == ORIENTED and height != tp_degree  # a lying tile's tensor-parallel groups lie too
            cells = (
                [(row + r, column + c) for r in range(height) for c in range(width)]
                if across
                else [(row + r, column + c) for c in range(width) for r in range(height)]
            )
            devices += [c * rows + r for r, c in cells]
        found.append(tuple(devices))
    return tuple(dict.fromkeys(found))


def _tilings(
    rows: int, columns: int, tp_degree: int, dp_degree: int
) -> Iterator[tuple[tuple[int, int, int, int], ...]]:
    """All tilings by tiles (row, column, height, width), each laid at the first free cell in reading order."""
    shapes = dict.fromkeys([(tp_degree, dp_degree), (dp_degree, tp_degree)])

    def lay(free: frozenset[tuple[int, int]]) -> Iterator[tuple[tuple[int, int, int, int], ...]]:
        if not free:
            yield ()
            return
        row, column = min(free)
        for height, width in shapes:
            cells = {(row + r, column + c) for r in range(height) for c in range(width)}
            if cells <= free:
                for rest in lay(free - cells):
                    yield ((row, column, height, width), *rest)

    return lay(frozenset((row, column) for row in range(rows) for column in range(columns)))


def layer_assignment(
    instance: AmpInstance, degrees: Degrees, placement: tuple[int, ...], closing_link_only: bool = False
) -> LayerAssignmentInstance:
    """The layer assignment that is left once degrees, micro-batch and placement are chosen.

    - A layer takes ``passes`` times its forward time for each sample, averaged over the nodes whatever they hold; with
      layer times of the ``slowest``, that of the slowest kind of GPU which its stage has.
    - A cut costs the mean over data-parallel ranks of the volume over the slowest link of a tensor-parallel rank.
    - A stage's all-reduce is a ring over its data-parallel ranks; the slowest link of the slowest ring decides.

    ``closing_link_only`` is the released program's error: only the link from the last rank to the first counts.
    """
    tp, dp, pp = degrees.tp_degree, degrees.dp_degree, degrees.pp_degree
    nodes = instance.nodes
    samples = instance.passes * degrees.microbatch
    times = tuple(
        samples * math.fsum(layer.forward_s[node.gpu][tp] for node in nodes) / len(nodes) for layer in instance.layers
    )

    def device(stage: int, dp_rank: int, tp_rank: int) -> int:
        return placement[degrees.rank(stage, dp_rank, tp_rank)]

    def slowest(stage: int) -> tuple[float, ...]:
        devices = [device(stage, d, m) for d in range(dp) for m in range(tp)]
        kinds = {nodes[each // instance.devices_per_node].gpu for each in devices}
        return tuple(samples * max(layer.forward_s[kind][tp] for kind in kinds) for layer in instance.layers)

    by_stage = tuple(slowest(stage) for stage in range(pp)) if instance.layer_times == SLOWEST else ()
    slowness = [
        math.fsum(
            1 / min(instance.bandwidth(device(stage, d, m), device(stage + 1, d, m)) for m in range(tp))
            for d in range(dp)
        )
        / dp
        for stage in range(pp - 1)
    ]
    volumes = [
        degrees.microbatch * layer.activation_bytes / (tp if layer.split_activation else 1)
        for layer in instance.layers[:-1]
    ]

    def ring(stage: int) -> float:
        rings = [[device(stage, d, m) for d in range(dp)] for m in range(tp)]
        links = [
            instance.bandwidth(here, there)
            for devices in rings
            for here, there in ([(devices[-1], devices[0])] if closing_link_only else pairwise([*devices, devices[0]]))
        ]
        return 2 * (dp - 1) / dp * instance.parameter_bytes / min(links)

    return LayerAssignmentInstance(
        name=f"{instance.name} microbatch {degrees.microbatch} tp {tp} dp {dp} pp {pp}",
        layer_time_s=times,
        cut_cost_s=tuple(tuple(volume * slow for slow in slowness) or (0.0,) for volume in volumes),
        num_stages=pp,
        num_microbatches=instance.global_batch // (dp * degrees.microbatch),
        parameters=tuple(layer.parameters / tp for layer in instance.layers),
        tied=tuple(TiedParameters(tie.layers, tie.parameters / tp) for tie in instance.tied),
        ring_s_per_parameter=tuple(ring(stage) for stage in range(pp)) if dp > 1 else (),
        head_layers=instance.head_layers,
        tail_layers=instance.tail_layers,
        stage_time_s=by_stage,
    )


def terms(instance: AmpInstance, plan: StrategyPlan) -> Terms:
    """Seconds of a step by cause."""
    return assignment.terms(layer_assignment(instance, plan.degrees, plan.placement), LayerPlan(plan.lengths))


def evaluate(instance: AmpInstance, plan: StrategyPlan) -> float:
    """Seconds of a training step.

    `ValueError` if the plan breaks a rule.
    Source: AMP, Equation 4, as estimate() uses it (section 6.2), with the data-parallel all-reduce; terms
    reconstructed.
    """
    if violations(instance, plan):
        raise ValueError("; ".join(map(str, violations(instance, plan))))
    return assignment.evaluate(layer_assignment(instance, plan.degrees, plan.placement), LayerPlan(plan.lengths))


def violations(instance: AmpInstance, plan: StrategyPlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks.

    ``degrees``: all devices in use, tensor parallelism profiled and inside a node. ``batch``: a whole number of
    micro-batches. ``stages``, ``empty``, ``layers``: of the layer assignment. ``placement``: one that the instance
    allows.
    """
    degrees = plan.degrees
    tp, dp, pp = degrees.tp_degree, degrees.dp_degree, degrees.pp_degree
    found = []
    if min(tp, dp, pp, degrees.microbatch) < 1:
        return (Violation("degrees", "degrees and micro-batch are at least 1"),)
    if tp * dp * pp != instance.num_devices:
        found.append(Violation("degrees", f"tp {tp} x dp {dp} x pp {pp} is not {instance.num_devices} devices"))
    if instance.devices_per_node % tp or tp not in _profiled_degrees(instance):
        found.append(Violation("degrees", f"tp {tp} does not divide a node or was not profiled"))
    if instance.global_batch % (dp * degrees.microbatch):
        share = f"dp {dp} x micro-batch {degrees.microbatch}"
        found.append(Violation("batch", f"{share} does not divide the batch of {instance.global_batch}"))
    if found:
        return tuple(found)
    if plan.placement not in placements(instance, degrees):
        return (Violation("placement", f"not one of the placements called {instance.placement}"),)
    return assignment.violations(layer_assignment(instance, degrees, plan.placement), LayerPlan(plan.lengths))


def _profiled_degrees(instance: AmpInstance) -> set[int]:
    return {degree for times in instance.layers[0].forward_s.values() for degree in times}


def _divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})
