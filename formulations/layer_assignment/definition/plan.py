"""What a plan decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerPlan:
    """How many layers each stage takes, from the input side on."""

    lengths: tuple[int, ...]
