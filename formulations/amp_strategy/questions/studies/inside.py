"""What AMP's algorithms solve inside: the layer assignment of each strategy, and the tiling that a placement is."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise

from formulations.amp_strategy.definition.plan import StrategyPlan
from formulations.amp_strategy.definition.problem import layer_assignment
from formulations.amp_strategy.paper.amp import Assign, Tried, anneal, rank_degrees, released_assignment
from formulations.contract.inner_problems import Arisen, Subproblem
from formulations.layer_assignment import paper
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import cuts as ends_of
from formulations.layer_assignment.definition.problem import parameters_of
from formulations.mesh_tiling.definition.plan import Tile, TilingPlan
from instances.problems.amp_strategy import AmpInstance
from instances.problems.mesh_tiling import MeshInstance
from solvers.outcome import Limits, Watch


def _ranked(
    method: str, assign: Callable[[AmpInstance], Assign], instance: AmpInstance, _: Limits, watch: Watch
) -> Iterator[Arisen]:
    """The layer assignment of each strategy of Algorithm 1, or of what takes its place."""
    return _assignments(instance, method, rank_degrees(instance, watch, assign(instance)))


layers_of_amp = partial(_ranked, "amp", lambda _: paper.solve_amp)
layers_of_released = partial(_ranked, "amp-released", released_assignment)
layers_of_megatron = partial(_ranked, "megatron", lambda _: paper.solve_megatron)


def layers_of_annealing(instance: AmpInstance, limits: Limits, watch: Watch) -> Iterator[Arisen]:
    """The layer assignment of each strategy that Algorithm 2 looks at."""
    return _assignments(instance, "amp", anneal(instance, limits, watch, paper.solve_amp))


def tilings_of_annealing(instance: AmpInstance, limits: Limits, watch: Watch) -> Iterator[Arisen]:
    """The tiling that each placement drawn by Algorithm 2 is; Megatron's is left out where it is none."""
    for each in anneal(instance, limits, watch, paper.solve_amp):
        tiles = None if each.plan is None else tiles_of(instance, each.plan)
        if each.plan is not None and tiles is not None:
            mesh = mesh_of(instance, each.plan)
            yield partial(Subproblem, mesh, "drawn", tiles, {**_degrees(each), "accepted": int(each.is_accepted)})


def _assignments(instance: AmpInstance, inner: str, tried: Iterable[Tried]) -> Iterator[Arisen]:
    for each in tried:
        plan = None if each.plan is None else LayerPlan(each.plan.lengths)
        yield partial(Subproblem, layer_assignment(instance, each.degrees, each.placement), inner, plan, _degrees(each))


def _degrees(each: Tried) -> dict[str, str | int | float]:
    return dict(vars(each.degrees))


def mesh_of(instance: AmpInstance, plan: StrategyPlan) -> MeshInstance:
    """The mesh of a strategy's devices, and what any of its stages takes there.

    Stages of a mesh are identical: each computes as long as the slowest one, reduces as many bytes as the one of most
    parameters, and sends the mean of what goes over the cuts. Layer times hold the tensor-parallel all-reduce.
    """
    degrees = plan.degrees
    layers = layer_assignment(instance, degrees, plan.placement)
    ends = ends_of(LayerPlan(plan.lengths))
    stages = list(pairwise(ends))
    sent = [
        degrees.microbatch * layer.activation_bytes / (degrees.tp_degree if layer.split_activation else 1)
        for layer in (instance.layers[end - 1] for end in ends[1:-1])
    ]
    return MeshInstance(
        layers.name,
        instance.devices_per_node,
        tuple(node.intra_bytes_per_s for node in instance.nodes),
        tuple(node.inter_bytes_per_s for node in instance.nodes),
        degrees.tp_degree,
        degrees.dp_degree,
        num_microbatches=layers.num_microbatches,
        compute_s=max(layers.stage_s(stage, *part) for stage, part in enumerate(stages)),
        dp_bytes=instance.parameter_bytes * max(parameters_of(layers, start, end) for start, end in stages),
        stage_bytes=math.fsum(sent) / len(sent) if sent else 0.0,
        ordered=True,
    )


def tiles_of(instance: AmpInstance, plan: StrategyPlan) -> TilingPlan | None:
    """The tiles that a strategy's placement lays, stage by stage; ``None`` if some stage's devices are no tile."""
    tp, dp, rows = plan.degrees.tp_degree, plan.degrees.dp_degree, instance.devices_per_node
    tiles = []
    for stage in range(plan.degrees.pp_degree):
        devices = plan.placement[stage * tp * dp : (stage + 1) * tp * dp]
        cells = [(device % rows, device // rows) for device in devices]
        row, column = map(min, zip(*cells, strict=True))
        height, width = (
            max(axis) + 1 - first for axis, first in zip(zip(*cells, strict=True), (row, column), strict=True)
        )
        if (height, width) not in ((tp, dp), (dp, tp)):
            return None
        tiles.append(Tile(stage, row, column, height, width))
    return TilingPlan(tuple(tiles))
