"""What a plan decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperatorPlan:
    """Stages from the input side on (indices of operators, ascending), and the replicas of each."""

    stages: tuple[tuple[int, ...], ...]
    replicas: tuple[int, ...]
