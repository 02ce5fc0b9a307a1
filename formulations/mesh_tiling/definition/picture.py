"""A tiling as an SVG picture: a column for each node, a frame for each stage (after AMP, Figure 5)."""

from __future__ import annotations

from formulations.mesh_tiling.definition.plan import Tile, TilingPlan
from instances.problems.mesh_tiling import MeshInstance

_SIDE, _GAP, _MARGIN = 40, 6, 24


def svg(instance: MeshInstance, plan: TilingPlan) -> str:
    """The picture. Lines join the devices of a stage along its tensor-parallel groups."""
    width = instance.columns * _SIDE + 2 * _MARGIN
    height = instance.rows * _SIDE + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        f"<title>{instance.rows} devices on each of {instance.columns} nodes, {len(plan.tiles)} stages</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for column in range(instance.columns):
        parts.append(_text(_MARGIN + (column + 0.5) * _SIDE, 0.7 * _MARGIN, f"node {column}" if column < 1 else column))
    for tile in sorted(plan.tiles, key=lambda each: each.stage):
        parts += _tile(instance, tile)
    return "\n".join([*parts, "</svg>", ""])


def _tile(instance: MeshInstance, tile: Tile) -> list[str]:
    left, top = _MARGIN + tile.column * _SIDE, _MARGIN + tile.row * _SIDE
    wide, high = tile.columns * _SIDE, tile.rows * _SIDE
    shade = (240, 200, 160)[tile.stage % 3]  # stages that follow each other differ
    parts = [
        f'<rect x="{left + _GAP / 2}" y="{top + _GAP / 2}" width="{wide - _GAP}" height="{high - _GAP}" rx="6" '
        f'fill="rgb({shade},{shade},{shade})" stroke="black"/>'
    ]
    upright = tile.rows == instance.tp_degree
    for group in range(tile.columns if upright else tile.rows):
        x1 = left + (group + 0.25 if upright else 0.25) * _SIDE
        y1 = top + (0.25 if upright else group + 0.25) * _SIDE
        x2 = x1 if upright else x1 + (tile.columns - 0.5) * _SIDE
        y2 = y1 + (tile.rows - 0.5) * _SIDE if upright else y1
        parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="black" stroke-width="2"/>')
    return [*parts, _text(left + wide / 2, top + high / 2, tile.stage)]


def _text(x: float, y: float, text: object) -> str:
    return f'<text x="{x}" y="{y}" font-size="11" text-anchor="middle" dominant-baseline="middle">{text}</text>'
