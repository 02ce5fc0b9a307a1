"""What a plan decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from instances.rules import NodeId


@dataclass(frozen=True)
class Stage:
    """Nodes run together with data-parallel degree d and tensor-parallel degree t, on d * t devices of their own."""

    nodes: tuple[NodeId, ...]
    dp_degree: int
    tp_degree: int
    tmpcs: Mapping[NodeId, str]


@dataclass(frozen=True)
class StagePlan:
    """Stages from the input side on; the order decides how many micro-batches each has in flight."""

    stages: tuple[Stage, ...]
