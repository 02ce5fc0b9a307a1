"""What a plan decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """The devices of a stage: ``rows`` x ``columns`` of them, the first at ``row`` of node ``column``."""

    stage: int
    row: int
    column: int
    rows: int
    columns: int


@dataclass(frozen=True)
class TilingPlan:
    """A tile for each stage, in any order."""

    tiles: tuple[Tile, ...]
