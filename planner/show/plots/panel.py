"""The small type that pictures are handed around as."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Panel:
    """A titled picture: ``draw(axes)`` fills it."""

    title: str
    draw: Callable[[Any], Any]
