"""Mesh tiling: the definition, naively and without any solver.

Source: AMP's supplement, section 6.3 and footnote 4; the cost of a tile is reconstructed.
"""

import math
from itertools import pairwise

from formulations.contract.violation import Violation
from formulations.mesh_tiling.definition.plan import Tile, TilingPlan
from instances.problems.mesh_tiling import MeshInstance


def node_of(instance: MeshInstance, tile: Tile, dp_rank: int, tp_rank: int) -> int:
    """The node of a tile's device: upright tiles have one for each data-parallel rank, lying ones for each other."""
    upright = tile.rows == instance.tp_degree
    return tile.column + (dp_rank if upright else tp_rank)


def ring_s(instance: MeshInstance, nodes: list[int], volume: float) -> float:
    """Seconds of an all-reduce of ``volume`` bytes in a ring over devices on these nodes; its slowest link decides."""
    size = len(nodes)
    if size == 1:
        return 0.0
    slowest = min(instance.bandwidth(node, after) for node, after in pairwise([*nodes, nodes[0]]))
    return 2 * (size - 1) / size * volume / slowest


def tensor_s(instance: MeshInstance, tile: Tile) -> float:
    """Seconds of a stage for one micro-batch: computing, and its slowest tensor-parallel group's all-reduce."""
    groups = [[node_of(instance, tile, d, m) for m in range(instance.tp_degree)] for d in range(instance.dp_degree)]
    return instance.compute_s + max(ring_s(instance, group, instance.tp_bytes) for group in groups)


def data_s(instance: MeshInstance, tile: Tile) -> float:
    """Seconds of a stage's slowest data-parallel all-reduce."""
    groups = [[node_of(instance, tile, d, m) for d in range(instance.dp_degree)] for m in range(instance.tp_degree)]
    return max(ring_s(instance, group, instance.dp_bytes) for group in groups)


def sending_s(instance: MeshInstance, tile: Tile, after: Tile) -> float:
    """Seconds of sending one micro-batch to the next stage: over data-parallel ranks the mean of the slowest link."""
    slowest = [
        min(
            instance.bandwidth(node_of(instance, tile, d, m), node_of(instance, after, d, m))
            for m in range(instance.tp_degree)
        )
        for d in range(instance.dp_degree)
    ]
    return math.fsum(instance.stage_bytes / bandwidth for bandwidth in slowest) / instance.dp_degree


def evaluate(instance: MeshInstance, plan: TilingPlan) -> float:
    """Seconds of a step: slowest stage for all micro-batches but one, all stages, slowest all-reduce, and sending.

    Sending counts only where the order does (``ordered``).

    `ValueError` if the plan breaks a rule.
    Source: The form of AMP's Equation 4, with the tile's own communication as a stage's time; reconstructed.
    """
    broken = violations(instance, plan)
    if broken:
        raise ValueError("; ".join(map(str, broken)))
    tiles = sorted(plan.tiles, key=lambda tile: tile.stage)
    times = [tensor_s(instance, tile) for tile in tiles]
    sending = [sending_s(instance, tile, after) for tile, after in pairwise(tiles)] if instance.ordered else []
    waiting = (instance.num_microbatches - 1) * max(times)
    return math.fsum([waiting, *times, *sending, max(data_s(instance, tile) for tile in tiles)])


def violations(instance: MeshInstance, plan: TilingPlan) -> tuple[Violation, ...]:
    """The rules that a plan breaks.

    ``shape`` (tp x dp, upright or lying), ``mesh`` (inside), ``overlap`` and ``cover`` (every device in exactly one
    tile), ``stages`` (numbered from 0 on).
    """
    found = []
    upright = (instance.tp_degree, instance.dp_degree)
    covered: dict[tuple[int, int], int] = {}
    for tile in plan.tiles:
        if (tile.rows, tile.columns) not in (upright, upright[::-1]):
            found.append(Violation("shape", f"stage {tile.stage} is {tile.rows} x {tile.columns}"))
        inside = 0 <= tile.row <= instance.rows - tile.rows and 0 <= tile.column <= instance.columns - tile.columns
        if not inside:
            found.append(Violation("mesh", f"stage {tile.stage} lies outside the mesh"))
            continue
        for row in range(tile.row, tile.row + tile.rows):
            for column in range(tile.column, tile.column + tile.columns):
                covered[row, column] = covered.get((row, column), 0) + 1
    twice = [device for device, times in sorted(covered.items()) if times > 1]
    if twice:
        found.append(Violation("overlap", f"device {twice[0]} is in {covered[twice[0]]} tiles"))
    free = instance.rows * instance.columns - len(covered)
    if free:
        found.append(Violation("cover", f"{free} devices are in no tile"))
    if sorted(tile.stage for tile in plan.tiles) != list(range(len(plan.tiles))):
        found.append(Violation("stages", f"stages are not numbered 0 to {len(plan.tiles) - 1}"))
    return tuple(found)
