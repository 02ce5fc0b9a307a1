"""What a plan decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Degrees:
    """Samples of a micro-batch, and the degrees of tensor, data and pipeline parallelism."""

    microbatch: int
    tp_degree: int
    dp_degree: int
    pp_degree: int

    def rank(self, stage: int, dp_rank: int, tp_rank: int) -> int:
        """Tensor-parallel ranks next to each other, then data-parallel ones, then stages."""
        return (stage * self.dp_degree + dp_rank) * self.tp_degree + tp_rank


@dataclass(frozen=True)
class StrategyPlan:
    """Degrees, layers of each stage, and the device of each rank."""

    degrees: Degrees
    lengths: tuple[int, ...]
    placement: tuple[int, ...]
