"""A tiling in figures: what every stage's tile costs."""

from __future__ import annotations

from formulations.breakdown import Breakdown, Tile, Tiles, slowest, stages_of
from formulations.mesh_tiling.problem import TilingPlan, data_s, sending_s, tensor_s
from instances.mesh_tiling import MeshInstance


def breakdown(instance: MeshInstance, plan: TilingPlan) -> Breakdown:
    """Every tile's seconds for a micro-batch, its all-reduce, and what it sends to the next where the order counts."""
    tiles = sorted(plan.tiles, key=lambda tile: tile.stage)
    times = [tensor_s(instance, tile) for tile in tiles]
    rows = []
    for stage, tile in enumerate(tiles):
        after = tiles[stage + 1] if stage + 1 < len(tiles) else None
        sending = sending_s(instance, tile, after) if instance.ordered and after is not None else 0.0
        rows.append({"microbatch_s": times[stage], "all_reduce_s": data_s(instance, tile), "sending_s": sending})
    drawn = [Tile(tile.stage, tile.row, tile.column, tile.rows, tile.columns) for tile in tiles]
    return Breakdown(
        tuple(rows),
        {"bottleneck": f"stage {slowest(times)}"},
        (Tiles("Tiling", instance.rows, instance.columns, drawn, stages_of(times)),),
    )
