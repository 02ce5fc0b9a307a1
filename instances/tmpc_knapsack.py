"""TMPC knapsack: one TMPC per node, least total time, total memory within a capacity (nouns only).

Source: Piper, section 4, "The knapsack subproblem".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NodeId = int | str


@dataclass(frozen=True)
class Choice:
    """One TMPC of a node: its whole contribution to the stage's time, and its memory in bytes."""

    id: str
    time: float
    memory_bytes: float


@dataclass(frozen=True)
class KnapsackNode:
    """A node and its TMPCs (at least one; ids unique)."""

    id: NodeId
    options: tuple[Choice, ...]


@dataclass(frozen=True)
class KnapsackInstance:
    """Nodes, capacity M in bytes, and where the instance arose (``origin``: free text fields)."""

    name: str
    nodes: tuple[KnapsackNode, ...]
    capacity_bytes: float
    origin: Mapping[str, str | int | float] = field(default_factory=dict)
