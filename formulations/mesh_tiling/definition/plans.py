"""Plans of mesh tiling as JSON (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from formulations.mesh_tiling.definition.plan import Tile, TilingPlan
from instances.errors import InstanceError
from instances.problems.mesh_tiling import MeshInstance

_FIELDS = ("stage", "row", "column", "rows", "columns")


def plan_to_json(_: MeshInstance, plan: TilingPlan) -> dict[str, Any]:
    """``{"tiles": [{"stage", "row", "column", "rows", "columns"}]}``, by stage."""
    tiles = sorted(plan.tiles, key=lambda tile: tile.stage)
    return {"tiles": [{name: getattr(tile, name) for name in _FIELDS} for tile in tiles]}


def plan_from_json(_: MeshInstance, content: Any, where: str = "plan") -> TilingPlan:
    """The plan that parsed JSON describes; tiles that do not fit are left to ``violations``.

    Raises
    ------
    InstanceError
        If ``tiles`` is missing or not a list of objects of five integers.
    """
    if not isinstance(content, dict):
        raise InstanceError.at(where, "content", content, "an object")
    if "tiles" not in content:
        raise InstanceError.missing(where, "tiles", "a list of tiles")
    if not isinstance(content["tiles"], list):
        raise InstanceError.at(where, "tiles", content["tiles"], "a list of tiles")
    tiles = []
    for position, tile in enumerate(content["tiles"]):
        if not isinstance(tile, dict) or sorted(tile) != sorted(_FIELDS):
            raise InstanceError.at(where, f"tiles[{position}]", tile, f"an object with {', '.join(_FIELDS)}")
        for name in _FIELDS:
            if isinstance(tile[name], bool) or not isinstance(tile[name], int) or abs(tile[name]) > 10**9:
                raise InstanceError.at(where, f"tiles[{position}].{name}", tile[name], "an integer")
        tiles.append(Tile(**tile))
    return TilingPlan(tuple(tiles))
