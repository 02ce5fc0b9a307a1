"""A tiling in figures: what every stage's tile costs."""

from dataclasses import astuple
from itertools import pairwise

from formulations.contract.figures.objective_parts import equation_4
from formulations.contract.figures.plan_figures import Breakdown, Picture, Stack, Tile, Tiles, slowest, stages_of
from formulations.mesh_tiling.definition.plan import TilingPlan
from formulations.mesh_tiling.definition.problem import data_s, sending_s, tensor_s
from instances.problems.mesh_tiling import MeshInstance


def breakdown(instance: MeshInstance, plan: TilingPlan) -> Breakdown:
    """Every tile's seconds for a micro-batch, its all-reduce, and what it sends to the next where the order counts."""
    tiles = sorted(plan.tiles, key=lambda tile: tile.stage)
    times = [tensor_s(instance, tile) for tile in tiles]
    sending = [*(sending_s(instance, a, b) if instance.ordered else 0.0 for a, b in pairwise(tiles)), 0.0]
    rings = [data_s(instance, tile) for tile in tiles]
    rows = [
        {"at": [f"({tile.row}, {tile.column})"], "microbatch_s": time, "all_reduce_s": ring, "sending_s": sent}
        for tile, time, ring, sent in zip(tiles, times, rings, sending, strict=True)
    ]
    stages = stages_of(times, [f"{tile.rows} x {tile.columns}" for tile in tiles])
    microbatch = {
        "compute": [instance.compute_s] * len(tiles),
        "tensor-parallel all-reduce": [time - instance.compute_s for time in times],
    }
    pictures: tuple[Picture, ...] = (
        Tiles("Tiling", instance.rows, instance.columns, [Tile(*astuple(tile)) for tile in tiles], stages),
        Stack("A micro-batch in each stage", stages, microbatch, "time of a micro-batch", "s"),
        equation_4(times, sending, rings, instance.num_microbatches, stages),
    )
    return Breakdown(
        tuple(rows),
        {"bottleneck": f"stage {slowest(times)}"},
        lambda: pictures,
        degrees=[(tile.rows * tile.columns // instance.tp_degree, instance.tp_degree) for tile in tiles],
        devices=(sum(tile.rows * tile.columns for tile in tiles), instance.rows * instance.columns),
    )
