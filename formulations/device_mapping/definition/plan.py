"""What a plan decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mapping:
    """A plan: ``devices[s][r]`` is the device of replica r of stage s.

    ``rings[s]``, which only counts where the instance has free rings, are the replicas of stage s in the cyclic order
    in which they pass their gradients on. Without ``rings`` it is the best order with up to ``MAX_SEARCHED_RING``
    replicas, and the order of the indices with more.
    """

    devices: tuple[tuple[int, ...], ...]
    rings: tuple[tuple[int, ...], ...] | None = None
