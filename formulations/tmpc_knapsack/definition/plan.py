"""What a plan decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from instances.rules import NodeId


@dataclass(frozen=True)
class KnapsackPlan:
    """The id of the TMPC chosen for every node."""

    choice: Mapping[NodeId, str]
