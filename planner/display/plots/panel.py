"""The small type that pictures are handed around as."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Panel:
    """A titled picture: ``draw(axes)`` fills it.

    ``says`` is the line below the title; ``is_wide`` panels take the whole width of a figure; ``height`` is in inches,
    or what it is at a width in inches.
    """

    title: str
    draw: Callable[[Any], Any]
    says: str = ""
    is_wide: bool = False
    height: float | Callable[[float], float] = 3.0

    def height_at(self, width: float) -> float:
        """Inches of its height where it is so many inches wide."""
        return self.height(width) if callable(self.height) else self.height
